"""The files in which vgpu-manager's plugin writes the limits of each container: ``<uid>_<name>/config``.

A file is 8192 bytes: a head of 512, then 16 devices of 128, by their numbers on the node. A device begins
with a counter that is odd while it is written. Numbers are little-endian. Until summer 2026 files had neither
a number to know them by nor counters, were written once, and tell by their size how their devices lie.
"""

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from exporter.model import ContainerFile, DeviceUse, FileProblem, SystemFiles
from exporter.sharing.files.reading import Pread, UnusableError, gathered, of_containers, opened, problem
from exporter.sharing.system import Roots

NAME = "config/vgpu.config"
# Where the first releases had it.
OLD_NAME = "vgpu.config"
MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
MOST_BYTES = 1 << 50
DEVICES_BEGIN, DEVICES, DEVICE_SIZE = 512, 16, 128
REGION = DEVICES_BEGIN + DEVICES * DEVICE_SIZE
TRIES = 4

_HEAD = struct.Struct("<IIII")
# The counter, the name, the limit of memory and what of it is real, then percent and switches.
_DEVICE = struct.Struct("<II48sQQ7i28x")


class _Old(NamedTuple):
    """How a device of an old file lies: its size, and where in it the percent stand, in bytes."""

    size: int
    percent: int


_OLD_BEGIN = 248
_OLD = {
    1536: _Old(80, 56),
    **dict.fromkeys((1664, 1672, 2440), _Old(88, 64)),
    **dict.fromkeys((1800, 1848), _Old(96, 64)),
}
_UUID = re.compile(rb"(GPU|MIG)-[0-9A-Za-z/-]{1,42}")


def read_vgpu_manager(roots: Roots) -> SystemFiles:
    """Read the files of all containers; a folder that is not there has none."""
    return gathered(of_containers(roots.vgpu_manager, _of_container))


def _of_container(folder: str, pod: str, container: str) -> Iterator[ContainerFile | FileProblem]:
    for path in (f"{folder}/{NAME}", f"{folder}/{OLD_NAME}"):
        try:
            devices = tuple(_devices(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnusableError) as error:
            yield problem(path, error)
            return
        yield ContainerFile(pod_uid=pod, container=container, devices=devices)
        return


def _devices(path: str) -> Iterator[DeviceUse]:
    with opened(path) as (size, pread):
        if size in _OLD:
            yield from _old_devices(pread, _OLD[size])
            return
        if size != SIZE:
            raise UnusableError(f"has {size} bytes, not {SIZE}")
        magic, layout, region, count = _HEAD.unpack(pread(_HEAD.size, 0))
        if (magic, layout, region, count) != (MAGIC, LAYOUT, REGION, DEVICES):
            raise UnusableError(
                f"has layout {layout} for {count} devices under {magic:#x}, which is not known"
            )
        for place in range(DEVICES):
            for _ in range(TRIES):
                device = _DEVICE.unpack(pread(DEVICE_SIZE, DEVICES_BEGIN + place * DEVICE_SIZE))
                if device[0] % 2 == 0:
                    break
            else:
                raise UnusableError("is being written")
            if device[-1]:
                yield _device(device)


def _old_devices(pread: Pread, old: _Old) -> Iterator[DeviceUse]:
    """Yield the devices that have a name; behind the percent stand a softer limit and a switch."""
    device = struct.Struct(f"<48sQ{old.percent - 56}xi4xi{old.size - old.percent - 12}x")
    for name, memory, percent, limited in device.iter_unpack(pread(DEVICES * device.size, _OLD_BEGIN)):
        if name[:1] != b"\0":
            yield _use(name, memory, percent, limited)


def _device(device: tuple[Any, ...]) -> DeviceUse:
    _, _, name, memory, _, percent, _, limited, _, _, _, _ = device
    return _use(name, memory, percent, limited)


def _use(name: bytes, memory: int, percent: int, limited: int) -> DeviceUse:
    uuid = name.partition(b"\0")[0]
    if not _UUID.fullmatch(uuid) or memory > MOST_BYTES:
        raise UnusableError(f"has a device {uuid!r} of {memory} bytes")
    whole = percent >= 100
    return DeviceUse(
        device=uuid.decode(),
        memory_limit=memory or None,
        compute_limit=1.0 if whole else percent / 100 if limited and percent > 0 else None,
    )
