"""The jobs of a batch system put on the rows of the devices that it says they have."""

from collections.abc import Iterable, Mapping

from exporter.model import GpuRow, MigRow
from exporter.model.records import replace

# A batch system counts the GPUs of NVIDIA, as dcgm-exporter does.
VENDOR = "nvidia"
Jobs = Mapping[tuple[int, int | None], tuple[str, ...]]


def gpus_with_jobs(gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[GpuRow, ...]:
    """Give each GPU the jobs that have it as a whole."""
    return tuple(
        replace(gpu, jobs=jobs.get((gpu.identity.index, None), ())) if _counts(gpu) else gpu for gpu in gpus
    )


def migs_with_jobs(migs: Iterable[MigRow], gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[MigRow, ...]:
    """Give each MIG device the jobs that have the GPU instance around it."""
    indexes = {gpu.identity.uuid: gpu.identity.index for gpu in gpus if _counts(gpu)}
    return tuple(
        replace(mig, jobs=jobs.get((indexes[mig.device.uuid], mig.reading.gi), ()))
        if mig.device.uuid in indexes
        else mig
        for mig in migs
    )


def _counts(gpu: GpuRow) -> bool:
    return gpu.identity.vendor == VENDOR
