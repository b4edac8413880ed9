"""Jobs of a batch system such as Slurm by GPU, from the files of dcgm-exporter's HPC job mapping.

A file is named after a GPU index (``0``), or a GPU index and a MIG GPU instance (``2.1``), and has one job id
on each line. Prolog and epilog scripts create and remove the files; other names are ignored.
"""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from exporter.model import GpuRow, JobFiles, MigRow, Problem

DEVICE = re.compile(r"(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,3}))?")
MOST_NAMES = 4096
MOST_BYTES = 65536
MOST_JOBS = 100
LONGEST_ID = 256
# A batch system numbers the NVIDIA GPUs only, as dcgm-exporter does.
VENDOR = "nvidia"
# Ids of jobs by GPU index and GPU instance, None for the whole GPU.
Jobs = Mapping[tuple[int, int | None], tuple[str, ...]]
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class JobFilesError(Exception):
    """The directory cannot be listed; the message has its path and the cause."""

    reason = "directory"


class _JobFileError(Exception):
    """A file that cannot be used; the message has the cause."""


def read_jobs(directory: Path) -> JobFiles:
    """Return the jobs by (GPU index, GPU instance or None), and the unusable files as problems; blocks.

    Raises JobFilesError if the directory cannot be listed. Files removed during the read are skipped.
    """
    try:
        with os.scandir(directory) as entries:
            devices = (match for entry in entries if (match := DEVICE.fullmatch(entry.name)))
            matches = sorted(islice(devices, MOST_NAMES), key=lambda match: match[0])
    except OSError as error:
        remedy = "mount it, or correct --job-mapping-dir"
        raise JobFilesError(f"cannot list {directory}: {error.strerror}; {remedy}") from error
    jobs: dict[tuple[int, int | None], tuple[str, ...]] = {}
    problems: list[Problem] = []
    for match in matches:
        name, (gpu, instance) = match[0], match.groups()
        try:
            jobs[int(gpu), None if instance is None else int(instance)] = _jobs(directory / name)
        except FileNotFoundError:
            continue
        except (OSError, _JobFileError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(Problem(reason="file", about=str(directory / name), text=text or "unreadable"))
    return JobFiles(jobs=jobs, problems=tuple(problems))


def _jobs(path: Path) -> tuple[str, ...]:
    """Return the distinct ids of a file in its order."""
    lines = _content(path).decode(errors="replace").split("\n")
    ids = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if len(ids) > MOST_JOBS:
        raise _JobFileError(f"has more than {MOST_JOBS} jobs")
    if any(len(job) > LONGEST_ID or not job.isprintable() for job in ids):
        raise _JobFileError("has lines that are not job ids")
    return ids


def _content(path: Path) -> bytes:
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _JobFileError("is not a regular file")
        content = os.pread(descriptor, MOST_BYTES + 1, 0)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise _JobFileError(f"is larger than {MOST_BYTES} bytes")
    return content


def gpus_with_jobs(gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[GpuRow, ...]:
    """Return the GPUs with the jobs that have each as a whole."""
    rows = tuple(gpus)
    counted = _counted(rows)
    return tuple(
        replace(gpu, jobs=jobs.get((gpu.identity.index, None), ())) if gpu.identity.uuid in counted else gpu
        for gpu in rows
    )


def migs_with_jobs(migs: Iterable[MigRow], gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[MigRow, ...]:
    """Return the MIG devices with the jobs that have the GPU instance of each."""
    indexes = _counted(gpus)
    return tuple(
        replace(mig, jobs=jobs.get((indexes[mig.device.uuid], mig.reading.gi), ()))
        if mig.device.uuid in indexes
        else mig
        for mig in migs
    )


def _counted(gpus: Iterable[GpuRow]) -> dict[str, int]:
    """Return the indexes that identify one GPU, by uuid.

    A GPU that is gone keeps its index, which another GPU may have now: the one that answers counts.
    """
    by_index: dict[int, list[GpuRow]] = defaultdict(list)
    for gpu in gpus:
        if gpu.identity.vendor == VENDOR:
            by_index[gpu.identity.index].append(gpu)
    answering = {
        index: [gpu for gpu in rows if gpu.reading is not None and gpu.reading.up] or rows
        for index, rows in by_index.items()
    }
    return {rows[0].identity.uuid: index for index, rows in answering.items() if len(rows) == 1}
