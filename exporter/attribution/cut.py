"""A GPU that is cut: how it is shared, and whether all its parts are known."""

from collections.abc import Collection, Iterable

from exporter.model import ContainerRef, GpuReading
from exporter.sums import total

NVIDIA, AMD = "nvidia", "amd"


def cut_mode(gpu: GpuReading, modes: Iterable[str]) -> str:
    """Name how a GPU in parts is shared: after its parts where one is shared further."""
    if gpu.identity.vendor == AMD:
        return "amd-partition"
    return "mig-time-slicing" if "mig-time-slicing" in modes else "mig"


def slices_used(gpu: GpuReading) -> int | None:
    """Count the compute slices that GPU instances take; None without MIG or where it cannot be told."""
    if not gpu.mig_enabled or gpu.mig is None or not gpu.mig_complete or not gpu.up:
        return None
    return total(list({mig.gi: mig.instance_slices for mig in gpu.mig}.values()))


def are_all_told(gpu: GpuReading, unresolved: Collection[ContainerRef]) -> bool:
    """Whether no device of a GPU is missing that somebody holds; ``unresolved`` have ids that lead nowhere.

    KFD hides partitions for good from those who may not use them. A MIG device is known from before, but for
    one that was cut while the driver did not tell: its holder is one of those.
    """
    if gpu.identity.vendor == AMD:
        return gpu.mig_complete
    told = gpu.mig_complete and (gpu.mig_enabled is not None or gpu.identity.vendor != NVIDIA)
    return told or not unresolved
