"""The stub of the driver's library: compiling it, and the file by which each program's copy is controlled."""

import mmap
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.processes import MissingError

SONAME = "libnvidia-ml.so.1"
STUB = Path(__file__).parents[1] / "stub"
# As in stub/nvml.h, of which the file below is a `struct Control`.
_GPUS, _PARTS = 16, 10
_COUNTS, _SETTINGS = struct.Struct("3Q"), struct.Struct("2i2I")
_PIDS = struct.Struct(f"{_GPUS * _PARTS}I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A node of GPUs, each whole or with time slices or MIG devices, and a process on each of these parts."""

    name: str
    gpus: int
    parts: int  # of each GPU
    mig: bool

    def uuid(self, gpu: int, part: int = _PARTS) -> str:
        """Return the UUID of a GPU in the stub, or of a MIG device of it."""
        kind = "GPU" if part == _PARTS else "MIG"
        return f"{kind}-00000000-0000-4000-8000-{gpu:06d}{part:06d}"


WHOLE = Layout(name="8 GPUs held whole", gpus=8, parts=1, mig=False)
MIG = Layout(name="8 GPUs x 7 MIG devices", gpus=8, parts=7, mig=True)
SLICES = Layout(name="16 GPUs x 10 time slices", gpus=16, parts=10, mig=False)
SMALLEST = Layout(name="1 GPU x 2 MIG devices", gpus=1, parts=2, mig=True)


class Counts(NamedTuple):
    """What a program has asked the stub for so far."""

    calls: int  # without waits
    fields: int  # field values in these calls
    cycles: int  # readings of the first GPU's memory


class Control:
    """The file that a program's copy of the stub and the benchmark share."""

    def __init__(self, path: Path, layout: Layout, pids: Sequence[Sequence[int]]) -> None:
        self.path = path
        flat = [0] * (_GPUS * _PARTS)
        for gpu, of_gpu in enumerate(pids):
            flat[gpu * _PARTS : gpu * _PARTS + len(of_gpu)] = of_gpu
        settings = _SETTINGS.pack(0, layout.mig, layout.gpus, layout.parts)
        path.write_bytes(bytes(_COUNTS.size) + settings + _PIDS.pack(*flat))
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
        """Set how long each call and each field value takes."""
        struct.pack_into("i", self._map, _COUNTS.size, microseconds)


def compile_driver(folder: Path) -> None:
    """Compile the stub under the name by which programs load the driver's library; raise MissingError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise MissingError("no C compiler on PATH: install gcc, which compiles benchmarks/stub")
    sources = sorted(map(str, STUB.glob("*.c")))
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / SONAME), *sources]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - ours
    if done.returncode != 0:
        raise MissingError(f"benchmarks/stub does not compile: {done.stderr.strip()}")
