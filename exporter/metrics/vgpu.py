"""The rows of virtual GPUs: those that a host runs, and the license of the one that a guest has."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import (
    AnyFamily,
    Family,
    Labelled,
    LabelledFamily,
    Number,
    answering,
    flag,
    reading,
    scaled,
    word,
)
from exporter.model import GpuRow, License, VgpuReading, VgpuRow


def _info(row: VgpuRow) -> Iterator[Labelled]:
    vgpu, holder = row.reading, row.holder
    yield (
        (
            vgpu.type_name or "",
            vgpu.mdev_uuid or "",
            vgpu.vm_id or "",
            "" if vgpu.gi is None else str(vgpu.gi),
            holder.namespace if holder is not None else "",
            holder.pod if holder is not None else "",
        ),
        1,
    )


def _share(value: Callable[[VgpuReading], int | None]) -> Callable[[VgpuRow], Number | None]:
    return lambda row: scaled(value(row.reading), 100)


def _license(row: GpuRow) -> License | None:
    found = answering(row)
    return None if found is None else found.license


def _license_info(row: GpuRow) -> Iterator[Labelled]:
    guest_license = _license(row)
    if guest_license is not None:
        yield (guest_license.product, guest_license.state), 1


def _licensed(row: GpuRow) -> Number | None:
    guest_license = _license(row)
    return None if guest_license is None else flag(guest_license.licensed)


def _license_expires(row: GpuRow) -> Number | None:
    guest_license = _license(row)
    return None if guest_license is None else guest_license.expires


GPU_VGPU: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_gpu_virtualization_info",
        "info",
        "gpu",
        "What the GPU is to virtual machines: none, passthrough, vgpu_guest (this is one), vgpu_host or "
        "vsga_host.",
        ("virtualization",),
        word(lambda told: told.virtualization),
        group="modes",
    ),
    Family(
        "gpuslice_gpu_vgpus",
        "gauge",
        "gpu",
        "vGPUs that run on this GPU of a host.",
        reading(lambda told: None if told.vgpus is None else len(told.vgpus)),
        group="vgpu",
    ),
    LabelledFamily(
        "gpuslice_gpu_vgpu_license_info",
        "info",
        "gpu",
        "The license of the vGPU that this guest has.",
        ("license_product", "license_state"),
        _license_info,
        group="vgpu",
    ),
    Family(
        "gpuslice_gpu_vgpu_licensed",
        "gauge",
        "gpu",
        "1 if the vGPU that this guest has is licensed; without a license its driver slows it down.",
        _licensed,
        group="vgpu",
    ),
    Family(
        "gpuslice_gpu_vgpu_license_expiry_timestamp_seconds",
        "gauge",
        "gpu",
        "Unix time at which the license of this guest's vGPU ends; absent where it does not.",
        _license_expires,
        group="vgpu",
    ),
)
"""Families of a physical GPU, or of what a guest takes for one."""

VGPU: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_vgpu_info",
        "info",
        "vgpu",
        "Identity of a vGPU on this host: its type, its mediated device, its virtual machine, the GPU "
        "instance that backs it (on a GPU in MIG mode), and the pod that holds it.",
        ("type", "mdev_uuid", "vm_id", "gi", "namespace", "pod"),
        _info,
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_memory_total_bytes",
        "gauge",
        "vgpu",
        "Frame buffer of the vGPU.",
        lambda row: row.reading.memory_total,
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_memory_used_bytes",
        "gauge",
        "vgpu",
        "Frame buffer that the guest uses.",
        lambda row: row.reading.memory_used,
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_utilization_ratio",
        "gauge",
        "vgpu",
        "Share of the physical GPU's time in which it computed for this vGPU; absent inside MIG.",
        _share(lambda vgpu: vgpu.sm_percent),
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_memory_copy_utilization_ratio",
        "gauge",
        "vgpu",
        "Share of time in which the physical GPU's memory was read or written for this vGPU.",
        _share(lambda vgpu: vgpu.memory_percent),
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_encoder_utilization_ratio",
        "gauge",
        "vgpu",
        "Share of time in which the physical GPU's encoder worked for this vGPU.",
        _share(lambda vgpu: vgpu.encoder_percent),
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_decoder_utilization_ratio",
        "gauge",
        "vgpu",
        "Share of time in which the physical GPU's decoder worked for this vGPU.",
        _share(lambda vgpu: vgpu.decoder_percent),
        group="vgpu",
    ),
    Family(
        "gpuslice_vgpu_licensed",
        "gauge",
        "vgpu",
        "1 if the guest has a license for the vGPU; absent until its driver has asked for one.",
        lambda row: flag(row.reading.licensed),
        group="vgpu",
    ),
)
"""Families with one entity per vGPU of a host (a VgpuRow), labelled ``uuid`` and ``vgpu_uuid``."""
