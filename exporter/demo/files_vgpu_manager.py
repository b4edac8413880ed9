"""The files in which vgpu-manager's plugin writes the limits of containers."""

import struct
from collections.abc import Mapping

from exporter.demo.metered import Metered

MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
_DEVICES, _BEGIN, _DEVICE = 16, 512, 128


def config(metered: Metered) -> Mapping[str, str | bytes]:
    """Write the limits of a container, each in the place that its GPU has on the node."""
    content = bytearray(SIZE)
    struct.pack_into("<4I", content, 0, MAGIC, LAYOUT, _BEGIN + _DEVICES * _DEVICE, _DEVICES)
    pod, container = metered.pod, metered.container
    names = (pod.uid, pod.name, pod.namespace, container.name)
    struct.pack_into("<48s64s64s64s", content, 128, *(name.encode() for name in names))
    places = {state.gpu.uuid: place for place, state in enumerate(metered.gpus)}
    # A policy of none leaves computing to whoever comes first.
    limits = metered.meter.layout != "none"
    for share in metered.shares:
        limited = int(limits and 0 < share.cores < 100)
        at = _BEGIN + places[share.device] * _DEVICE
        struct.pack_into("<II48sQQ", content, at, 2, 0, share.device.encode(), share.memory, share.memory)
        switches = (share.cores, share.cores, limited, limited, int(share.memory > 0), 0, 1)
        struct.pack_into("<7i", content, at + 72, *switches)
    return {f"etc/vgpu-manager/{pod.uid}_{container.name}/config/vgpu.config": bytes(content)}
