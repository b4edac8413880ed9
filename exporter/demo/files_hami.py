"""The caches that HAMi's library libvgpu keeps of containers, in every layout that it has had."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.demo.derive import make_uuid
from exporter.demo.metered import Metered

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
    "1.2": _Shape(2008952, (MAJOR, 2), 56, 1960, (8, 64), (1160, 48), 1928),
}
_LATEST = "1.2"
_NAMES, _LIMITS, _CORES, _SLOTS = 8, 1544, 1672, 1800
_SLOT_COUNT = 1024
_TOTAL, _SM = 32, 16


def cache(metered: Metered) -> Mapping[str, str | bytes]:
    """Write the cache of a container as its processes would.

    Devices stand in the order of the container's driver, limits in the one in which they were given.
    """
    shape = _SHAPES[metered.meter.layout or _LATEST]
    content = bytearray(shape.size + 1)
    struct.pack_into(f"<i{len(shape.versions)}I", content, 0, MAGIC, *shape.versions)
    held = {share.device for share in metered.shares}
    uuids = [state.gpu.uuid for state in metered.gpus if state.gpu.uuid in held]
    struct.pack_into("<Q", content, shape.header, len(uuids))
    for place, uuid in enumerate(uuids):
        struct.pack_into("96s", content, shape.header + _NAMES + 96 * place, uuid.encode())
    memory = [share.memory for share in metered.shares]
    cores = next((share.cores for share in metered.shares), 0) or UNLIMITED
    struct.pack_into(f"<{len(memory)}Q", content, shape.header + _LIMITS, *memory)
    struct.pack_into(f"<{DEVICES}Q", content, shape.header + _CORES, *[cores] * DEVICES)
    slots = list(_slots(metered, shape, uuids))
    begin = shape.header + _SLOTS
    for place, slot in enumerate(slots):
        content[begin + place * shape.slot : begin + (place + 1) * shape.slot] = slot
    # In use, switched on, two kernels to go, and of the usual priority.
    struct.pack_into("<4i", content, begin + _SLOT_COUNT * shape.slot, len(slots), 1, 2, 1)
    pod, name, claims = metered.pod.uid, metered.container.name, metered.container.claims
    # HAMi's DRA driver keeps them by claim.
    folder = f"claims/{claims[0].uid}" if claims else f"containers/{pod}_{name}"
    return {f"usr/local/vgpu/{folder}/{make_uuid(pod, name, 'cache')}.cache": bytes(content)}


def _slots(metered: Metered, shape: _Shape, uuids: list[str]) -> Iterator[bytes]:
    own = [state for state in metered.processes if state.running.process.device in uuids]
    for place, state in enumerate(own):
        slot = bytearray(shape.slot)
        struct.pack_into("<ii", slot, 0, place + 1, state.pid)
        struct.pack_into("<i", slot, shape.status, 1)
        index = uuids.index(state.running.process.device)
        begin, size = shape.used
        struct.pack_into("<Q", slot, begin + index * size + _TOTAL, state.memory)
        if shape.util is not None:
            begin, size = shape.util
            struct.pack_into("<Q", slot, begin + index * size + _SM, state.sm)
        yield bytes(slot)
