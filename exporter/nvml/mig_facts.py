"""Where a GPU instance lies on its GPU, and which profile it was cut by.

Not every driver tells that to everybody. It is asked for each MIG device until it was told, or refused for
good; what is not told costs nothing else.
"""

from typing import Any, NamedTuple

from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.answers import ask_until_refused, number

# Who may not know it now will not at the next sweep.
REFUSAL = "NoPermission"


class Placement(NamedTuple):
    """The driver's number of the profile, the first memory slice and how many there are."""

    profile: int | None = None
    start: int | None = None
    size: int | None = None


def placement(calls: Calls, uuid: str, parent: Any, gi: int) -> Placement:
    """Ask where the GPU instance ``gi`` of the GPU behind ``parent`` is; ``uuid`` is the MIG device's."""
    instance = ask_until_refused(calls, REFUSAL, uuid, "nvmlDeviceGetGpuInstanceById", parent, gi)
    if instance is None:
        return Placement()
    info = ask_until_refused(calls, REFUSAL, uuid, "nvmlGpuInstanceGetInfo", instance)
    if info is None:
        return Placement()
    return Placement(number(info.profileId), number(info.placement.start), number(info.placement.size))
