"""Layouts of the caches of HAMi's library libvgpu.

Five layouts were released, and one more was in between; all are 64-bit little-endian. Offsets are in bytes,
those in a slot from its beginning. The file's size identifies the layout, or else the minor version, or else
the position of the slots in use. A running container keeps the layout of the library that it started with.

Source: HAMi-core, ``src/multiprocess/multiprocess_memory_limit.h``.
"""

from dataclasses import dataclass, replace

MAGIC = 19920718
MAJOR = 1
DEVICES = 16
SLOTS = 1024
UUID_SIZE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One layout."""

    name: str
    file_size: int
    minor: int | None  # version; None if the file has none
    device_count: int
    uuids: int
    memory_limits: int
    compute_limits: int
    slots: int
    slot_size: int
    slot_count: int
    # In a slot:
    total: int  # memory that the process counts on the first device
    used_size: int  # distance to the next device's ``total``
    seen: int  # memory that the library's watcher saw, 8 bytes for each device
    sm: int | None  # percent of the first device; None if the layout has none
    status: int
    seqlock: int | None  # None if the layout has none
    at_once: bool = False  # ``seen`` is written together with ``sm``, else before ``sm`` is measured
    # A process may count memory in a slot that it had before and that is now free (HAMi-core issue 191).
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
# One release under version 1.1 has a semaphore before the devices and a seqlock before the use.
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
# Not released; builds of early 2026: the header of 1.1 with the slots of the shifted layout.
_BETWEEN = replace(
    _FIRST, name="1.1-between", total=48, seen=1040, sm=1184, status=1936, seqlock=8, strays=True
)
_SECOND = replace(_FIRST, name="1.2", minor=2, seqlock=1936, at_once=True)

LAYOUTS = (_OLDEST, _UNVERSIONED, _FIRST, _SHIFTED, _BETWEEN, _SECOND)


def layouts_of(file_size: int) -> tuple[Layout, ...]:
    """Return the layouts with this file size in bytes."""
    return tuple(layout for layout in LAYOUTS if layout.file_size == file_size)
