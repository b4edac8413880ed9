"""The files that HAMi's library for Ascend NPUs keeps of containers.

No NPU is simulated: the layout of the meter lists what each process uses of it, in MiB.
"""

import struct
from collections.abc import Mapping, Sequence

from exporter.demo.metered import Metered
from exporter.demo.schema_sharing import MeterFile

MEBIBYTE = 1 << 20
CONTAINERS, NAME = "usr/local/hami-vnpu-core/containers", "vnpu_local_shmem"
_SIZE, _SLOTS, _SLOT = 6200, 1080, 80


def used(meter: MeterFile) -> list[int]:
    """Return what each process of a container uses, in bytes."""
    return [int(each) * MEBIBYTE for each in meter.layout.split(",") if each]


def image(limit: int, sizes: Sequence[int]) -> bytes:
    """Write the limit of a container, and a slot for each process, in bytes."""
    content = bytearray(_SIZE)
    struct.pack_into("<QQQ", content, 0, limit, sum(sizes), 0)
    struct.pack_into("<I", content, 48, len(sizes))
    for place, size in enumerate(sizes):
        struct.pack_into("<iiQ", content, _SLOTS + place * _SLOT, place + 1, place + 1, size)
        struct.pack_into("<I", content, _SLOTS + place * _SLOT + 72, 1)
    return bytes(content)


def region(metered: Metered) -> Mapping[str, str | bytes]:
    """Write the file of a container."""
    limit = next((share.memory for share in metered.shares), 0)
    name = f"{metered.pod.uid}_{metered.container.name}"
    return {f"{CONTAINERS}/{name}/{NAME}": image(limit, used(metered.meter))}
