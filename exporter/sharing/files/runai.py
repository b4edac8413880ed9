"""What run:ai writes down of each pod's use: ``proc/pod/<uid>/metrics/gpu/<index>/`` with a file a number.

``utilization.sm`` is a percentage of the GPU and ``memory.allocated`` bytes, both as digits. The files are
of pods, not of containers; a number that is just being written has no digits yet.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from exporter.model import ContainerFile, DeviceUse, FileProblem, SystemFiles
from exporter.sharing.files.reading import UnusableError, names, opened, problem
from exporter.sharing.system import Roots

PODS = Path("proc/pod")
METRICS = Path("metrics/gpu")
COMPUTE, MEMORY = "utilization.sm", "memory.allocated"
# More than a node runs, and more than it has.
MOST_PODS, MOST_GPUS = 4096, 64
LONGEST = 32
ALL = 100

_POD = re.compile(r"[0-9a-f-]{32,36}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_NUMBER = re.compile(r"[0-9]{1,18}")


def read_runai(roots: Roots) -> SystemFiles:
    """Read the use of every pod; ``device`` is the index of a GPU in digits. Does not raise."""
    root, problems = roots.run, list[FileProblem]()
    found = [
        ContainerFile(pod_uid=uid, devices=devices)
        for uid in _names(root / PODS, MOST_PODS, problems)
        if _POD.fullmatch(uid) and (devices := tuple(_devices(root / PODS / uid / METRICS, problems)))
    ]
    return SystemFiles(containers=tuple(found), problems=tuple(problems))


def _devices(folder: Path, problems: list[FileProblem]) -> Iterator[DeviceUse]:
    for index in _names(folder, MOST_GPUS, problems):
        if _INDEX.fullmatch(index):
            percent = _number(folder / index / COMPUTE, ALL, problems)
            memory = _number(folder / index / MEMORY, None, problems)
            compute = None if percent is None else percent / ALL
            yield DeviceUse(device=index, memory_used=memory, compute_used=compute)


def _names(folder: Path, most: int, problems: list[FileProblem]) -> list[str]:
    try:
        return names(folder, most)
    except OSError as error:
        problems.append(problem(folder, error))
        return []


def _number(path: Path, most: int | None, problems: list[FileProblem]) -> int | None:
    try:
        text = _text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnusableError) as error:
        problems.append(problem(path, error))
        return None
    if text and not (_NUMBER.fullmatch(text) and (most is None or int(text) <= most)):
        problems.append(problem(path, f"{text!r} is no number that it can have"))
        return None
    return int(text) if text else None


def _text(path: Path) -> str:
    with opened(path) as (size, pread):
        if size > LONGEST:
            raise UnusableError(f"{size} bytes are more than a number has")
        return pread(size, 0).decode("ascii", "backslashreplace").strip()
