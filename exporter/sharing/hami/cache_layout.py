"""Where things stand in the caches that HAMi's library libvgpu maps into its processes.

There have been five layouts in releases, all of them little-endian, for 64 bits, and one more between two of
them. Offsets are in bytes; those of a slot count from the beginning of the slot. The size of the file says
which layout it has, and where several have the same, the minor version does, or else where its slots say that
they are in use. A running container keeps the layout that it began with, whatever is installed.
"""

from dataclasses import dataclass, replace

MAGIC = 19920718
MAJOR = 1
DEVICES = 16
SLOTS = 1024
UUID_SIZE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One layout. ``minor`` and ``seqlock`` are None where there is none, ``sm`` where no use is kept.

    ``total``, ``seen`` and ``sm`` are those of the first device, ``used_size`` is the way to the next one's
    ``total``. ``seen`` is the memory that the library's watcher saw, in 8 bytes for each device. ``at_once``:
    it is written together with ``sm``; others write it, and only then ask for ``sm``. ``strays``: a process
    may count its memory in a slot that it had before, and that is nobody's now (HAMi-core's issue 191).
    """

    name: str
    file_size: int
    minor: int | None
    device_count: int
    uuids: int
    memory_limits: int
    compute_limits: int
    slots: int
    slot_size: int
    slot_count: int
    total: int
    used_size: int
    seen: int
    sm: int | None
    status: int
    seqlock: int | None
    at_once: bool = False
    strays: bool = False


_OLDEST = Layout(
    name="0a",
    file_size=804681,
    minor=None,
    device_count=48,
    uuids=56,
    memory_limits=1592,
    compute_limits=1720,
    slots=1848,
    slot_size=784,
    slot_count=804664,
    total=40,
    used_size=40,
    seen=648,
    sm=None,
    status=776,
    seqlock=None,
)
_UNVERSIONED = replace(
    _OLDEST, name="v0", file_size=1197897, slot_size=1168, slot_count=1197880, sm=792, status=1160
)
_FIRST = Layout(
    name="1.1",
    file_size=2008953,
    minor=1,
    device_count=56,
    uuids=64,
    memory_limits=1600,
    compute_limits=1728,
    slots=1856,
    slot_size=1960,
    slot_count=2008896,
    total=40,
    used_size=64,
    seen=1032,
    sm=1176,
    status=1928,
    seqlock=None,
)
# A semaphore was put before the devices and a counter before the use, for one release and in the name of 1.1.
_SHIFTED = replace(
    _FIRST,
    name="1.1-shifted",
    file_size=2008985,
    device_count=88,
    uuids=96,
    memory_limits=1632,
    compute_limits=1760,
    slots=1888,
    slot_count=2008928,
    total=48,
    seen=1040,
    sm=1184,
    status=1936,
    seqlock=8,
    at_once=True,
    strays=True,
)
# No release has it, but whoever built the library in early 2026: the slots of the one under the head of 1.1.
_BETWEEN = replace(
    _FIRST, name="1.1-between", total=48, seen=1040, sm=1184, status=1936, seqlock=8, strays=True
)
_SECOND = replace(_FIRST, name="1.2", minor=2, seqlock=1936, at_once=True)

LAYOUTS = (_OLDEST, _UNVERSIONED, _FIRST, _SHIFTED, _BETWEEN, _SECOND)


def layouts_of(file_size: int) -> tuple[Layout, ...]:
    """Return the layouts that a file of this many bytes can have."""
    return tuple(layout for layout in LAYOUTS if layout.file_size == file_size)
