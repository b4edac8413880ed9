"""The jobs of a batch system put on the rows of the devices that it says they have."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from exporter.model import GpuRow, MigRow
from exporter.model.records import replace

# A batch system counts the GPUs of NVIDIA, as dcgm-exporter does.
VENDOR = "nvidia"
Jobs = Mapping[tuple[int, int | None], tuple[str, ...]]


def gpus_with_jobs(gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[GpuRow, ...]:
    """Give each GPU the jobs that have it as a whole."""
    rows = tuple(gpus)
    counted = _counted(rows)
    return tuple(
        replace(gpu, jobs=jobs.get((gpu.identity.index, None), ())) if gpu.identity.uuid in counted else gpu
        for gpu in rows
    )


def migs_with_jobs(migs: Iterable[MigRow], gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[MigRow, ...]:
    """Give each MIG device the jobs that have the GPU instance around it."""
    indexes = _counted(gpus)
    return tuple(
        replace(mig, jobs=jobs.get((indexes[mig.device.uuid], mig.reading.gi), ()))
        if mig.device.uuid in indexes
        else mig
        for mig in migs
    )


def _counted(gpus: Iterable[GpuRow]) -> dict[str, int]:
    """Return by uuid the index that means that GPU alone.

    One that is missing keeps its index, which another may have by now: the one that answers.
    """
    by_index: dict[int, list[GpuRow]] = defaultdict(list)
    for gpu in gpus:
        if gpu.identity.vendor == VENDOR:
            by_index[gpu.identity.index].append(gpu)
    answering = {index: [gpu for gpu in same if _answers(gpu)] or same for index, same in by_index.items()}
    return {same[0].identity.uuid: index for index, same in answering.items() if len(same) == 1}


def _answers(gpu: GpuRow) -> bool:
    return gpu.reading is not None and gpu.reading.up
