"""Finding the shared libraries that programs and modules need."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from assemble.command import output_of

# No file lists these as needed: the C library loads the first by name when a thread ends, and the others are
# older names of parts of the C library, to which NVIDIA links the driver's library.
LOADED_BY_NAME = ("libgcc_s.so.1", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")


def needed_by(files: Iterable[Path]) -> list[Path]:
    """Return the libraries that the ELF files need, with the loader; exit if one is missing."""
    elf = [str(path) for path in sorted(files) if _is_elf(path)]
    return sorted({*_paths(output_of("ldd", *elf)), *map(_cached, LOADED_BY_NAME)})


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _paths(lines: str) -> Iterator[Path]:
    """Parse lines of ldd such as ``libm.so.6 => /lib/libm.so.6 (0x…)`` and ``/lib64/ld-linux.so.2 (0x…)``."""
    for line in lines.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest == "not found":
            sys.exit(f"error: the base lacks {name}, which the image needs")
        path, _, address = (rest or name).partition(" (")
        if address and path.startswith("/"):
            yield Path(path)


def _cached(name: str) -> Path:
    cache = output_of("/sbin/ldconfig", "-p")
    paths = [line.partition(" => ")[2] for line in cache.splitlines() if line.split()[:1] == [name]]
    return Path(paths[0]) if paths else sys.exit(f"error: the base lacks {name}, which the image needs")
