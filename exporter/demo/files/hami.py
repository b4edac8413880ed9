"""The caches that HAMi's library libvgpu keeps of containers, in every layout that it has had."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.demo.files.writers import Metered
from exporter.demo.scenario.derive import make_uuid

MAGIC, MAJOR, UNLIMITED = 19920718, 1, 100
DEVICES = 16


class _Shape(NamedTuple):
    """Offsets from the beginning, and in a slot, in bytes; ``versions`` is what follows the magic number."""

    size: int
    versions: tuple[int, ...]
    header: int
    slot: int
    used: tuple[int, int]
    util: tuple[int, int] | None
    status: int


# The header is the count of devices, with names and limits right behind it, and then the slots.
_SHAPES = {
    "0a": _Shape(804680, (), 48, 784, (8, 40), None, 776),
    "v0": _Shape(1197896, (), 48, 1168, (8, 40), (776, 24), 1160),
    "1.1": _Shape(2008952, (MAJOR, 1), 56, 1960, (8, 64), (1160, 48), 1928),
    "1.1-shifted": _Shape(2008984, (MAJOR, 1), 88, 1960, (16, 64), (1168, 48), 1936),
    "1.1-between": _Shape(2008952, (MAJOR, 1), 56, 1960, (16, 64), (1168, 48), 1936),
    "1.2": _Shape(2008952, (MAJOR, 2), 56, 1960, (8, 64), (1160, 48), 1928),
}
LATEST, UNMEASURED = "1.2", "0a"
ROOT = "usr/local/vgpu"
_NAMES, _LIMITS, _CORES, _SLOTS = 8, 1544, 1672, 1800
_SLOT_COUNT = 1024
_TOTAL, _SM = 32, 16
# Behind the status, in the latest layout.
_SEQLOCK = 8


class Slot(NamedTuple):
    """A process: its pid on the host, and bytes and percent of each device.

    ``seen`` is of which devices its load was measured. ``busy``: it is being written.
    """

    pid: int
    memory: tuple[int, ...]
    percent: tuple[int, ...]
    seen: tuple[bool, ...]
    busy: bool = False


def cache(metered: Metered) -> Mapping[str, str | bytes]:
    """Return the cache of a container as its processes would.

    Devices stand in the order of the container's driver, limits in the one in which they were given.
    """
    held = {share.device for share in metered.shares}
    uuids = [state.gpu.uuid for state in metered.gpus if state.gpu.uuid in held]
    memory = [share.memory for share in metered.shares]
    cores = next((share.cores for share in metered.shares), 0) or UNLIMITED
    own = [state for state in metered.processes if state.running.process.device in uuids]
    slots = [
        Slot(
            pid=state.pid,
            memory=tuple(state.memory if uuid == state.running.process.device else 0 for uuid in uuids),
            percent=tuple(state.sm if uuid == state.running.process.device else 0 for uuid in uuids),
            seen=(True,) * len(uuids),
        )
        for state in own
    ]
    content = image(metered.meter.layout or LATEST, uuids, memory, cores, slots)
    pod, name, claims = metered.pod.uid, metered.container.name, metered.container.claims
    # HAMi's DRA driver keeps them by claim.
    folder = f"claims/{claims[0].uid}" if claims else f"containers/{pod}_{name}"
    return {f"{ROOT}/{folder}/{make_uuid(pod, name, 'cache')}.cache": content}


def image(
    layout: str, uuids: Sequence[str], memory: Sequence[int], cores: int, slots: Iterable[Slot]
) -> bytes:
    """Return a whole cache; ``memory`` are the limits of the devices in bytes, ``cores`` that of each."""
    shape = _SHAPES[layout]
    content = bytearray(shape.size + 1)
    struct.pack_into(f"<i{len(shape.versions)}I", content, 0, MAGIC, *shape.versions)
    struct.pack_into("<Q", content, shape.header, len(uuids))
    for place, uuid in enumerate(uuids):
        struct.pack_into("96s", content, shape.header + _NAMES + 96 * place, uuid.encode())
    struct.pack_into(f"<{len(memory)}Q", content, shape.header + _LIMITS, *memory)
    struct.pack_into(f"<{DEVICES}Q", content, shape.header + _CORES, *[cores] * DEVICES)
    begin = shape.header + _SLOTS
    count = 0
    for place, slot in enumerate(slots):
        count += 1
        content[begin + place * shape.slot : begin + (place + 1) * shape.slot] = _slot(slot, place, shape)
    # In use, switched on, two kernels to go, and of the usual priority.
    struct.pack_into("<4i", content, begin + _SLOT_COUNT * shape.slot, count, 1, 2, 1)
    return bytes(content)


def _slot(slot: Slot, place: int, shape: _Shape) -> bytes:
    content = bytearray(shape.slot)
    struct.pack_into("<ii", content, 0, place + 1, slot.pid)
    struct.pack_into("<i", content, shape.status, 1)
    if slot.busy:
        struct.pack_into("<Q", content, shape.status + _SEQLOCK, 1)
    begin, size = shape.used
    for index, memory in enumerate(slot.memory):
        struct.pack_into("<Q", content, begin + index * size + _TOTAL, memory)
    if shape.util is not None:
        begin, size = shape.util
        for index, (memory, percent, seen) in enumerate(
            zip(slot.memory, slot.percent, slot.seen, strict=True)
        ):
            # What the library's watcher saw of the memory, right before what it saw of the load.
            struct.pack_into("<Q", content, begin - (DEVICES - index) * 8, memory if seen else 0)
            struct.pack_into("<Q", content, begin + index * size + _SM, percent)
    return bytes(content)
