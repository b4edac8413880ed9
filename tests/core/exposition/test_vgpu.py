"""The rows of virtual GPUs: what is known is converted, and what is not is left out."""

from typing import Any

import pytest

from exporter.metrics import ENTITIES, Family, LabelledFamily
from exporter.metrics.gpu_parts import GPU_VGPU, VGPU
from exporter.model import (
    ContainerRef,
    GpuIdentity,
    GpuReading,
    GpuRow,
    License,
    NodeRow,
    Snapshot,
    VgpuReading,
    VgpuRow,
)

IDENTITY = GpuIdentity(uuid="GPU-a", index=0)


def printed(families: Any, row: Any) -> dict[str, Any]:
    """Return the values of the families of a level for a row, without the absent ones."""
    shown = {}
    for family in families:
        if isinstance(family, Family):
            shown[family.name] = family.value(row)
        if isinstance(family, LabelledFamily):
            shown[family.name] = [values for values, number in family.samples(row) if number is not None]
    return {name.removeprefix("gpuslice_"): value for name, value in shown.items() if value not in (None, [])}


def gpu(**reading: Any) -> dict[str, Any]:
    """Return the values of a GPU with that reading."""
    return printed(GPU_VGPU, GpuRow(identity=IDENTITY, reading=GpuReading(identity=IDENTITY, **reading)))


def test_a_vgpu_with_every_value():
    reading = VgpuReading(
        uuid="v",
        mdev_uuid="m",
        vm_id="vm",
        type_name="NVIDIA A40-12Q",
        gi=2,
        memory_total=12,
        memory_used=5,
        sm_percent=25,
        memory_percent=0,
        encoder_percent=3,
        decoder_percent=100,
        licensed=False,
    )
    row = VgpuRow(uuid="GPU-a", reading=reading, holder=ContainerRef("desktops", "launcher", "compute"))
    assert printed(VGPU, row) == {
        "vgpu_info": [("NVIDIA A40-12Q", "m", "vm", "2", "desktops", "launcher")],
        "vgpu_memory_total_bytes": 12,
        "vgpu_memory_used_bytes": 5,
        "vgpu_utilization_ratio": 0.25,
        "vgpu_memory_copy_utilization_ratio": 0.0,
        "vgpu_encoder_utilization_ratio": 0.03,
        "vgpu_decoder_utilization_ratio": 1.0,
        "vgpu_licensed": 0,
    }


def test_a_vgpu_without_values_has_its_info_only():
    row = VgpuRow(uuid="GPU-a", reading=VgpuReading(uuid="v"))
    assert printed(VGPU, row) == {"vgpu_info": [("",) * 6]}


@pytest.mark.parametrize(("vgpus", "count"), [((), 0), ((VgpuReading(uuid="v"),), 1)])
def test_a_host_counts_its_vgpus(vgpus: tuple[VgpuReading, ...], count: int):
    """Zero on a host without any, absent elsewhere."""
    assert gpu(virtualization="vgpu_host", vgpus=vgpus) == {
        "gpu_virtualization_info": [("vgpu_host",)],
        "gpu_vgpus": count,
    }
    assert gpu(virtualization="none", vgpus=None) == {"gpu_virtualization_info": [("none",)]}
    assert gpu() == {}


def test_a_license_without_an_end_has_no_expiry():
    guest_license = License(product="vWS", licensed=True, state="licensed", expires=1.5)
    assert gpu(license=guest_license) == {
        "gpu_vgpu_license_info": [("vWS", "licensed")],
        "gpu_vgpu_licensed": 1,
        "gpu_vgpu_license_expiry_timestamp_seconds": 1.5,
    }
    assert gpu(license=License(product="vWS", licensed=False, state="unlicensed")) == {
        "gpu_vgpu_license_info": [("vWS", "unlicensed")],
        "gpu_vgpu_licensed": 0,
    }
    assert gpu(license=guest_license, up=False) == {}


def test_a_vgpu_is_identified_by_the_uuid_of_its_gpu_and_its_own():
    row = VgpuRow(uuid="GPU-a", reading=VgpuReading(uuid="v"))
    snapshot = Snapshot(timestamp=0.0, sequence=1, node=NodeRow(name="n"), vgpus=(row,))
    assert [(entity.names, entity.values, entity.row) for entity in ENTITIES["vgpu"](snapshot)] == [
        (("node", "gpu", "uuid", "vgpu_uuid"), ("n", "", "GPU-a", "v"), row)
    ]
