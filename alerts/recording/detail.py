"""Records of the efficiency of single containers and pods that exist now. Very large fleets can omit them."""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import CONTAINER_SLICES, indented
from alerts.recording.containers import HELD, UNITS, USED
from alerts.recording.hours import SECONDS
from alerts.recording.levels import own
from alerts.windows import LONG, SHORT

POD = "cluster, namespace, pod"


def detail_records() -> tuple[Record, ...]:
    """Return the records of used by held, from rows with both known."""
    return tuple(record for each in _parts() for record in _pair(*each))


def _parts() -> Iterator[tuple[str, str, str, str]]:
    """Return the name, the used and the held expression, and the meaning of each ratio."""
    for quantity in UNITS:
        used, held = USED[quantity], HELD[quantity]
        name = f"gpuslice_{quantity}_efficiency"
        yield (
            f"{name}:ratio5m",
            used,
            held,
            f"Used by held {quantity} over {SHORT}, of existing containers.",
        )
        mean = f"(avg_over_time({used}[{LONG}]) and {used})"
        yield f"{name}:ratio1h", mean, f"avg_over_time({held}[{LONG}])", f"The same over {LONG}."
    yield (
        "gpuslice_gpu_seconds_efficiency:increase1h",
        f"({SECONDS['used']} and {CONTAINER_SLICES})",
        SECONDS["held"],
        f"GPU-seconds used by held over {LONG}, of existing containers.",
    )


def _pair(name: str, used: str, held: str, why: str) -> Iterator[Record]:
    yield Record(name=f"container:{name}", expr=f"{used}\n/\n({held} > 0)", why=why)
    parts = (own(f"{used} and {held}"), own(f"{held} and {used}"))
    used_sum, held_sum = (f"sum by ({POD}) (\n{indented(rows)}\n)" for rows in parts)
    yield Record(name=f"pod:{name}", expr=f"{used_sum}\n/\n(\n{indented(held_sum)}\n  > 0\n)", why=why)
