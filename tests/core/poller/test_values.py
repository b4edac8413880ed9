"""Values of drivers that are not what they seem: what is left of them in a snapshot."""

from typing import Any

import pytest

from exporter.demo.scenario import Scenario
from exporter.model import Snapshot
from tests.core.poller.bench import polled, rows
from tests.fake.demo.making import gpu, made, pod

GIB = 1 << 30
RESOURCE = "nvidia.com/gpu"
OLDER, NEWER = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"


def shared(board: dict[str, Any]) -> Scenario:
    """Return a GPU in four slices with two holders: one uses 20 GiB and half of its time, the other a bit."""
    use = {"large": ("20 GiB", 50), "small": ("1 GiB", 10)}
    pods = [
        pod(
            name,
            {"device": "{gpu:0}", "pid": 41 + place, "memory": memory, "load": {"high": high}},
            devices={RESOURCE: [f"{{gpu:0}}::{place}"]},
        )
        for place, (name, (memory, high)) in enumerate(use.items())
    ]
    offers = [{"resource": RESOURCE, "of": "gpus", "replicas": 4}]
    return made(gpus=[gpu(memory_total="64 GiB", **board)], offers=offers, pods=pods)


async def snapshot_of(scenario: Scenario) -> Snapshot:
    """Poll a node once."""
    async with polled(scenario) as (_, poller):
        return await poller.poll()


@pytest.mark.parametrize("unsupported", [OLDER, NEWER])
async def test_compute_of_sharers_is_known_from_the_only_call_that_a_driver_answers(unsupported: str):
    snapshot = await snapshot_of(shared({"unsupported": [unsupported]}))
    used = {row.holder.pod: row.compute_used for row in snapshot.containers}
    assert used == {"large": 0.5, "small": 0.1}
    (row,) = snapshot.gpus
    assert row.unattributed_utilization == 0


@pytest.mark.parametrize("total", [8, 64])
async def test_nothing_follows_from_a_total_that_a_process_exceeds(total: int):
    """The GPU has a share of the machine's memory as its own, and its processes use more of that."""
    used = min(total - 2, 22) * GIB
    memory = [total * GIB, GIB, used, total * GIB - GIB - used]
    snapshot = await snapshot_of(shared({"answers": {"nvmlDeviceGetMemoryInfo_v2": memory}}))
    (row,) = snapshot.gpus
    (large,), (small,) = rows(snapshot, "large"), rows(snapshot, "small")
    assert (large.memory_used, small.memory_used) == (20 * GIB, GIB)
    assert [large.compute_entitled, small.compute_entitled] == [0.25, 0.25]
    if total == 8:
        assert row.reading is not None
        assert (row.reading.memory, row.unattributed_memory) == (None, None)
        assert [large.memory_entitled, small.memory_entitled] == [None, None]
    else:
        assert [large.memory_entitled, small.memory_entitled] == [16 * GIB, 16 * GIB]
