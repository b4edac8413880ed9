"""Fixed answers of the fake driver, unsupported calls, and video engines."""

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, MISSING, NOT_SUPPORTED, code_of, fields_of, gpu_at, mig_at
from tests.fake.demo.making import gpu, instance, made, node_of, pod

BUSY = {"device": "{gpu:0}", "load": {"high": 50}}


def test_a_fixed_answer_replaces_the_simulated_one(bench):
    """It is independent of the load, specific to its arguments, and may be negative."""
    answers = {
        "nvmlDeviceGetPowerUsage": [77_001],
        "nvmlDeviceGetClockInfo:1": [999],
        "nvmlDeviceGetPowerManagementLimitConstraints": [1, 2],
        "nvmlDeviceGetUtilizationRates": [12, 13],
        "nvmlDeviceGetBAR1MemoryInfo": [100, 40, 60],
        "nvmlDeviceGetMarginTemperature": [-3],
        "field:82": [61],
        "field:186:1": [5_000],
        "field:193": [-9],
        "field:300": [7],
    }
    node = bench(made(node=node_of(570), gpus=[gpu(answers=answers)], pods=[pod("p", BUSY)]))
    node.step(10)
    assert pynvml.nvmlDeviceGetPowerUsage(gpu_at()) == 77_001
    assert [pynvml.nvmlDeviceGetClockInfo(gpu_at(), kind) for kind in (0, 1)] == [1410, 999]
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu_at()) == [1, 2]
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu_at())
    assert (rates.gpu, rates.memory) == (12, 13)
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(gpu_at()).bar1Used == 40
    assert pynvml.nvmlDeviceGetMarginTemperature(gpu_at()) == -3
    assert fields_of(gpu_at(), 82, (186, 1), 193, 300) == [61, 5_000, -9, 7]


def test_named_calls_and_fields_are_not_supported(bench):
    """A call, a call with these arguments, a field, a field of this scope: others still answer."""
    unsupported = [
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetMaxClockInfo:3",
        "nvmlDeviceGetMemoryErrorCounter:1:1:7",
        "field:74",
        "field:138",
        "field:165:1",
    ]
    links = {"nvlinks": 2, "switch": True}
    bench(made(gpus=[gpu(unsupported=unsupported, links=links, answers={"field:74": [5]})]))
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, gpu_at()) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMaxClockInfo(gpu_at(), 2) == 1215
    assert code_of(pynvml.nvmlDeviceGetMaxClockInfo, gpu_at(), 3) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMemoryErrorCounter(gpu_at(), 1, 0, 7) == 0
    assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, gpu_at(), 1, 1, 7) == NOT_SUPPORTED
    assert fields_of(gpu_at(), 74, (138, 0), (165, 0), (165, 1), 75) == [None, None, 1, None, 0]


def test_a_mig_device_has_answers_of_its_own(bench):
    name = "nvmlDeviceGetBAR1MemoryInfo"
    cuts = [instance(1, 0, answers={name: [10, 4, 6]}), instance(2, 1, unsupported=[name]), instance(3, 2)]
    bench(made(gpus=[gpu(mig={"instances": cuts})]))
    one, two, three = (mig_at(slot) for slot in range(3))
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(one).bar1Used == 4
    assert code_of(pynvml.nvmlDeviceGetBAR1MemoryInfo, two) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(three).bar1Total == 256 << 20


def test_an_answer_of_the_wrong_length_is_refused(bench):
    answers = {"nvmlDeviceGetEncoderUtilization": [1], "nvmlDeviceGetUtilizationRates": [1]}
    bench(made(gpus=[gpu(answers=answers)]))
    for function in (pynvml.nvmlDeviceGetEncoderUtilization, pynvml.nvmlDeviceGetUtilizationRates):
        assert code_of(function, gpu_at()) == INVALID


@pytest.mark.parametrize("function", ["nvmlDeviceGetEncoderStats", "nvmlDeviceGetJpgUtilization"])
def test_a_missing_function_cannot_have_an_answer(bench, function):
    bench(made(missing_functions=[function], gpus=[gpu(answers={function: [0, 0, 0, 0]})]))
    assert code_of(getattr(pynvml, function), gpu_at()) == MISSING


def test_the_video_engines_are_busy_while_a_process_encodes(bench):
    load = {"shape": "square", "low": 0, "high": 40, "period": 60}
    process = {"device": "{gpu:0}", "streams": 2, "load": load}
    node = bench(made(gpus=[gpu(count=2)], pods=[pod("p", process)]))
    assert pynvml.nvmlDeviceGetEncoderUtilization(gpu_at()) == [40, 167_000]
    assert pynvml.nvmlDeviceGetDecoderUtilization(gpu_at()) == [24, 167_000]
    assert pynvml.nvmlDeviceGetJpgUtilization(gpu_at()) == [0, 167_000]
    assert pynvml.nvmlDeviceGetOfaUtilization(gpu_at()) == [0, 167_000]
    assert pynvml.nvmlDeviceGetEncoderStats(gpu_at()) == (2, 60, 2400)
    assert pynvml.nvmlDeviceGetEncoderStats(gpu_at(1)) == (0, 0, 0)
    node.step(40)
    assert pynvml.nvmlDeviceGetEncoderUtilization(gpu_at()) == [0, 167_000]
    assert pynvml.nvmlDeviceGetEncoderStats(gpu_at()) == (0, 0, 0)


def test_older_boards_and_drivers_lack_later_engines(bench):
    """JPEG and optical flow came with Turing, and the driver's calls for them with a branch."""
    bench(made(gpus=[gpu(architecture=5)]))
    assert code_of(pynvml.nvmlDeviceGetJpgUtilization, gpu_at()) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetOfaUtilization, gpu_at()) == NOT_SUPPORTED
    bench(made(node=node_of(525)))
    assert code_of(pynvml.nvmlDeviceGetJpgUtilization, gpu_at()) == MISSING
