"""What each container holds and uses of a device: the rows that everything else is added up from.

Their labels are those of the exporter, whether Prometheus honours labels or not, and no others.
"""

from alerts.model import Record
from alerts.promql import CONTAINER_SLICES, HOLDER
from alerts.recording.windows import SHORT, Windows

ROW = "container:gpuslice_"
HELD = {"memory": f"{ROW}memory_held_bytes:max", "compute": f"{ROW}compute_held_gpus:max"}
USED = {"memory": f"{ROW}memory_used_bytes:avg5m", "compute": f"{ROW}compute_used_gpus:avg5m"}
LAST_ACTIVE = f"{ROW}last_active_timestamp_seconds:max"
IDLE = f"{ROW}idle_compute_held_gpus:max"
SECONDS = {what: f"{ROW}gpu_seconds_{what}:increase1h" for what in ("held", "used")}
_SERIES = "gpuslice_container_"
_ENTITLED = {"memory": f"{_SERIES}memory_entitled_bytes", "compute": f"{_SERIES}compute_entitled_ratio"}
_MEASURED = {"memory": f"{_SERIES}memory_used_bytes", "compute": f"{_SERIES}compute_used_ratio"}
_RENAMED = ("namespace", "pod", "container")


def container_records() -> tuple[Record, ...]:
    """Give what stands on single containers now."""
    return (
        Record(
            name=CONTAINER_SLICES,
            expr=_rows(f"{_SERIES}slices"),
            why="Slices that a container holds; 0: it uses the device without holding any of it.",
        ),
        Record(
            name=LAST_ACTIVE,
            expr=_rows(f"{_SERIES}last_active_timestamp_seconds"),
            why="When a container last computed; before that, when it was first seen.",
        ),
        *(
            Record(name=HELD[quantity], expr=_rows(_ENTITLED[quantity]), why=f"Share of {quantity} held.")
            for quantity in HELD
        ),
        *(
            Record(
                name=USED[quantity],
                # A container that is gone must not count beside the one that took its place.
                expr=_rows(_MEASURED[quantity], SHORT),
                why=f"Share of {quantity} used, on average; absent where it cannot be measured.",
            )
            for quantity in USED
        ),
    )


def detail_records(windows: Windows) -> tuple[Record, ...]:
    """Give efficiency by container and pod, which a very large fleet can do without."""
    return ()


def _rows(series: str, window: str | None = None) -> str:
    """Give a family by holder, labels put right; with a window its mean, of rows that are still there."""
    rows = " or ".join((_selected(series, 'exported_pod=""', window), _put_right(series, window)))
    return f"max by ({HOLDER}) ({rows})"


def _selected(series: str, matcher: str, window: str | None) -> str:
    now = f"{series}{{{matcher}}}"
    return now if window is None else f"(avg_over_time({now}[{window}]) and {now})"


def _put_right(series: str, window: str | None) -> str:
    """Give the rows whose labels Prometheus has renamed, under their own."""
    rows = _selected(series, 'exported_pod!=""', window)
    for label in _RENAMED:
        rows = f'label_replace({rows}, "{label}", "$1", "exported_{label}", "(.*)")'
    return rows
