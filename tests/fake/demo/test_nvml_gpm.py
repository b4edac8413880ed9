"""GPM of the fake driver, through the unmodified binding."""

import math
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, NOT_SUPPORTED, code_of, gpu_at, mig_at
from tests.fake.demo.making import MIB, Bench, gpu, instance, made, pod

GRAPHICS, SM, DRAM, DECODER, ENCODER, PCIE_IN, NVLINK_IN, ELAPSED, ACTIVE, PCIE_BYTES = (
    *(1, 2, 10, 30, 166),
    *(21, 60, 248, 249, 256),
)
ALL = (GRAPHICS, SM, DRAM, DECODER, ENCODER, PCIE_IN, NVLINK_IN, ELAPSED, ACTIVE, PCIE_BYTES)
NEW = {"name": "n", "driver_version": "580.65.06", "nvml_version": "13.580.65.06", "cuda_version": 13000}
CUT = {
    "instances": [
        instance(1, 0, ci=0, profile="1c.3g.8gb", memory_bytes="8 GiB", size=4, multiprocessors=16),
        instance(1, 0, ci=1, profile="2c.3g.8gb", memory_bytes="8 GiB", size=4, multiprocessors=32),
        instance(5, 4, profile="1g.2gb", multiprocessors=16),
    ]
}


def samples() -> tuple[Any, Any]:
    """Return two buffers."""
    return pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()


def between(older: Any, newer: Any) -> dict[int, float | int]:
    """Return the metrics by id: values, or the code of the error as a negative number."""
    struct = pynvml.c_nvmlGpmMetricsGet_t()
    struct.version, struct.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(ALL)
    struct.sample1, struct.sample2 = older, newer
    for place, number in enumerate(ALL):
        struct.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(struct)
    answers = struct.metrics[: len(ALL)]
    return {metric.metricId: -metric.nvmlReturn if metric.nvmlReturn else metric.value for metric in answers}


def measured(bench: Bench, get: Callable[[Any], Any], seconds: float = 10) -> dict[int, float | int]:
    """Return the metrics between two samples, ``seconds`` apart."""
    older, newer = samples()
    get(older)
    bench.step(seconds)
    get(newer)
    return between(older, newer)


def busy(**changes: Any) -> dict[str, Any]:
    """Return a board, from Hopper by default, and a pod that keeps it half busy."""
    process = {"device": "{gpu:0}", "pid": 101, "memory": "1 GiB", "load": {"high": 50}}
    return {"gpus": [gpu(**({"architecture": 9} | changes))], "pods": [pod("a", process)]}


@pytest.mark.parametrize(
    ("changes", "has"),
    [
        ({"architecture": 9}, 1),
        ({"architecture": 8}, 0),
        ({"architecture": 8, "gpm": True}, 1),
        ({"architecture": 9, "gpm": False}, 0),
    ],
)
def test_boards_from_hopper_on_have_gpm_unless_the_scenario_sets_it(bench, changes, has):
    bench(made(gpus=[gpu(**changes)]))
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu_at()).isSupportedDevice == has
    sample = pynvml.nvmlGpmSampleAlloc()
    if has:
        pynvml.nvmlGpmSampleGet(gpu_at(), sample)
    else:
        assert code_of(pynvml.nvmlGpmSampleGet, gpu_at(), sample) == NOT_SUPPORTED


def test_gpm_metrics_are_the_mean_load_between_the_samples(bench):
    """Shares in percent, traffic in MiB/s."""
    node = bench(made(node=NEW, **busy(architecture=10, links={"nvlinks": 2, "switch": True})))
    metrics = measured(node, lambda sample: pynvml.nvmlGpmSampleGet(gpu_at(), sample))
    assert metrics[GRAPHICS] == pytest.approx(50)
    assert 0 < metrics[SM] < metrics[GRAPHICS]
    assert metrics[DECODER] == 0
    totals = node.gpus[0].totals
    assert metrics[PCIE_BYTES] == totals["pcie_receive"] > 0
    assert metrics[PCIE_IN] == pytest.approx(totals["pcie_receive"] / MIB / 10)
    assert metrics[NVLINK_IN] == pytest.approx(totals["nvlink_receive"] / MIB / 10)
    assert metrics[ACTIVE] / metrics[ELAPSED] == pytest.approx(metrics[SM] / 100)


@pytest.mark.parametrize(
    ("node", "lacking"),
    [({}, {ENCODER, ELAPSED, ACTIVE, PCIE_BYTES}), ({"node": NEW}, {ELAPSED, ACTIVE, PCIE_BYTES})],
    ids=["older driver", "Hopper"],
)
def test_older_drivers_lack_encoders_and_older_boards_counters(bench, node, lacking):
    metrics = measured(
        bench(made(**node, **busy())), lambda sample: pynvml.nvmlGpmSampleGet(gpu_at(), sample)
    )
    assert {metric for metric, value in metrics.items() if value == -NOT_SUPPORTED} == lacking
    assert metrics[GRAPHICS] == pytest.approx(50)
    assert metrics[NVLINK_IN] == 0


def test_without_time_between_two_samples_shares_are_nan(bench):
    node = bench(made(**busy()))
    metrics = measured(node, lambda sample: pynvml.nvmlGpmSampleGet(gpu_at(), sample), seconds=0.05)
    assert math.isnan(metrics[GRAPHICS])
    assert math.isnan(metrics[PCIE_IN])


def test_a_gpu_instance_is_the_mean_of_its_compute_instances(bench):
    """Each is weighted by its slices; by its own handle, a compute instance has no shared metrics."""
    processes = [
        {"device": "{gpu:0/mig:0}", "pid": 101, "memory": "1 GiB", "load": {"high": 90}},
        {"device": "{gpu:0/mig:1}", "pid": 102, "memory": "1 GiB", "load": {"high": 30}},
    ]
    board = gpu(architecture=9, mig=CUT)
    node = bench(made(gpus=[board], pods=[pod(f"p{n}", each) for n, each in enumerate(processes)]))
    pairs = [samples() for _ in range(5)]
    gets = [
        lambda sample: pynvml.nvmlGpmSampleGet(gpu_at(), sample),
        lambda sample: pynvml.nvmlGpmMigSampleGet(gpu_at(), 1, sample),
        lambda sample: pynvml.nvmlGpmMigSampleGet(gpu_at(), 5, sample),
        lambda sample: pynvml.nvmlGpmSampleGet(mig_at(0), sample),
        lambda sample: pynvml.nvmlGpmSampleGet(mig_at(1), sample),
    ]
    for get, (older, _) in zip(gets, pairs, strict=True):
        get(older)
    node.step(10)
    for get, (_, newer) in zip(gets, pairs, strict=True):
        get(newer)
    by_pair = [between(*pair) for pair in pairs]
    assert [metrics[GRAPHICS] for metrics in by_pair] == pytest.approx([(90 + 2 * 30) / 7, 50, 0, 90, 30])
    assert by_pair[1][DRAM] > 0
    assert {by_pair[3][number] for number in (DRAM, DECODER, PCIE_IN)} == {-NOT_SUPPORTED}
    assert by_pair[1][PCIE_IN] == -NOT_SUPPORTED


def test_gpm_refuses_invalid_samples_handles_and_versions(bench):
    bench(made(gpus=[gpu(architecture=9, mig=CUT)]))
    older, newer = samples()
    assert code_of(between, older, newer) == INVALID
    pynvml.nvmlGpmSampleGet(gpu_at(), older)
    pynvml.nvmlGpmMigSampleGet(gpu_at(), 1, newer)
    assert code_of(between, older, newer) == INVALID
    assert code_of(pynvml.nvmlGpmMigSampleGet, gpu_at(), 6, newer) == INVALID
    assert code_of(pynvml.nvmlGpmQueryDeviceSupport, mig_at(0)) == INVALID
    struct = pynvml.c_nvmlGpmMetricsGet_t()
    assert code_of(pynvml.nvmlGpmMetricsGet, struct) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_misuse_of_gpm_buffers_is_refused_and_counted(bench):
    """Instead of crashing."""
    node = bench(made(**busy()))
    pool, (kept, freed) = node.nvml.gpm, samples()
    assert pool.live == 2
    pynvml.nvmlGpmSampleGet(gpu_at(), freed)
    pynvml.nvmlGpmSampleFree(freed)
    assert (pool.live, pool.misuses) == (1, [])
    assert code_of(pynvml.nvmlGpmSampleFree, freed) == INVALID
    assert code_of(pynvml.nvmlGpmSampleGet, gpu_at(), freed) == INVALID
    assert code_of(between, freed, kept) == INVALID
    assert (pool.live, pool.misuses) == (1, ["double free", "use after free", "use after free"])
    nowhere = pynvml.c_nvmlGpmSample_t()
    assert code_of(pynvml.nvmlGpmSampleGet, gpu_at(), nowhere) == INVALID
