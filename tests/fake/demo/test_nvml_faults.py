"""Scripted faults of the driver, and the count of its calls."""

import threading
import time

import pynvml
import pytest

from tests.fake.demo.driver import gpu_at
from tests.fake.demo.making import Bench, gpu, instance, made
from tests.waiting import LIMIT_SECONDS, wait_until

POWER = "nvmlDeviceGetPowerUsage"


def power(index: int) -> int | str:
    """Return the power of a GPU, or the name of the error."""
    try:
        return int(pynvml.nvmlDeviceGetPowerUsage(gpu_at(index)))
    except pynvml.NVMLError as error:
        return type(error).__name__


def test_an_error_is_active_for_its_time_and_its_device_only(bench):
    fault = {
        "kind": "nvml_error",
        "at": 20,
        "for": 10,
        "function": POWER,
        "device": "{gpu:1}",
        "code": "UNKNOWN",
    }
    node = bench(made(gpus=[gpu(count=2)], faults=[fault]))
    seen = []
    for t in (0, 19, 20, 29, 30):
        node.step(t)
        seen.append((power(0), power(1)))
    good, bad = (20_000, 20_000), (20_000, "NVMLError_Unknown")
    assert seen == [good, good, bad, bad, good]


def test_a_lost_gpu_fails_every_call_about_it_and_its_instances(bench):
    fault = {"kind": "nvml_error", "at": 5, "device": "{gpu:1}", "code": "GPU_IS_LOST"}
    cut = gpu(mig={"instances": [instance(1, 0)]})
    node = bench(made(gpus=[gpu(), cut], faults=[fault]))
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu_at(1), 0)
    node.step(5)
    for call in (
        lambda: gpu_at(1),
        lambda: pynvml.nvmlDeviceGetMemoryInfo(mig),
    ):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call()
    assert pynvml.nvmlDeviceGetCount() == 2
    assert power(0) == 20_000


def test_a_fault_of_one_mig_device_spares_its_parent(bench):
    fault = {"kind": "nvml_error", "device": "{gpu:0/mig:0}", "code": "NO_PERMISSION"}
    bench(made(gpus=[gpu(mig={"instances": [instance(1, 0), instance(2, 1)]})], faults=[fault]))
    parent = gpu_at()
    assert pynvml.nvmlDeviceGetMemoryInfo(parent).total
    good = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 1)
    assert pynvml.nvmlDeviceGetMemoryInfo(good).total
    bad = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceGetMemoryInfo(bad)


def test_a_driver_that_is_not_loaded_cannot_be_opened(bench):
    fault = {"kind": "nvml_error", "function": "nvmlInitWithFlags", "code": "DRIVER_NOT_LOADED"}
    bench(made(gpus=[], faults=[fault]), opened=False)
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()


def test_a_hang_for_some_seconds_returns_after_them(bench):
    bench(made(faults=[{"kind": "nvml_hang", "function": POWER, "seconds": 0.05}]))
    began = time.monotonic()
    assert power(0) == 20_000
    assert time.monotonic() - began >= 0.05


def hanging(node: Bench) -> tuple[threading.Thread, list[int | str]]:
    """Call in a thread, and wait until the call has reached the driver."""
    answers: list[int | str] = []
    thread = threading.Thread(target=lambda: answers.append(power(0)))
    thread.start()
    wait_until(lambda: node.nvml.calls[POWER, node.scenario.gpus[0].uuid])
    return thread, answers


@pytest.mark.parametrize("ending", ["the fault is over", "released"])
def test_a_hang_returns_when_its_fault_is_over_or_all_are_released(bench, ending):
    """And blocks no other call."""
    fault = {"kind": "nvml_hang", "function": POWER, "device": "{gpu:0}", "for": 10}
    node = bench(made(gpus=[gpu(count=2)], faults=[fault]))
    thread, answers = hanging(node)
    assert power(1) == 20_000
    assert thread.is_alive()
    if ending == "released":
        node.nvml.release()
    else:
        node.step(10)
    thread.join(LIMIT_SECONDS)
    assert answers == [20_000]
    assert power(0) == 20_000


def test_calls_are_counted_by_function_and_device(bench):
    """Also calls that fail; calls about no device count under ""."""
    node = bench(made(gpus=[gpu(count=2, unsupported=[POWER])]))
    uuids = [board.uuid for board in node.scenario.gpus]
    assert [power(0), power(0), power(1)] == ["NVMLError_NotSupported"] * 3
    assert node.nvml.calls[POWER, uuids[0]] == 2
    assert node.nvml.calls["nvmlDeviceGetHandleByIndex_v2", uuids[1]] == 1
    assert node.nvml.calls["nvmlInitWithFlags", ""] == 1
    assert node.nvml.total_calls == 7


def test_no_call_of_many_threads_is_lost(bench):
    """While the node changes."""
    node = bench(made(gpus=[gpu(count=2)]))
    threads = [threading.Thread(target=lambda: [power(1) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for t in range(50):
        node.step(t)
    for thread in threads:
        thread.join()
    assert node.nvml.calls[POWER, node.scenario.gpus[1].uuid] == 1600
