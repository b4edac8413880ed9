"""Whose share of a device is a limit that something enforces."""

from alerts.model import Record
from alerts.recording.labels import by_holder

LIMITED = "container:gpuslice_limited:bool"
_INFO = "gpuslice_container_info"


def isolation_records() -> tuple[Record, ...]:
    """Give what tells limits from notional shares."""
    return (
        Record(
            name=LIMITED,
            expr=by_holder(_limited),
            why="1 for a container whose share hardware or a library enforces, 0 where it is notional or "
            "no limit is known.",
        ),
    )


def _limited(matchers: str) -> str:
    of_limits = matchers.removesuffix("}") + ', isolation=~"hard|soft"}'
    return f"({_INFO}{of_limits} or {_INFO}{matchers} * 0)"
