"""The fake driver on power, temperature, clocks and their limits, through the unmodified binding."""

from collections.abc import Iterable

import pynvml
import pytest

from tests.fake.demo.driver import MISSING, NOT_SUPPORTED, code_of, fields_of, gpu_at
from tests.fake.demo.making import Bench, gpu, made, node_of, pod

FULL = pod("p", {"device": "{gpu:0}", "load": {"high": 100}})
POWER, THERMAL, SOFTWARE, HARDWARE = 74, 75, 269, 270


def grown(bench: Bench, wanted: Iterable[int], seconds: float) -> list[int]:
    """Return the increase of fields over a few steps."""
    earlier = fields_of(gpu_at(), *wanted)
    start = bench.gpus[0].seconds
    for part in range(1, 5):
        bench.step(start + seconds * part / 4)
    return [now - then for now, then in zip(fields_of(gpu_at(), *wanted), earlier, strict=True)]


def test_the_power_limit_is_enforced_and_within_its_constraints(bench):
    bench(made(node=node_of(570), gpus=[gpu(power_limit_mw=90_000)], pods=[FULL]))
    assert pynvml.nvmlDeviceGetPowerManagementLimit(gpu_at()) == 90_000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu_at()) == 90_000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu_at()) == 120_000
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu_at()) == [48_000, 120_000]
    assert pynvml.nvmlDeviceGetPowerUsage(gpu_at()) == 90_000


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        ({"architecture": 6}, [None, 120_000, None, None, None]),
        ({"architecture": 7, "memory_temperature": True}, [None, 120_000, None, None, None]),
        ({"architecture": 7}, [120_000, 120_000, None, None, None]),
        ({"architecture": 9}, [120_000, 120_000, None, 14_400, None]),
        ({"architecture": 9, "model": "NVIDIA GH200"}, [120_000, 120_000, 240_000, 14_400, None]),
    ],
)
def test_power_by_scope_depends_on_the_board(bench, board, expected):
    """Averages came with Ampere's small boards, memory with Hopper, and a module with a processor on it."""
    bench(made(gpus=[gpu(**board)], pods=[FULL]))
    assert fields_of(gpu_at(), 185, 186, (186, 1), (185, 2), (186, 2)) == expected


def test_boards_from_ada_on_have_a_temperature_margin(bench):
    limits = {"shutdown": 96, "slowdown": 93, "gpu": 88, "memory": 95}
    bench(
        made(
            node=node_of(570),
            gpus=[gpu(architecture=8, thresholds=limits, memory_temperature=True), gpu(thresholds=limits)],
        )
    )
    old = gpu_at(1)
    for handle in (gpu_at(), old):
        assert [pynvml.nvmlDeviceGetTemperatureThreshold(handle, kind) for kind in (0, 1, 3)] == [96, 93, 88]
    assert pynvml.nvmlDeviceGetTemperatureThreshold(gpu_at(), 2) == 95
    assert code_of(pynvml.nvmlDeviceGetTemperatureThreshold, old, 2) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetTemperatureThreshold, old, 4) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMarginTemperature(gpu_at()) == 88 - 30
    assert code_of(pynvml.nvmlDeviceGetMarginTemperature, old) == NOT_SUPPORTED
    assert fields_of(gpu_at(), 193, 194, 195, 196) == [-8, -5, -7, 0]
    assert fields_of(old, 193, 194, 195, 196) == [None] * 4


def test_older_drivers_have_no_temperature_margin(bench):
    bench(made(node=node_of(550), gpus=[gpu(architecture=8)]))
    assert code_of(pynvml.nvmlDeviceGetMarginTemperature, gpu_at()) == MISSING
    assert fields_of(gpu_at(), 193, 230, 269) == [-8, None, None]
    bench(made(node=node_of(525), gpus=[gpu(architecture=8)]))
    assert fields_of(gpu_at(), 186, 193) == [None, None]


def test_application_clocks_are_the_maximum(bench):
    """Video clocks have none."""
    bench(made())
    assert [pynvml.nvmlDeviceGetApplicationsClock(gpu_at(), kind) for kind in (0, 1, 2)] == [1410, 1410, 1215]
    assert code_of(pynvml.nvmlDeviceGetApplicationsClock, gpu_at(), 3) == NOT_SUPPORTED


def test_time_at_the_power_limit_is_counted(bench):
    """It lowers the clocks, and does not grow when idle."""
    node = bench(made(node=node_of(580), pods=[FULL]))
    assert grown(node, (POWER, THERMAL, SOFTWARE, HARDWARE), 20) == [20_000_000_000, 0, 0, 0]
    assert pynvml.nvmlDeviceGetClockInfo(gpu_at(), pynvml.NVML_CLOCK_SM) == round(1410 * 0.92)
    idle = bench(made(node=node_of(580)))
    assert grown(idle, (POWER, THERMAL, SOFTWARE, HARDWARE), 20) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("base", "reasons", "kept", "expected"),
    [(46, 0x4 | 0x20, 0.8, [1, 1, 0]), (60, 0x4 | 0x20 | 0x8 | 0x40, 0.5, [1, 1, 1])],
)
def test_a_hot_board_slows_down(bench, base, reasons, kept, expected):
    """Past its first threshold the driver lowers the clocks, past the second the hardware halves them."""
    node = bench(made(node=node_of(580), gpus=[gpu(temperature_base=base)], pods=[FULL]))
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu_at()) == reasons
    assert pynvml.nvmlDeviceGetClockInfo(gpu_at(), pynvml.NVML_CLOCK_SM) == round(1410 * kept)
    seconds = [count / 10**9 for count in grown(node, (THERMAL, SOFTWARE, HARDWARE), 5)]
    assert seconds == [5 * share for share in expected]


def test_other_violation_counters_exist_and_are_0(bench):
    node = bench(made(node=node_of(580), pods=[FULL]))
    assert grown(node, (76, 77, 78, 79, 80, 81, 271), 20) == [0] * 7


def test_states_and_modes_of_a_board(bench):
    """A small board rests in a lower state, a large one never does."""
    bench(
        made(
            gpus=[
                gpu(persistence=False, accounting=True, display_active=True),
                gpu(memory_temperature=True),
                gpu(accounting=True, mig={"instances": []}),
            ]
        )
    )
    small, large, cut = map(gpu_at, range(3))
    assert [pynvml.nvmlDeviceGetPerformanceState(board) for board in (small, large)] == [8, 0]
    assert [pynvml.nvmlDeviceGetPersistenceMode(board) for board in (small, large)] == [0, 1]
    assert [pynvml.nvmlDeviceGetAccountingMode(board) for board in (small, large, cut)] == [1, 0, 0]
    assert [pynvml.nvmlDeviceGetDisplayActive(board) for board in (small, large)] == [1, 0]
    assert pynvml.nvmlDeviceGetVbiosVersion(small) == "92.00.5C.00.02"
