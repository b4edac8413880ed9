"""The record of containers with an enforced share of a device."""

from alerts.model import Record
from alerts.recording.labels import by_holder

LIMITED = "container:gpuslice_limited:bool"
_INFO = "gpuslice_container_info"


def isolation_records() -> tuple[Record, ...]:
    """Return the record that distinguishes limits from notional shares."""
    return (
        Record(
            name=LIMITED,
            expr=by_holder(_limited),
            why="1 if hardware or a library enforces the share of a container, 0 if it is notional or no "
            "limit is known.",
        ),
    )


def _limited(matchers: str) -> str:
    of_limits = matchers.removesuffix("}") + ', isolation=~"hard|soft"}'
    return f"({_INFO}{of_limits} or {_INFO}{matchers} * 0)"
