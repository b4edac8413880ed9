"""Decoder of the caches of HAMi's library libvgpu: shared memory of a container's processes.

Five layouts were released, and one more was in between. The file's size identifies the layout, or else the
minor version, or else the position of the slots in use. A running container keeps the layout of the library
that it started with. Source: HAMi-core, ``src/multiprocess/multiprocess_memory_limit.h``.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from exporter.model import DeviceUse
from exporter.sharing.base.reading import Pread, UnusableError

MAGIC = 19920718
MAJOR = 1
DEVICES = 16
SLOTS = 1024
UUID_SIZE = 96
MOST_BYTES = 1 << 50
# A writer takes less than a microsecond, unless it was killed halfway.
TRIES = 4

_VERSION = struct.Struct("<iII")
_PROCESS = struct.Struct("<ii")
_COUNT = struct.Struct("<Q")
_SIGNED = struct.Struct("<i")
_EACH = struct.Struct(f"<{DEVICES}Q")
_UUID = re.compile(rb"(GPU|MIG)-[0-9A-Za-z/-]{1,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """One layout of a cache: 64-bit little-endian, offsets in bytes, those in a slot from its beginning."""

    name: str
    file_size: int
    minor: int | None = None  # version; None if the file has none
    device_count: int
    slot_size: int
    # In a slot:
    total: int  # memory that the process counts on the first device
    used_size: int  # distance to the next device's ``total``
    seen: int  # memory that the library's watcher saw, 8 bytes for each device
    sm: int | None = None  # percent of the first device; None if the layout has none
    status: int
    seqlock: int | None = None  # None if the layout has none
    at_once: bool = False  # ``seen`` is written together with ``sm``, else before ``sm`` is measured
    # A process may count memory in a slot that it had before and that is now free (HAMi-core issue 191).
    strays: bool = False

    @property
    def uuids(self) -> int:
        """Offset of the devices' uuids."""
        return self.device_count + _COUNT.size

    @property
    def memory_limits(self) -> int:
        """Offset of the devices' limits in bytes."""
        return self.uuids + DEVICES * UUID_SIZE

    @property
    def compute_limits(self) -> int:
        """Offset of the devices' limits in percent."""
        return self.memory_limits + _EACH.size

    @property
    def slots(self) -> int:
        """Offset of the processes' slots."""
        return self.compute_limits + _EACH.size

    @property
    def slot_count(self) -> int:
        """Offset of the number of slots in use."""
        return self.slots + SLOTS * self.slot_size


_OLDEST = CacheLayout(
    name="0a",
    file_size=804681,
    device_count=48,
    slot_size=784,
    total=40,
    used_size=40,
    seen=648,
    status=776,
)
_UNVERSIONED = replace(_OLDEST, name="v0", file_size=1197897, slot_size=1168, sm=792, status=1160)
_FIRST = CacheLayout(
    name="1.1",
    file_size=2008953,
    minor=1,
    device_count=56,
    slot_size=1960,
    total=40,
    used_size=64,
    seen=1032,
    sm=1176,
    status=1928,
)
# Not released; builds of early 2026: the header of 1.1 with a seqlock before the use.
_BETWEEN = replace(
    _FIRST, name="1.1-between", total=48, seen=1040, sm=1184, status=1936, seqlock=8, strays=True
)
# One release under version 1.1 has the same slots, and a semaphore before the devices.
_SHIFTED = replace(_BETWEEN, name="1.1-shifted", file_size=2008985, device_count=88, at_once=True)
_SECOND = replace(_FIRST, name="1.2", minor=2, seqlock=1936, at_once=True)

LAYOUTS = (_OLDEST, _UNVERSIONED, _FIRST, _SHIFTED, _BETWEEN, _SECOND)


@dataclass(frozen=True, slots=True)
class CacheContent:
    """The content of one cache."""

    devices: tuple[DeviceUse, ...] = ()
    pids: tuple[int, ...] | None = None  # on the host; None if unknown
    problems: tuple[str, ...] = ()


def decode(pread: Pread, size: int) -> CacheContent:
    """Return the content of a cache of ``size`` bytes; it is empty before its first use.

    Raises UnusableError if it has no known layout, OSError if it cannot be read.
    """
    if size == 0:
        return CacheContent()
    fitting = [layout for layout in LAYOUTS if layout.file_size == size]
    if not fitting:
        raise UnusableError(f"has {size} bytes, like no known layout")
    magic, major, minor = _VERSION.unpack(pread(_VERSION.size, 0))
    if magic == 0:
        return CacheContent()
    if magic != MAGIC:
        raise UnusableError(f"begins with {magic}, not with {MAGIC}")
    known = [layout for layout in fitting if layout.minor is None or (major, layout.minor) == (MAJOR, minor)]
    if not known:
        raise UnusableError(f"has version {major}.{minor}, which is not known")
    caches = (_Cache(pread, layout) for layout in known)
    first = next(caches)
    return next((cache for cache in chain([first], caches) if cache.live), first).content()


class _Cache:
    """A cache of a known layout."""

    def __init__(self, pread: Pread, layout: CacheLayout) -> None:
        self._pread, self._layout = pread, layout
        self._header = pread(layout.slots, 0)
        self._count = min(_COUNT.unpack_from(self._header, layout.device_count)[0], DEVICES)
        self._problems: list[str] = []
        # Slots of live processes with their offsets.
        self.live = list(self._slots()) if self._count else []

    def content(self) -> CacheContent:
        """Return limits, use and pids."""
        live = [self._settled(*slot) for slot in self.live]
        settled = all(self._is_settled(slot) for slot in live)
        pids = [_PROCESS.unpack_from(slot)[1] for slot in live]
        memory_limits = self._limits(self._layout.memory_limits)
        compute_limits = self._limits(self._layout.compute_limits)
        watched = any(0 < percent <= 100 for percent in self._values(self._layout.compute_limits))
        devices = [
            DeviceUse(
                device=uuid,
                memory_limit=self._bytes(memory_limits[position], f"the limit of {uuid}") or None,
                compute_limit=compute_limits[position] / 100 if 0 < compute_limits[position] < 100 else None,
                memory_used=self._memory(live, position, uuid) if settled else None,
                compute_used=self._compute(live, uuid) if watched and not position else None,
                # Up to HAMi 2.9 the library's watcher resets only the first device before it measures:
                # figures of other devices remain when the process is idle. Later releases have the same
                # layout.
                memory_only=position > 0,
            )
            for position, uuid in self._uuids()
        ]
        known = settled and all(pid > 0 for pid in pids)
        return CacheContent(tuple(devices), tuple(pids) if known else None, tuple(self._problems))

    def _slots(self) -> Iterator[tuple[bytes, int]]:
        """Yield the slots of live processes with their offsets."""
        layout = self._layout
        size = layout.slot_size
        count = max(0, min(_SIGNED.unpack(self._pread(_SIGNED.size, layout.slot_count))[0], SLOTS))
        block = self._pread(count * size, layout.slots)
        statuses = struct.iter_unpack(f"<{layout.status}xi{size - layout.status - _SIGNED.size}x", block)
        for position, (status,) in enumerate(statuses):
            if status:
                yield block[position * size : (position + 1) * size], layout.slots + position * size

    def _settled(self, slot: bytes, offset: int) -> bytes:
        """Return the slot, read again up to TRIES times while it is being written."""
        tries = TRIES
        while tries and not self._is_settled(slot):
            slot, tries = self._pread(self._layout.slot_size, offset), tries - 1
        return slot

    def _is_settled(self, slot: bytes) -> bool:
        seqlock = self._layout.seqlock
        return seqlock is None or _COUNT.unpack_from(slot, seqlock)[0] % 2 == 0

    def _uuids(self) -> Iterator[tuple[int, str]]:
        """Yield the positions and uuids of devices; a position without a uuid is not in use yet."""
        for position in range(self._count):
            begin = self._layout.uuids + position * UUID_SIZE
            uuid, _, _ = self._header[begin : begin + UUID_SIZE].partition(b"\0")
            if uuid and not _UUID.fullmatch(uuid):
                self._problems.append(f"names a device {uuid!r}")
            elif uuid:
                yield position, uuid.decode()

    def _values(self, offset: int) -> Sequence[int]:
        values: Sequence[int] = _EACH.unpack_from(self._header, offset)
        return values[: self._count]

    def _limits(self, offset: int) -> Sequence[int]:
        """Return the limits by position, all 0 if they differ.

        Limits are in the order of the allocation, uuids in that of the container: different limits cannot be
        assigned.
        """
        values = self._values(offset)
        return values if len(set(values)) <= 1 else [0] * len(values)

    def _memory(self, live: Sequence[bytes], position: int, uuid: str) -> int | None:
        """Return the processes' sum, None if the driver sees memory of a process that has counted none.

        Layouts without a seqlock are not checked: a slot still has what was seen of its previous process.
        """
        checked = self._layout.seqlock is not None
        if checked and any(self._seen(slot, position) and not self._total(slot, position) for slot in live):
            return None
        return self._bytes(sum(self._total(slot, position) for slot in live), f"the use of {uuid}")

    def _bytes(self, value: int, what: str) -> int | None:
        if value <= MOST_BYTES:
            return value
        self._problems.append(f"{what} is more than the memory of any device")
        return None

    def _compute(self, live: Sequence[bytes], uuid: str) -> float | None:
        """Return the processes' share of the first device, None if one of them was not measured."""
        layout = self._layout
        if layout.sm is None:
            return None
        used: list[int] = [_COUNT.unpack_from(slot, layout.sm)[0] for slot in live]
        if any(percent > 100 for percent in used):
            self._problems.append(f"a process uses more than 100 % of {uuid}")
            return None
        known = all(percent or self._is_idle(slot) for percent, slot in zip(used, live, strict=True))
        return sum(used) / 100 if known else None

    def _is_idle(self, slot: bytes) -> bool:
        """Return True if it is certain that a process with a share of 0 is idle.

        The library's watcher measures compute and memory by the host pid, and resets both before, many times
        a second. A process without memory on the device is idle there.
        """
        if self._layout.at_once and self._seen(slot, 0):
            measured: bool = _PROCESS.unpack_from(slot)[1] > 0
            return measured
        return not self._layout.strays and not self._total(slot, 0)

    def _total(self, slot: bytes, position: int) -> int:
        offset = self._layout.total + position * self._layout.used_size
        value: int = _COUNT.unpack_from(slot, offset)[0]
        return value

    def _seen(self, slot: bytes, position: int) -> int:
        value: int = _COUNT.unpack_from(slot, self._layout.seen + position * _COUNT.size)[0]
        return value
