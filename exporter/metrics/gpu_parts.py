"""Rows of the parts of a GPU: MIG devices, the vGPUs of a host, and the license of the vGPU in a guest."""

from exporter.metrics.family import MIG_ROWS, READING, AnyFamily, Rows, keyed, scaled, whole, word
from exporter.metrics.holders import job_info, slices
from exporter.metrics.profiling import MIG_PROFILING
from exporter.model import MigReading, VgpuRow


def _unshared(reading: MigReading) -> MigReading | None:
    """Return the reading unless compute instances share the memory: a sum would count it twice."""
    return None if reading.memory_shared else reading


def _placement(reading: MigReading) -> str:
    if reading.gi_start is None or not reading.gi_size:
        return ""
    return f"{reading.gi_start}:{reading.gi_size}"


_READING = MIG_ROWS.of(lambda row: row.reading, "core")
_MEMORY = _READING.of(_unshared).of(lambda reading: reading.memory, "memory")
_BAR1 = _READING.standard.reading("bar1").of(_unshared).of(lambda reading: reading.bar1, "bar1")
_SHARING = MIG_ROWS.grouped("sharing")

# Families of MIG devices (MigRow).
MIG: tuple[AnyFamily, ...] = (
    _READING.info(
        "info{gi, ci, placement}",
        "Identity of a MIG device: compute instance ci in GPU instance gi of the GPU uuid. placement: "
        "start:size of the GPU instance in memory slices; empty if the driver does not report it.",
        lambda mig: (str(mig.gi), str(mig.ci), _placement(mig)),
    ),
    _MEMORY.gauge(
        "memory_total_bytes",
        "Total memory of the MIG device; absent if compute instances share it.",
        lambda memory: memory.total,
    ),
    _MEMORY.gauge(
        "memory_used_bytes",
        "Memory in use on the MIG device; absent if compute instances share it.",
        lambda memory: memory.used,
    ),
    _MEMORY.standard.gauge(
        "memory_free_bytes",
        "Free memory of the MIG device; absent if compute instances share it.",
        lambda memory: memory.free,
    ),
    _MEMORY.gauge(
        "memory_reserved_bytes",
        "Memory of the MIG device reserved by the driver; absent if the driver does not report it or compute "
        "instances share it.",
        lambda memory: memory.reserved,
    ),
    _READING.standard.gauge(
        "compute_slices", "Compute slices of the compute instance; a whole A100 or H100 has 7, an A30 has 4."
    ),
    _READING.standard.gauge(
        "memory_slices", "Memory slices of the GPU instance; a whole A100 or H100 has 8, an A30 has 4."
    ),
    _READING.standard.gauge("multiprocessors", "Streaming multiprocessors (SMs) of the MIG device."),
    _READING.standard.gauge_by(
        "engines{engine}",
        "Engines in the GPU instance of the MIG device, by type: copy, encoder, decoder, jpeg, ofa.",
        lambda mig: keyed(mig.engines),
    ),
    _BAR1.gauge(
        "bar1_total_bytes",
        "Total BAR1 memory of the MIG device: the PCIe window for host access to its memory; absent if "
        "compute instances share it.",
        lambda bar1: bar1.total,
    ),
    _BAR1.gauge(
        "bar1_used_bytes",
        "BAR1 memory in use on the MIG device; absent if compute instances share it.",
        lambda bar1: bar1.used,
    ),
    _READING.grouped("utilization").gauge(
        "utilization_ratio",
        "Utilization of an AMD partition, as a share of time; absent on NVIDIA MIG devices.",
        lambda mig: scaled(mig.utilization_percent, 100),
    ),
    *slices(_SHARING, "MIG device"),
    _SHARING.gauge("holders", "Distinct containers that hold a slice of this MIG device."),
    _SHARING.gauge(
        "unattributed_memory_bytes",
        "Memory in use on the MIG device not attributed to any container.",
        lambda row: row.unattributed_memory,
    ),
    _SHARING.gauge(
        "unattributed_utilization_ratio",
        "Compute usage of the MIG device not attributed to any container, as a share of the physical GPU.",
        lambda row: row.unattributed_utilization,
    ),
    job_info(MIG_ROWS, "GPU instance of the MIG device"),
    *MIG_PROFILING,
)


_GUEST_LICENSE = READING.of(lambda gpu: gpu.license, "vgpu")
_VGPU: Rows[VgpuRow, VgpuRow] = Rows("gpuslice_vgpu_", "vgpu", whole, "vgpu")
_VGPU_READING = _VGPU.of(lambda row: row.reading)


def _vgpu_info(row: VgpuRow) -> tuple[str, ...]:
    vgpu, holder = row.reading, row.holder
    return (
        vgpu.type_name or "",
        vgpu.mdev_uuid or "",
        vgpu.vm_id or "",
        "" if vgpu.gi is None else str(vgpu.gi),
        holder.namespace if holder is not None else "",
        holder.pod if holder is not None else "",
    )


# Families of a physical GPU, and of the vGPU in a guest, which NVML shows as a GPU.
GPU_VGPU: tuple[AnyFamily, ...] = (
    READING.standard.grouped("modes").info(
        "virtualization_info{virtualization}",
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
        "vgpu_license_info{license_product, license_state}",
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

# Families of the vGPUs of a host (VgpuRow), labelled ``uuid`` and ``vgpu_uuid``.
VGPU: tuple[AnyFamily, ...] = (
    _VGPU.info(
        "info{type, mdev_uuid, vm_id, gi, namespace, pod}",
        "Identity of a vGPU on this host: vGPU type, mediated device, virtual machine, GPU instance (gi, in "
        "MIG mode), and the pod that holds it.",
        _vgpu_info,
    ),
    _VGPU_READING.gauge("memory_total_bytes", "Total memory of the vGPU.", lambda vgpu: vgpu.memory_total),
    _VGPU_READING.gauge(
        "memory_used_bytes", "Memory of the vGPU used by the guest.", lambda vgpu: vgpu.memory_used
    ),
    _VGPU_READING.gauge(
        "utilization_ratio",
        "Compute utilization of the vGPU, as a share of the physical GPU's time; absent in MIG mode.",
        lambda vgpu: scaled(vgpu.sm_percent, 100),
    ),
    _VGPU_READING.full.gauge(
        "memory_copy_utilization_ratio",
        "Memory utilization of the vGPU: share of time in which it read or wrote memory of the physical GPU.",
        lambda vgpu: scaled(vgpu.memory_percent, 100),
    ),
    _VGPU_READING.full.gauge(
        "encoder_utilization_ratio",
        "Video encoder utilization of the vGPU, as a share of the physical GPU's encoder time.",
        lambda vgpu: scaled(vgpu.encoder_percent, 100),
    ),
    _VGPU_READING.full.gauge(
        "decoder_utilization_ratio",
        "Video decoder utilization of the vGPU, as a share of the physical GPU's decoder time.",
        lambda vgpu: scaled(vgpu.decoder_percent, 100),
    ),
    _VGPU_READING.flag(
        "licensed",
        "1 if the guest has a license for the vGPU, else 0; absent until the guest driver requests one.",
    ),
)
