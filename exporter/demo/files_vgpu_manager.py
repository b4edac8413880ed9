"""The files in which vgpu-manager's plugin writes the limits of containers."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from exporter.demo.metered import Metered

MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
_DEVICES, _BEGIN, _DEVICE = 16, 512, 128


class Limits(NamedTuple):
    """What a container may have of a GPU: bytes (0: all), and percent (0, and from 100 on: all)."""

    uuid: str
    memory: int
    percent: int
    limited: bool = True


def image(names: tuple[str, str, str, str], places: Mapping[int, Limits]) -> bytes:
    """Write a whole file of the pod's uid, name and namespace and of the container, by place on the node."""
    content = bytearray(SIZE)
    struct.pack_into("<4I", content, 0, MAGIC, LAYOUT, _BEGIN + _DEVICES * _DEVICE, _DEVICES)
    struct.pack_into("<48s64s64s64s", content, 128, *(name.encode() for name in names))
    for place, limits in places.items():
        limited = int(limits.limited and 0 < limits.percent < 100)
        at = _BEGIN + place * _DEVICE
        memory = limits.memory
        struct.pack_into("<II48sQQ", content, at, 2, 0, limits.uuid.encode(), memory, memory)
        switches = (limits.percent, limits.percent, limited, limited, int(memory > 0), 0, 1)
        struct.pack_into("<7i", content, at + 72, *switches)
    return bytes(content)


def config(metered: Metered) -> Mapping[str, str | bytes]:
    """Write the limits of a container, each in the place that its GPU has on the node."""
    pod, container = metered.pod, metered.container
    names = (pod.uid, pod.name, pod.namespace, container.name)
    places = {state.gpu.uuid: place for place, state in enumerate(metered.gpus)}
    # A policy of none leaves computing to whoever comes first.
    limited = metered.meter.layout != "none"
    content = image(
        names,
        {
            places[share.device]: Limits(share.device, share.memory, share.cores, limited)
            for share in metered.shares
        },
    )
    return {f"etc/vgpu-manager/{pod.uid}_{container.name}/config/vgpu.config": content}
