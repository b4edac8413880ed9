"""Jobs of a batch system such as Slurm by GPU, from the files of dcgm-exporter's HPC job mapping.

A file is named after a GPU index (``0``), or a GPU index and a MIG GPU instance (``2.1``), and has one job id
on each line. Prolog and epilog scripts create and remove the files; other names are ignored.
"""

import os
import re
import stat
from itertools import islice
from pathlib import Path

from exporter.model import FileProblem, JobFiles

DEVICE = re.compile(r"(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,3}))?")
MOST_NAMES = 4096
MOST_BYTES = 65536
MOST_JOBS = 100
LONGEST_ID = 256
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class JobFilesError(Exception):
    """The directory cannot be listed; the message has its path and the cause."""

    reason = "directory"


class _UnusableError(Exception):
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
    problems: list[FileProblem] = []
    for match in matches:
        name, (gpu, instance) = match[0], match.groups()
        try:
            jobs[int(gpu), None if instance is None else int(instance)] = _jobs(directory / name)
        except FileNotFoundError:
            continue
        except (OSError, _UnusableError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(
                FileProblem(reason="file", about=str(directory / name), text=text or "unreadable")
            )
    return JobFiles(jobs=jobs, problems=tuple(problems))


def _jobs(path: Path) -> tuple[str, ...]:
    """Return the distinct ids of a file in its order."""
    lines = _content(path).decode(errors="replace").split("\n")
    ids = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if len(ids) > MOST_JOBS:
        raise _UnusableError(f"has more than {MOST_JOBS} jobs")
    if any(len(job) > LONGEST_ID or not job.isprintable() for job in ids):
        raise _UnusableError("has lines that are not job ids")
    return ids


def _content(path: Path) -> bytes:
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _UnusableError("is not a regular file")
        content = os.pread(descriptor, MOST_BYTES + 1, 0)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise _UnusableError(f"is larger than {MOST_BYTES} bytes")
    return content
