"""Two fake nodes with the names of both versions of dcgm-exporter, in a real Prometheus.

An expression on old names has the same result after its translation to new ones: what the old units round
away is less than 1 MiB or 1 MB/s of each series, and less than 1 % of all other results.
"""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.nodes import load
from benchmarks.prometheus import Prometheus, stored
from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from exporter.model import Memory, Snapshot
from exporter.translate.edits import changed
from exporter.translate.expression import translate_expression
from exporter.translate.names import TARGETS
from tests.core.golden.story import scenes
from tests.core.translate.answers import NEW_LABELS, answer, close
from tests.tools import tool

pytestmark = pytest.mark.slow

# H100 that are held whole, with NVLink, and H100 in MIG mode.
NODES = ("exclusive", "mig")
LENGTH, STEP = 300, 10
END = int(time.time()) // 600 * 600 - 7200
SAMPLE = re.compile(r"DCGM_\w+\{.*\} \S+")
# Expressions with one series for each result, in a unit that is rounded.
SINGLE = (
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED > 40000",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "avg_over_time(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[2m])",
    "min_over_time(DCGM_FI_DEV_FB_FREE[2m])",
)
EXPRESSIONS = (
    # Single series.
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK < 1900", "DCGM_FI_DEV_XID_ERRORS"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE * 100",
    'DCGM_FI_DEV_MEM_COPY_UTIL{Hostname=~"bench-.*", DCGM_FI_DRIVER_VERSION="570.124.06"}',
    "topk(3, DCGM_FI_DEV_POWER_USAGE)",
    # Sums.
    "sum(DCGM_FI_DEV_FB_USED)",
    "sum(DCGM_FI_DEV_FB_USED) * 1024 * 1024 / 1e9",
    "sum by (namespace) (DCGM_FI_DEV_FB_USED)",
    "avg(DCGM_FI_DEV_GPU_UTIL) / 100",
    "count(DCGM_FI_DEV_GPU_TEMP > 40)",
    # By host.
    "sum by (Hostname) (DCGM_FI_DEV_FB_USED)",
    "max by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP)",
    "count by (Hostname, modelName, DCGM_FI_DRIVER_VERSION) (DCGM_FI_DEV_POWER_USAGE)",
    "avg by (Hostname) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE) * 100",
    "sum by (Hostname) (DCGM_FI_DEV_FB_USED) / sum by (Hostname) (DCGM_FI_DEV_FB_TOTAL) * 100",
    "sum by (Hostname) (DCGM_FI_PROF_PCIE_TX_BYTES)",
    "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE) / on (Hostname) count by (Hostname) (DCGM_FI_DEV_GPU_TEMP)",
    # Over time.
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[2m]) / 1000",
    "sum by (Hostname) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[4m])) / 3600000",
    "sum(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[2m])) / 1000 > sum(DCGM_FI_DEV_POWER_USAGE) / 2",
    "rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[4m])",
    "sum by (Hostname) (max_over_time(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[2m])) / 1000",
    "max_over_time(DCGM_FI_DEV_GPU_UTIL[2m]) > 80",
    "max_over_time(sum by (Hostname) (DCGM_FI_DEV_FB_USED)[3m:30s])",
    "increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[4m])",
    # A renamed series with one that kept its name.
    "sum by (UUID) (DCGM_FI_PROF_PCIE_TX_BYTES) / on (UUID) DCGM_FI_DEV_POWER_USAGE",
)


async def _lines(name: str) -> list[str]:
    """Return the samples of a node's pages, with their times."""
    exposition = Exposition(Selection(dcgm_names="all", dcgm_version="both"))
    lines = []
    async for scene in scenes(load(name), tuple(range(10, LENGTH + 11, STEP))):
        assert scene.snapshot is not None
        page = exposition.page(_with_rests(scene.snapshot)).body(Format.TEXT).decode()
        at = END - LENGTH - 10 + scene.time
        lines += [f"{sample} {at}" for sample in SAMPLE.findall(page)]
    return lines


def _with_rests(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with memory in use that is not in whole MiB."""

    def with_rest(memory: Memory | None, number: int) -> Memory | None:
        rest = 123_457 * (number % 7 + 1)
        return memory and replace(memory, used=memory.used + rest, free=memory.free - rest)

    gpus = [
        replace(row, reading=replace(row.reading, memory=with_rest(row.reading.memory, number)))
        for number, row in enumerate(snapshot.gpus)
        if row.reading
    ]
    migs = [
        replace(row, reading=replace(row.reading, memory=with_rest(row.reading.memory, number)))
        for number, row in enumerate(snapshot.migs)
    ]
    return replace(snapshot, gpus=tuple(gpus), migs=tuple(migs))


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    """Run a Prometheus with five minutes of both nodes."""
    tool("prometheus")
    tool("promtool")
    by_name: dict[str, list[str]] = defaultdict(list)
    for name in NODES:
        for line in asyncio.run(_lines(name)):
            by_name[line.partition("{")[0]].append(line)
    with stored([[line for lines in by_name.values() for line in lines]]) as running:
        yield running


@pytest.mark.parametrize("expression", [*SINGLE, *EXPRESSIONS])
def test_a_translated_expression_has_the_result_of_the_old_one(server: Prometheus, expression: str) -> None:
    new = changed(expression, translate_expression(expression, TARGETS["dcgm-4.9"]).edits)
    before, after = answer(server, expression, END, NEW_LABELS), answer(server, new, END)

    assert new != expression
    assert before
    assert close(before, after, *((0.0, 1.0) if expression in SINGLE else (0.01,))), new


def test_the_old_units_round_something_away(server: Prometheus) -> None:
    """Otherwise the other tests would compare whole MiB only."""
    before = answer(server, "sum(DCGM_FI_DEV_FB_USED)", END)[()]
    after = answer(server, "sum(DCGM_FI_DEV_FB_USED_BYTES) / 1024 / 1024", END)[()]

    assert before + 1 < after < before + 8 + 56
