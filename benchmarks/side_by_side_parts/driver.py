"""The stub of the driver's library: compiling it, and the file by which each program's copy is steered."""

import mmap
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

SONAME = "libnvidia-ml.so.1"
STUB = Path(__file__).parents[1] / "stub"
_GPUS, _PARTS = 16, 10
_COUNTS, _KNOBS = struct.Struct("4Q"), struct.Struct("4i2I")
_PIDS = struct.Struct(f"{_GPUS * _PARTS}I")
_DELAY, _LOST, _HANGING = (_COUNTS.size + 4 * place for place in range(3))


class DriverError(Exception):
    """The stub cannot be compiled; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A node: so many GPUs, each with so many parts, a process on each; slices of time or MIG devices."""

    name: str
    gpus: int
    parts: int
    mig: bool

    def uuid(self, gpu: int, part: int = _PARTS) -> str:
        """Return what the stub calls a GPU, or a MIG device of it."""
        kind = "GPU" if part == _PARTS else "MIG"
        return f"{kind}-00000000-0000-4000-8000-{gpu:06d}{part:06d}"

    def held(self, gpu: int, part: int) -> int:
        """Return the bytes that a process has, also of the one of which the driver does not tell."""
        return (part + 1) * ((1 << 30) if self.mig else (256 << 20)) + (gpu << 20)

    @property
    def untold(self) -> tuple[int, int] | None:
        """The GPU and the place of the process whose memory the driver does not tell."""
        return None if self.mig else (1, 0)

    def used(self, gpu: int) -> int:
        """Return the bytes that a GPU says are used, by processes and by itself."""
        return (300 << 20) + sum(self.held(gpu, part) for part in range(self.parts))


class Counts(NamedTuple):
    """Calls of a program so far, but for those that wait; field values in them, waits, and its cycles."""

    calls: int
    fields: int
    waits: int
    cycles: int


class Control:
    """The file that a program's copy of the stub and the benchmark share."""

    def __init__(self, path: Path, layout: Layout, pids: Sequence[Sequence[int]]) -> None:
        self.path = path
        flat = [pids[gpu][part] if gpu < layout.gpus and part < layout.parts else 0 for gpu, part in _PLACES]
        knobs = _KNOBS.pack(0, -1, -1, layout.mig, layout.gpus, layout.parts)
        path.write_bytes(bytes(_COUNTS.size) + knobs + _PIDS.pack(*flat))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()
        self._file.close()

    def counts(self) -> Counts:
        """Read the counts."""
        return Counts(*_COUNTS.unpack_from(self._map))

    def slow(self, microseconds: int) -> None:
        """Make each call and each field value take so long."""
        struct.pack_into("i", self._map, _DELAY, microseconds)

    def lose(self, gpu: int | None) -> None:
        """Let a GPU fall off the bus; with None it is back."""
        struct.pack_into("i", self._map, _LOST, -1 if gpu is None else gpu)

    def hang(self, gpu: int | None) -> None:
        """Let no call about a GPU return; with None they all do."""
        struct.pack_into("i", self._map, _HANGING, -1 if gpu is None else gpu)


_PLACES = [(gpu, part) for gpu in range(_GPUS) for part in range(_PARTS)]


def compile_driver(folder: Path) -> None:
    """Compile the stub under the name by which programs load the driver's library; raise DriverError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise DriverError("no C compiler on PATH: install gcc, which compiles benchmarks/stub")
    sources = sorted(map(str, STUB.glob("*.c")))
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / SONAME), *sources]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - ours
    if done.returncode != 0:
        raise DriverError(f"benchmarks/stub does not compile: {done.stderr.strip()}")
