"""What Tencent's gpu-manager notes of a container: the limits that its library holds it to, and its pids.

The layout ``name`` is that of old libraries, whose folders bear the name of the container; others its id.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from exporter.demo.metered import Metered

# The uid of the pod; how far the container may go, and what is left free; its name; the address of its card,
# which the manager leaves empty; the limits of memory and of computing power; whether the latter is hard; the
# driver's version; whether the limits are in force.
_CONFIG = struct.Struct("<48si4044s4096s16sQiiiii4x")
FULL = 100


class Config(NamedTuple):
    """What is noted of a container: limits in bytes and percent, and whether they are in force."""

    pod_uid: str
    container: str
    memory: int
    cores: int
    enabled: bool
    bus_id: str = ""


def image(told: Config) -> bytes:
    """Write a whole file."""
    names = told.pod_uid.encode(), 0, b"", told.container.encode(), told.bus_id.encode()
    return _CONFIG.pack(*names, told.memory, told.cores, 1, 535, 161, told.enabled)


def config(metered: Metered) -> Mapping[str, str | bytes]:
    """Write both files as the manager does when a process of the container says hello to it."""
    pod, container = metered.pod, metered.container
    memory = sum(share.memory for share in metered.shares)
    cores = sum(share.cores for share in metered.shares)
    told = Config(pod.uid, container.name, memory, cores, enabled=cores < FULL)
    name = container.name if metered.meter.layout == "name" else container.container_id
    folder = f"etc/gpu-manager/vm/{pod.uid}/{name}"
    pids = [state.pid for state in metered.processes]
    return {
        f"{folder}/vcuda.config": image(told),
        f"{folder}/pids.config": struct.pack(f"<{len(pids)}i", *pids),
    }
