"""One GPU of a recording: the reading of one moment as the description of a board."""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from exporter.commands.record_mask import Mask
from exporter.demo import schema_gpu, schema_pods
from exporter.demo.load import OFF, Curve
from exporter.hardware.device import ARCHITECTURES
from exporter.model import DeviceProcess, GpuReading, Memory, MigReading
from exporter.model.hardware import ProcessKind

# The symbols of the library behind the binding's names, where they differ.
SYMBOLS = {
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetAttributes": "nvmlDeviceGetAttributes_v2",
}
KINDS: tuple[ProcessKind, ...] = ("mps", "compute", "graphics")


def record_gpu(gpu: GpuReading, mask: Mask) -> schema_gpu.Gpu:
    """Describe a board that stands still at what was read."""
    identity, clocks = gpu.identity, gpu.clocks_megahertz
    memory = gpu.memory or Memory(total=0, used=0, free=0)
    sm = clocks.get("sm", 0)
    return schema_gpu.Gpu(
        uuid=mask.uuid(identity.uuid),
        minor=identity.minor,
        model=identity.model,
        pci_bus_id=identity.pci_bus_id,
        serial=mask.serial(identity.serial),
        architecture=next(
            (number for number, name in ARCHITECTURES.items() if name == identity.architecture), 0
        ),
        memory_total=memory.total,
        memory_reserved=memory.reserved or 0,
        overhead=_overhead(gpu, memory),
        power_idle_mw=gpu.power_milliwatts or 0,
        power_max_mw=gpu.power_milliwatts or 0,
        temperature_base=gpu.temperature_celsius or 0,
        memory_temperature=gpu.memory_temperature_celsius is not None,
        clocks=schema_gpu.Clocks(
            sm_idle=sm, sm_max=sm, memory=clocks.get("memory", 0), video_max=clocks.get("video", 0)
        ),
        fan=gpu.fan_percent,
        compute_mode=gpu.compute_mode or "default",
        pcie_replays=gpu.pcie_replays or 0,
        mig=_mig(gpu, mask),
        unsupported=tuple(sorted({SYMBOLS.get(name, name) for name in gpu.unsupported})),
    )


def processes_of(gpu: GpuReading, mask: Mask) -> Iterator[tuple[int, schema_pods.Process]]:
    """Describe every process on a GPU and on its MIG devices, with its pid."""
    for process in gpu.processes or ():
        percent = (gpu.process_utilization or {}).get(process.pid) or 0
        yield process.pid, _process(process, mask.uuid(gpu.identity.uuid), percent)
    for mig in gpu.mig or ():
        for process in mig.processes or ():
            yield process.pid, _process(process, mask.uuid(mig.uuid), 0)


def _process(process: DeviceProcess, device: str, percent: int) -> schema_pods.Process:
    return schema_pods.Process(
        pid=process.pid,
        device=device,
        memory=process.memory,
        kind=next(kind for kind in KINDS if kind in process.kinds),
        load=Curve(high=percent) if percent else OFF,
    )


def _overhead(gpu: GpuReading, memory: Memory) -> int:
    """Return what neither processes nor MIG devices account for."""
    instances = {mig.gi: mig.memory.used for mig in gpu.mig or () if mig.memory is not None}
    return max(memory.used - _sum(gpu.processes) - sum(instances.values()), 0)


def _sum(processes: tuple[DeviceProcess, ...] | None) -> int:
    return sum(process.memory or 0 for process in processes or ())


def _mig(gpu: GpuReading, mask: Mask) -> schema_gpu.Mig | None:
    if gpu.mig_enabled is None or "nvmlDeviceGetMigMode" in gpu.unsupported:
        return None
    starts = _starts(gpu.mig or ())
    instances = [_instance(mig, mask, starts[mig.gi], mig.memory_slices or 1) for mig in gpu.mig or ()]
    return schema_gpu.Mig(
        enabled=bool(gpu.mig_enabled), max_slices=gpu.mig_slices or 7, instances=tuple(instances)
    )


def _starts(migs: tuple[MigReading, ...]) -> dict[int, int]:
    """Lay the GPU instances side by side; where each really lies is told to the administrator only.

    Those come first whose compute instances fill them: the driver finds a compute instance by its place, of
    which there are as many as compute slices, often one fewer than memory slices.
    """
    sizes = {mig.gi: mig.memory_slices or 1 for mig in migs}
    filled = Counter(mig.gi for mig in migs)
    order = sorted(sizes, key=lambda gi: (sizes[gi] - filled[gi], gi))
    return dict(zip(order, accumulate((sizes[gi] for gi in order), initial=0), strict=False))


def _instance(mig: MigReading, mask: Mask, start: int, size: int) -> schema_gpu.MigInstance:
    memory = mig.memory or Memory(total=0, used=0, free=0)
    return schema_gpu.MigInstance(
        uuid=mask.uuid(mig.uuid),
        gi=mig.gi,
        ci=mig.ci,
        profile=mig.profile or "",
        memory_bytes=memory.total,
        reserved=memory.reserved or 0,
        overhead=0 if mig.memory_shared else max(memory.used - _sum(mig.processes), 0),
        compute_slices=mig.compute_slices or 0,
        gi_slices=mig.instance_slices or 0,
        multiprocessors=mig.multiprocessors or 0,
        start=start,
        size=size,
    )
