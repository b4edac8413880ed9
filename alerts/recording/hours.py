"""GPU-seconds held and used within the last hour, by the counters of the exporter.

What ended within the hour counts. Where the exporter's pod was replaced, the parts of a container stand with
two targets, each with the time that it counted itself.
"""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.containers import SERIES
from alerts.recording.gpus import PARTS, of_part
from alerts.recording.labels import by_holder, over
from alerts.recording.levels import LEVELS, NAMESPACE, own
from alerts.recording.windows import LONG

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
    "used": "GPU-seconds computed, as far as compute is measured.",
    "held_measured": "GPU-seconds held by those whose compute is measured.",
    "used_entitled": "GPU-seconds computed by those whose entitlement is known.",
}


def hour_records() -> tuple[Record, ...]:
    """Give GPU-seconds by container and level."""
    return (
        Record(
            name=_NAMES,
            expr=f"{GPU_NAMES}\n"
            f"or on ({DEVICE})\n"
            f"topk by ({DEVICE}) (1, last_over_time({GPU_NAMES}[{LONG}]))",
            why="The names of GPUs, those of targets that went within the hour too.",
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
        why="GPU-seconds used by held, where both are known.",
    )
