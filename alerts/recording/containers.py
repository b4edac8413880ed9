"""Records of what each container holds and uses of a device; all other sums are made from these rows.

Their labels are those that the exporter wrote, with or without ``honor_labels``, and no others.
"""

from alerts.model import Record
from alerts.promql import CONTAINER_SLICES
from alerts.recording.labels import by_holder, now, still_there
from alerts.windows import SHORT, Windows, seconds

UNITS = {"memory": "bytes", "compute": "gpus"}
"""The quantities and their units; compute is in physical GPUs."""

ROW = "container:gpuslice_"
HELD = {quantity: f"{ROW}{quantity}_held_{unit}:max" for quantity, unit in UNITS.items()}
USED = {quantity: f"{ROW}{quantity}_used_{unit}:avg5m" for quantity, unit in UNITS.items()}
LAST_ACTIVE = f"{ROW}last_active_timestamp_seconds:max"
IDLE = f"{ROW}idle:bool"
SERIES = "gpuslice_container_"
_ENTITLED = {"memory": f"{SERIES}memory_entitled_bytes", "compute": f"{SERIES}compute_entitled_ratio"}
_MEASURED = {"memory": f"{SERIES}memory_used_bytes", "compute": f"{SERIES}compute_used_ratio"}


def container_records(windows: Windows) -> tuple[Record, ...]:
    """Return the records by container and device."""
    return (
        Record(
            name=CONTAINER_SLICES,
            expr=by_holder(now(f"{SERIES}slices")),
            why="Slices that a container holds; 0 means use without holding.",
        ),
        Record(
            name=LAST_ACTIVE,
            expr=by_holder(now(f"{SERIES}last_active_timestamp_seconds")),
            why="Unix time of the last compute use of a container; until the first, when it was first seen.",
        ),
        *(
            Record(
                name=HELD[quantity],
                expr=by_holder(now(_ENTITLED[quantity])),
                why=f"Entitlement of a container to {quantity}; absent if it is unknown.",
            )
            for quantity in UNITS
        ),
        *(
            Record(
                name=USED[quantity],
                expr=by_holder(still_there("avg_over_time", _MEASURED[quantity], SHORT)),
                why=f"Use of {quantity} by a container, mean of {SHORT}; absent if it is not measured.",
            )
            for quantity in UNITS
        ),
        Record(
            name=IDLE,
            expr=f"(\n"
            f"  ({LAST_ACTIVE} <= bool (time() - {seconds(windows.idle_after):g}))\n"
            f"  * ({USED['compute']} == bool 0)\n"
            f")\n"
            f"and ({CONTAINER_SLICES} > 0)",
            why=f"1 if a holder has not computed for {windows.idle_after}, else 0; absent if its compute is "
            "not measured.",
        ),
    )
