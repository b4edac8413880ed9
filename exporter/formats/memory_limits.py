"""The memory limits of a holder in words, for pages, texts and the doctor."""

from collections.abc import Mapping

from exporter.model import ContainerRow
from exporter.model.memory_limits import Zone, zone_of
from exporter.wording import gibibytes

_BACKENDS: Mapping[str, str] = {"dmem": "the kernel (dmem)", "misc": "the driver (misc)"}
ZONES: Mapping[Zone, str] = {
    "safe": "within its soft limit",
    "borrowing": "borrowing: it may be evicted under memory pressure",
    "full": "full: allocations fail",
}


def zone(row: ContainerRow) -> Zone | None:
    """Return the zone of a holder's charged memory; None without limits, or if it is unknown."""
    return zone_of(row.memory_charged, row.memory_guaranteed, row.memory_limit)


def limits_text(row: ContainerRow) -> str:
    """Return the limits in force with the holder's zone, "" without any."""
    if row.memory_guaranteed is None:
        return ""
    hard = "no hard limit" if row.memory_limit is None else f"hard limit {gibibytes(row.memory_limit)} GiB"
    by = _BACKENDS.get(row.limit_backend, "")
    text = f"soft limit {gibibytes(row.memory_guaranteed)} GiB, {hard}, by {by}"
    now = zone(row)
    if now is None or row.memory_charged is None:
        return f"{text}; what is charged is not known"
    return f"{text}; {gibibytes(row.memory_charged)} GiB charged, {ZONES[now]}"
