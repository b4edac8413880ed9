"""Records of GPU-seconds held and used within the last hour, from the counters of the exporter.

Containers that ended within the hour count. After the exporter's pod was replaced, a container has rows of
two targets, each with the time that it counted.
"""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.containers import SERIES
from alerts.recording.gpus import PARTS, of_part
from alerts.recording.labels import by_holder, over
from alerts.recording.levels import LEVELS, NAMESPACE, own
from alerts.windows import LONG

_COUNTED = {"held": "entitled", "used": "used"}
SECONDS = {what: f"container:gpuslice_gpu_seconds_{what}:increase1h" for what in _COUNTED}
_NAMES = "gpu:gpuslice_info:names1h"
_ROWS = {
    "held": SECONDS["held"],
    "used": SECONDS["used"],
    "held_measured": f"{SECONDS['held']} and {SECONDS['used']}",
    "used_entitled": f"{SECONDS['used']} and {SECONDS['held']}",
}
_WHY = {
    "held": "GPU-seconds held: the entitled share of compute over time.",
    "used": "GPU-seconds used, of containers with measured compute.",
    "held_measured": "GPU-seconds held by containers with measured compute.",
    "used_entitled": "GPU-seconds used by containers with a known entitlement.",
}


def hour_records() -> tuple[Record, ...]:
    """Return the records by container and level."""
    return (
        Record(
            name=_NAMES,
            expr=f"{GPU_NAMES}\n"
            f"or on ({DEVICE})\n"
            f"topk by ({DEVICE}) (1, last_over_time({GPU_NAMES}[{LONG}]))",
            why="Names of GPUs, also from targets that ended within the hour.",
        ),
        *(
            Record(
                name=SECONDS[what],
                expr=by_holder(over("increase", f"{SERIES}{counter}_gpu_seconds_total", LONG)),
                why=_WHY[what],
            )
            for what, counter in _COUNTED.items()
        ),
        *(
            Record(
                name=_name(PARTS, what), expr=of_part(f"sum by ({DEVICE}) ({rows})", _NAMES), why=_WHY[what]
            )
            for what, rows in _ROWS.items()
        ),
        *(record for level in (*LEVELS, "namespace") for record in _level(level)),
    )


def _name(level: str, what: str) -> str:
    return f"{level}:gpuslice_gpu_seconds_{what}:increase1h"


def _level(level: str) -> Iterator[Record]:
    for what, rows in _ROWS.items():
        if level == "namespace":
            expr = f"sum by ({NAMESPACE}) (\n{indented(own(rows, _NAMES))}\n)"
        else:
            expr = f"sum by ({LEVELS[level]}) ({_name(PARTS, what)})"
        yield Record(name=_name(level, what), expr=expr, why=_WHY[what])
    yield Record(
        name=_name(level, "efficiency"),
        expr=f"{_name(level, 'used_entitled')} / ({_name(level, 'held_measured')} > 0)",
        why="GPU-seconds used by held, if both are known.",
    )
