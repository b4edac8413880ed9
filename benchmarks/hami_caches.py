#!/usr/bin/env python3
"""How long it takes to read the caches that HAMi keeps of a node's containers.

Run as ``python benchmarks/hami_caches.py [containers] [processes]``. It writes that many sparse caches with
that many processes in each, and prints the time of one round, beside that of reading every file whole; the
ratio is what travels between machines. Times are those of the best of many rounds.
"""

import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from timeit import repeat

from exporter.sharing.base.system import Roots
from exporter.sharing.hami.cache import read_hami
from exporter.sharing.hami.cache_layout import LAYOUTS, MAGIC

_ROUNDS = 15
_LAYOUT = LAYOUTS[-1]
_UUID = b"GPU-03f69c50-207a-2038-9b45-23cac89cb67a"


def main(containers: int, processes: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(containers):
            _write(root / f"containers/{number:08d}-aaaa_main/0.cache", processes)
        roots = Roots(**dict.fromkeys(Roots.__dataclass_fields__, root))
        found = read_hami(roots)
        if len(found.containers) != containers or found.problems:
            sys.exit(f"not what was written: {found.problems}")
        ours = _best(lambda: read_hami(roots))
        whole = _best(lambda: [path.read_bytes() for path in root.glob("containers/*/*.cache")])
    _report(f"{containers} caches, {processes} processes each", ours, containers)
    _report("every file read whole, not decoded", whole, containers)
    sys.stdout.write(f"ratio: {whole / ours:.0f}\n")


def _report(what: str, seconds: float, caches: int) -> None:
    sys.stdout.write(f"{what:<36}{seconds * 1e3:8.2f} ms, {seconds / caches * 1e6:.1f} us each\n")


def _best(work: Callable[[], object]) -> float:
    return min(repeat(work, number=1, repeat=_ROUNDS))


def _write(path: Path, processes: int) -> None:
    path.parent.mkdir(parents=True)
    parts = [
        (0, struct.pack("<iII", MAGIC, 1, 2)),
        (_LAYOUT.device_count, struct.pack("<Q", 1)),
        (_LAYOUT.uuids, _UUID),
        (_LAYOUT.memory_limits, struct.pack("<Q", 4 << 30)),
        (_LAYOUT.compute_limits, struct.pack("<16Q", *[30] * 16)),
        (_LAYOUT.slot_count, struct.pack("<i", processes)),
    ]
    for number in range(processes):
        slot = _LAYOUT.slots + number * _LAYOUT.slot_size
        parts.append((slot, struct.pack("<ii", number + 1, 4000 + number)))
        parts.append((slot + _LAYOUT.total, struct.pack("<Q", 1 << 30)))
        parts.append((slot + _LAYOUT.status, struct.pack("<i", 1)))
    with path.open("wb") as file:
        file.truncate(_LAYOUT.file_size)
        for offset, content in parts:
            file.seek(offset)
            file.write(content)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    main(*numbers, *(200, 2)[len(numbers) :])
