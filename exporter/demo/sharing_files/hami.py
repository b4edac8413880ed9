"""The caches that HAMi's library libvgpu keeps about containers, in all its layouts."""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.demo.scenario.derive import make_uuid
from exporter.demo.sharing_files.writers import Files, MeteredContainer, percent
from exporter.model import ContainerFile

MAGIC, MAJOR, UNLIMITED = 19920718, 1, 100
DEVICES = 16


class _Shape(NamedTuple):
    """A layout, in bytes."""

    size: int  # of the file, without its last byte
    versions: tuple[int, ...]  # behind the magic number
    header: int  # offset of the count of devices, then names, limits and slots
    slot: int  # size of a slot
    used: tuple[int, int]  # memory: offset in a slot, size per device
    util: tuple[int, int] | None  # load: offset in a slot, size per device
    status: int  # offset in a slot


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
# Offset from the status, in the latest layout.
_SEQLOCK = 8


class Slot(NamedTuple):
    """A process, with values by device."""

    pid: int  # on the host
    memory: tuple[int, ...]  # bytes
    percent: tuple[int, ...]
    measured: tuple[bool, ...]  # the load was measured
    busy: bool = False  # the slot is being written


def cache(metered: MeteredContainer) -> Files:
    """Return the cache of a running container.

    Devices are in the order of the container's driver, limits in the order of its shares.
    """
    uuids = [use.device for use in metered.uses()]
    slots = [
        Slot(
            pid=state.pid,
            memory=tuple(state.memory if uuid == state.running.process.device else 0 for uuid in uuids),
            percent=tuple(state.sm if uuid == state.running.process.device else 0 for uuid in uuids),
            measured=(True,) * len(uuids),
        )
        for state in metered.processes
        if state.running.process.device in uuids
    ]
    memory = [share.memory for share in metered.shares]
    cores = next((share.cores for share in metered.shares), 0) or UNLIMITED
    pod, name, claims = metered.pod.uid, metered.container.name, metered.container.claims
    folder = _folder(pod, name, claims[0].uid if claims else "")
    content = image(metered.meter.layout or LATEST, uuids, memory, cores, slots)
    return {f"{folder}/{make_uuid(pod, name, 'cache')}.cache": content}


def recorded_caches(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded caches of containers and claims."""
    return {
        f"{_folder(file.pod_uid, file.container, file.claim_uid)}/kept.cache": _recorded_cache(file)
        for file in files
    }


def _folder(pod_uid: str, container: str, claim_uid: str) -> str:
    # HAMi's DRA driver keeps caches by claim.
    return f"{ROOT}/claims/{claim_uid}" if claim_uid else f"{ROOT}/containers/{pod_uid}_{container}"


def _recorded_cache(file: ContainerFile) -> bytes:
    """Return a cache; the first process has all the memory, and none has more than a whole device."""
    uses = file.devices
    if not uses:
        return b""
    busy = any(use.memory_used is None for use in uses)
    measured = any(use.compute_used is not None for use in uses)
    # The oldest layout has no load.
    layout = LATEST if measured or busy else UNMEASURED
    limit = percent(next((use.compute_limit for use in uses if use.compute_limit is not None), None))
    cores = limit or (UNLIMITED if measured else 0)
    memory = [use.memory_limit or 0 for use in uses]
    return image(layout, [use.device for use in uses], memory, cores, list(_recorded_slots(file, busy)))


def _recorded_slots(file: ContainerFile, busy: bool) -> Iterator[Slot]:
    loads = [percent(use.compute_used) for use in file.devices]
    processes = range(1, 2 + max(loads) // 100)
    # If the pids are not known, the last process has none.
    for place, pid in enumerate((*processes, 0) if file.pids is None else file.pids):
        yield Slot(
            pid=pid,
            memory=tuple(0 if place else use.memory_used or 0 for use in file.devices),
            percent=tuple(max(0, min(100, load - place * 100)) for load in loads),
            measured=tuple(use.compute_used is not None for use in file.devices),
            busy=busy,
        )


def image(
    layout: str, uuids: Sequence[str], memory: Sequence[int], cores: int, slots: Sequence[Slot]
) -> bytes:
    """Return a cache; ``memory`` are the limits of the devices in bytes, ``cores`` the limit of each."""
    shape = _SHAPES[layout]
    content = bytearray(shape.size + 1)
    struct.pack_into(f"<i{len(shape.versions)}I", content, 0, MAGIC, *shape.versions)
    struct.pack_into("<Q", content, shape.header, len(uuids))
    for place, uuid in enumerate(uuids):
        struct.pack_into("96s", content, shape.header + _NAMES + 96 * place, uuid.encode())
    struct.pack_into(f"<{len(memory)}Q", content, shape.header + _LIMITS, *memory)
    struct.pack_into(f"<{DEVICES}Q", content, shape.header + _CORES, *[cores] * DEVICES)
    begin = shape.header + _SLOTS
    for place, slot in enumerate(slots):
        content[begin + place * shape.slot : begin + (place + 1) * shape.slot] = _slot(slot, place, shape)
    # Number of slots, utilization switch, recent kernels and priority.
    struct.pack_into("<4i", content, begin + _SLOT_COUNT * shape.slot, len(slots), 1, 2, 1)
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
        for index, (memory, load, measured) in enumerate(
            zip(slot.memory, slot.percent, slot.measured, strict=True)
        ):
            # The watcher's own reading of the memory is right before its reading of the load.
            struct.pack_into("<Q", content, begin - (DEVICES - index) * 8, memory if measured else 0)
            struct.pack_into("<Q", content, begin + index * size + _SM, load)
    return bytes(content)
