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
    found = {}
    for family in families:
        if isinstance(family, Family):
            found[family.name] = family.value(row)
        if isinstance(family, LabelledFamily):
            found[family.name] = [values for values, number in family.samples(row) if number is not None]
    return {name.removeprefix("gpuslice_"): value for name, value in found.items() if value not in (None, [])}


def gpu(**reading: Any) -> dict[str, Any]:
    """Return the values of a GPU with that reading."""
    return printed(GPU_VGPU, GpuRow(identity=IDENTITY, reading=GpuReading(identity=IDENTITY, **reading)))


def test_a_vgpu_with_every_value():
    """Shares are of the physical GPU, a flag is 1 or 0, and the info has the pod of the virtual machine."""
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


def test_a_vgpu_without_values():
    """It has its info; no number and no label is invented."""
    row = VgpuRow(uuid="GPU-a", reading=VgpuReading(uuid="v"))
    assert printed(VGPU, row) == {"vgpu_info": [("",) * 6]}


@pytest.mark.parametrize(("vgpus", "count"), [((), 0), ((VgpuReading(uuid="v"),), 1)])
def test_a_host_counts_its_vgpus(vgpus: tuple[VgpuReading, ...], count: int):
    """None of them is a zero on a host, and nothing elsewhere."""
    assert gpu(virtualization="vgpu_host", vgpus=vgpus) == {
        "gpu_virtualization_info": [("vgpu_host",)],
        "gpu_vgpus": count,
    }
    assert gpu(virtualization="none", vgpus=None) == {"gpu_virtualization_info": [("none",)]}
    assert gpu() == {}


def test_the_license_of_a_guest():
    """A license without an end has no day on which it ends."""
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


def test_vgpus_are_a_level_of_their_own():
    """Each is identified by the UUID of its GPU and its own."""
    row = VgpuRow(uuid="GPU-a", reading=VgpuReading(uuid="v"))
    snapshot = Snapshot(timestamp=0.0, sequence=1, node=NodeRow(name="n"), vgpus=(row,))
    assert [(each.names, each.values, each.row) for each in ENTITIES["vgpu"](snapshot)] == [
        (("node", "gpu", "uuid", "vgpu_uuid"), ("n", "", "GPU-a", "v"), row)
    ]
