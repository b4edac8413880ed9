"""The states of holders that ``inspect`` shows."""

import pytest

from exporter.fleet.json_data import inspection_json
from exporter.fleet.text import inspection_text
from tests.fleet.answering import AT, GPU, HOLDER, Samples, inspected, of_node

FAMILIES = {
    "last": "last_active_timestamp_seconds",
    "used": "used_gpu_seconds_total",
    "computes": "compute_used_ratio",
}


@pytest.mark.parametrize(
    ("values", "state", "seconds", "words"),
    [
        ({"computes": 0.5, "last": AT, "used": 0}, "active", None, "active"),
        ({"computes": 0, "last": AT - 59, "used": 2.5}, "active", None, "active"),
        ({"computes": 0, "last": AT - 5, "used": 0, "lately": 0.5}, "active", None, "active"),
        ({"computes": 0, "last": AT - 5, "used": 0}, "quiet", 5, "quiet (5 s)"),
        ({"computes": 0, "last": AT - 60, "used": 2.5}, "quiet", 60, "quiet (1 min)"),
        ({"computes": 0, "last": AT - 599, "used": 2.5}, "quiet", 599, "quiet (9 min)"),
        ({"computes": 0, "last": AT - 600, "used": 2.5}, "idle", 600, "idle (10 min)"),
        ({"last": AT - 5, "used": 2.5}, "unknown", None, "unknown"),
    ],
)
async def test_a_holder_is_active_for_a_minute_then_quiet_then_idle(values, state, seconds, words) -> None:
    """It is unknown if its compute is not measured."""
    answers: dict[str, Samples] = {
        r"gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "exclusive"}, 1.0)],
        r"gpuslice_container_(info|slices)": [(HOLDER, 1.0)],
        r"max_over_time\(gpuslice_container_compute_used_ratio\{.*\}\[60s\]\) > 0": [(HOLDER, 1.0)]
        if "lately" in values
        else [],
    }
    for name, family in FAMILIES.items():
        answers[f"gpuslice_container_{family}"] = [(HOLDER, values[name])] if name in values else []

    inspection = await inspected(of_node(answers))

    (gpu,) = inspection_json(inspection, details=True)["nodes"][0]["devices"]
    (holder,) = gpu["holders"]
    assert (holder["state"], holder["quiet_seconds"]) == (state, seconds)
    text = inspection_text(inspection, details=True)
    (line,) = (line for line in text.splitlines() if "train-0" in line)
    assert line.endswith(f"  {words}")
