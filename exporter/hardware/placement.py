"""Where a GPU instance lies on its GPU, and which profile it was cut by.

Not every driver tells that to everybody. It is asked once for each MIG device, and what is not told costs
nothing else.
"""

from typing import Any, NamedTuple

from exporter.hardware.answers import number
from exporter.hardware.calls import Calls


class Placement(NamedTuple):
    """The driver's number of the profile, the first memory slice and how many there are."""

    profile: int | None = None
    start: int | None = None
    size: int | None = None


def placement(calls: Calls, uuid: str, parent: Any, gi: int) -> Placement:
    """Ask where the GPU instance ``gi`` of the GPU behind ``parent`` is; ``uuid`` is the MIG device's."""
    instance = calls.ask(uuid, "nvmlDeviceGetGpuInstanceById", parent, gi)
    info = calls.ask(uuid, "nvmlGpuInstanceGetInfo", instance) if instance is not None else None
    if info is None:
        return Placement()
    return Placement(number(info.profileId), number(info.placement.start), number(info.placement.size))
