"""Which NVLinks of a GPU are active."""

from typing import Any

from exporter.hardware.answers import Found
from exporter.hardware.calls import FIELDS, Calls
from exporter.hardware.fields import LINK_STATE

GROUP, ACTIVE = "nvlink", 1


def active_links(calls: Calls, uuid: str, handle: Any, found: Found) -> frozenset[int] | None:
    """Count the active links into what was found and return their numbers; None where one is not told.

    Drivers that have no field for the state of a link have a call for it.
    """
    states = found.pop("link_states", {})
    links = found.get("nvlink", {}).get("links")
    if links is None:
        return None
    calls.group = GROUP
    for link in range(links):
        if link not in states and not calls.supports(uuid, FIELDS, LINK_STATE, link):
            states[link] = calls.ask(uuid, "nvmlDeviceGetNvLinkState", handle, link)
    if any(states.get(link) is None for link in range(links)):
        return None
    active = frozenset(link for link, state in states.items() if state == ACTIVE)
    found["nvlink"]["active"] = len(active)
    return active
