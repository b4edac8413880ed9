"""Rows of vGPUs: those on a host, and the license of the vGPU in a guest."""

from exporter.metrics.family import READING, AnyFamily, Rows, scaled, whole, word
from exporter.model import VgpuRow

_GUEST_LICENSE = READING.of(lambda gpu: gpu.license, "vgpu")
_ROWS: Rows[VgpuRow, VgpuRow] = Rows("gpuslice_vgpu_", "vgpu", whole, "vgpu")
_READING = _ROWS.of(lambda row: row.reading)


def _info(row: VgpuRow) -> tuple[str, ...]:
    vgpu, holder = row.reading, row.holder
    return (
        vgpu.type_name or "",
        vgpu.mdev_uuid or "",
        vgpu.vm_id or "",
        "" if vgpu.gi is None else str(vgpu.gi),
        holder.namespace if holder is not None else "",
        holder.pod if holder is not None else "",
    )


GPU_VGPU: tuple[AnyFamily, ...] = (
    READING.standard.grouped("modes").info(
        "virtualization_info",
        ("virtualization",),
        "Virtualization mode of the GPU: none, passthrough, vgpu_guest (this machine is the guest), "
        "vgpu_host or vsga_host.",
        lambda gpu: word(gpu.virtualization),
    ),
    READING.standard.grouped("vgpu").gauge(
        "vgpus",
        "vGPUs running on this GPU of a vGPU host.",
        lambda gpu: None if gpu.vgpus is None else len(gpu.vgpus),
    ),
    _GUEST_LICENSE.info(
        "vgpu_license_info",
        ("license_product", "license_state"),
        "License product and state of the vGPU in this guest.",
        lambda guest_license: (guest_license.product, guest_license.state),
    ),
    _GUEST_LICENSE.flag(
        "vgpu_licensed",
        "1 if the vGPU in this guest is licensed, else 0; without a license the driver limits performance.",
        lambda guest_license: guest_license.licensed,
    ),
    _GUEST_LICENSE.gauge(
        "vgpu_license_expiry_timestamp_seconds",
        "Unix time at which the license of the vGPU in this guest expires; absent if it does not expire.",
        lambda guest_license: guest_license.expires,
    ),
)
"""Families of a physical GPU, and of the vGPU in a guest, which NVML shows as a GPU."""

VGPU: tuple[AnyFamily, ...] = (
    _ROWS.info(
        "info",
        ("type", "mdev_uuid", "vm_id", "gi", "namespace", "pod"),
        "Identity of a vGPU on this host: vGPU type, mediated device, virtual machine, GPU instance (gi, in "
        "MIG mode), and the pod that holds it.",
        _info,
    ),
    _READING.gauge("memory_total_bytes", "Total memory of the vGPU.", lambda vgpu: vgpu.memory_total),
    _READING.gauge(
        "memory_used_bytes", "Memory of the vGPU used by the guest.", lambda vgpu: vgpu.memory_used
    ),
    _READING.gauge(
        "utilization_ratio",
        "Compute utilization of the vGPU, as a share of the physical GPU's time; absent in MIG mode.",
        lambda vgpu: scaled(vgpu.sm_percent, 100),
    ),
    _READING.full.gauge(
        "memory_copy_utilization_ratio",
        "Memory utilization of the vGPU: share of time in which it read or wrote memory of the physical GPU.",
        lambda vgpu: scaled(vgpu.memory_percent, 100),
    ),
    _READING.full.gauge(
        "encoder_utilization_ratio",
        "Video encoder utilization of the vGPU, as a share of the physical GPU's encoder time.",
        lambda vgpu: scaled(vgpu.encoder_percent, 100),
    ),
    _READING.full.gauge(
        "decoder_utilization_ratio",
        "Video decoder utilization of the vGPU, as a share of the physical GPU's decoder time.",
        lambda vgpu: scaled(vgpu.decoder_percent, 100),
    ),
    _READING.flag(
        "licensed",
        "1 if the guest has a license for the vGPU, else 0; absent until the guest driver requests one.",
        lambda vgpu: vgpu.licensed,
    ),
)
"""Families of the vGPUs of a host (VgpuRow), labelled ``uuid`` and ``vgpu_uuid``."""
