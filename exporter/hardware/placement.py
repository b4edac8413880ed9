"""Where a GPU instance lies on its GPU, and which profile it was cut by.

Not every driver tells that to everybody. It is asked for each MIG device until it was told, or refused for
good; what is not told costs nothing else.
"""

from typing import Any, NamedTuple

from exporter.hardware.answers import number
from exporter.hardware.calls import Calls

REFUSAL = "NoPermission"


class Placement(NamedTuple):
    """The driver's number of the profile, the first memory slice and how many there are."""

    profile: int | None = None
    start: int | None = None
    size: int | None = None


def placement(calls: Calls, uuid: str, parent: Any, gi: int) -> Placement:
    """Ask where the GPU instance ``gi`` of the GPU behind ``parent`` is; ``uuid`` is the MIG device's."""
    instance = _ask(calls, uuid, "nvmlDeviceGetGpuInstanceById", parent, gi)
    info = _ask(calls, uuid, "nvmlGpuInstanceGetInfo", instance) if instance is not None else None
    if info is None:
        return Placement()
    return Placement(number(info.profileId), number(info.placement.start), number(info.placement.size))


def _ask(calls: Calls, uuid: str, name: str, *arguments: Any) -> Any:
    refusal = (calls.parents.get(uuid, uuid), name, REFUSAL)
    refusals = calls.errors[refusal]
    answer = calls.ask(uuid, name, *arguments)
    if calls.errors[refusal] > refusals:
        # Who may not know it now will not at the next sweep, and it is not worth an error each time.
        calls.refused(uuid, name, *arguments[1:])
    return answer
