"""The states that ``inspect`` tells of holders, from what a Prometheus has of them."""

import re

import pytest

from exporter.fleet.inspection import Inspection, inspect, inspection_json, inspection_text
from exporter.prometheus import Prometheus
from tests.fleet.answering import AT, Samples, answering, nodes
from tests.fleet.test_refused import GPU, HOLDER

_OF_HOLDER = {
    "last": "last_active_timestamp_seconds",
    "used": "used_gpu_seconds_total",
    "computes": "compute_used_ratio",
}


def _told(expression: str, facts: dict[str, float]) -> Samples:
    answers: dict[str, Samples] = {
        r"gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "exclusive"}, 1.0)],
        r"gpuslice_container_(info|slices)": [(HOLDER, 1.0)],
        r"max_over_time\(gpuslice_container_compute_used_ratio\{.*\}\[60s\]\) > 0": [(HOLDER, 1.0)]
        if facts.get("lately")
        else [],
    }
    for name, family in _OF_HOLDER.items():
        answers[f"gpuslice_container_{family}"] = [(HOLDER, facts[name])] if name in facts else []
    return next((found for pattern, found in answers.items() if re.match(pattern, expression)), [])


async def _inspected(**facts: float) -> Inspection:
    def answer(expression: str) -> Samples:
        there = nodes(expression, "n1")
        return _told(expression, facts) if there is None else there

    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=5)
        found = await inspect(prometheus, ("n1",), details=True, idle_after=600)
        await prometheus.close()
    return found


@pytest.mark.parametrize(
    ("facts", "state", "seconds", "words"),
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
async def test_inspect_tells_the_state_of_a_holder(facts, state, seconds, words) -> None:
    """Active for a minute after it computed, then quiet, then idle; unknown where that is not measured."""
    found = await _inspected(**facts)

    (gpu,) = inspection_json(found, details=True)["nodes"][0]["devices"]
    (holder,) = gpu["holders"]
    assert (holder["state"], holder["quiet_seconds"]) == (state, seconds)
    (line,) = (line for line in inspection_text(found, details=True).splitlines() if "train-0" in line)
    assert line.endswith(f"  {words}")
