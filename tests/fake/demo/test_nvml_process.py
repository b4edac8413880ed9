"""Processes on the fake driver: lists, and samples of utilization."""

import ctypes

import pynvml
import pytest

from tests.fake.demo.driver import gpu_at, listed
from tests.fake.demo.making import MIB, WALL, gpu, made, pod

SECOND = 1_000_000
START = int(WALL) * SECOND


def utilization(last_seen: int) -> dict[int, tuple[int, int]]:
    """Return pid → (percent, seconds after the start)."""
    samples = pynvml.nvmlDeviceGetProcessUtilization(gpu_at(), last_seen)
    return {process.pid: (process.smUtil, (process.timeStamp - START) // SECOND) for process in samples}


def on_gpu(pid: int, **more: object) -> dict[str, object]:
    """Return a process on the only GPU."""
    return {"device": "{gpu:0}", "pid": pid, **more}


def test_each_kind_of_process_is_in_its_own_list(bench):
    processes = [on_gpu(11, memory="1 GiB"), on_gpu(12, kind="mps"), on_gpu(13, kind="graphics")]
    node = bench(made(pods=[pod("p", *processes)]))
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())
    assert [(process.pid, process.usedGpuMemory, process.gpuInstanceId) for process in compute] == [
        (11, 1024 * MIB, 0xFFFFFFFF)
    ]
    assert [process.pid for process in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu_at())] == [12]
    assert [process.pid for process in pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu_at())] == [13]
    assert listed(node, "nvmlDeviceGetGraphicsRunningProcesses_v2", gpu_at()) == [13]


def test_an_unknown_memory_is_the_sentinel(bench):
    """All ones, which the binding turns into None."""
    bench(made(pods=[pod("p", on_gpu(11, memory=None))]))
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())[0].usedGpuMemory is None
    infos, count = (pynvml.c_nvmlProcessInfo_v2_t * 1)(), ctypes.c_uint(1)
    assert pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v2(gpu_at(), ctypes.byref(count), infos) == 0
    assert infos[0].usedGpuMemory == 2**64 - 1


def test_the_first_version_of_a_list_has_pid_and_memory_only(bench):
    class ProcessInfoV1(ctypes.Structure):
        _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))

    node = bench(made(pods=[pod("p", on_gpu(11, memory="1 MiB"), on_gpu(12))]))
    infos, count = (ProcessInfoV1 * 4)(), ctypes.c_uint(4)
    assert node.nvml.nvmlDeviceGetComputeRunningProcesses(gpu_at(), ctypes.byref(count), infos) == 0
    assert [(infos[n].pid, infos[n].usedGpuMemory) for n in range(count.value)] == [(11, MIB), (12, 0)]


def test_a_list_too_long_for_its_array_is_refused_with_its_length(bench):
    node = bench(made(pods=[pod("p", on_gpu(11), on_gpu(12))]))
    count = ctypes.c_uint(0)
    list_processes = node.nvml.nvmlDeviceGetComputeRunningProcesses_v3
    assert list_processes(gpu_at(), ctypes.byref(count), None) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 2
    count.value = 1
    infos = (pynvml.c_nvmlProcessInfo_v2_t * 1)()
    assert list_processes(gpu_at(), ctypes.byref(count), infos) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


@pytest.mark.parametrize(("version", "listed"), [("550.90.07", []), ("530.41.03", [11])])
def test_without_host_pids_newer_drivers_list_no_process(bench, version, listed):
    """Samples have host pids."""
    node = {"name": "n", "driver_version": version}
    bench(made(node=node, host_pid=False, pods=[pod("p", on_gpu(11, load={"high": 20}))]))
    assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())] == listed
    assert utilization(0) == {11: (20, 0)}


def test_only_newer_samples_are_returned(bench):
    """Without newer ones the call returns NOT_FOUND."""
    node = bench(made(pods=[pod("p", on_gpu(11, load={"high": 20}))]))
    assert utilization(0) == {11: (20, 0)}
    with pytest.raises(pynvml.NVMLError_NotFound):
        utilization(START)
    node.step(5)
    assert utilization(START) == {11: (20, 5)}
    with pytest.raises(pynvml.NVMLError_NotFound):
        utilization(START + 5 * SECOND)


def test_both_forms_of_the_call_return_the_same_samples(bench):
    node = bench(made(pods=[pod("p", on_gpu(11, load={"high": 20}), on_gpu(12, load={"high": 5}))]))
    node.step(5)
    for last_seen in (0, START):
        samples = pynvml.nvmlDeviceGetProcessesUtilizationInfo(gpu_at(), last_seen)
        newer = {one.pid: (one.smUtil, (one.timeStamp - START) // SECOND) for one in samples}
        assert newer == utilization(last_seen)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessesUtilizationInfo(gpu_at(), START + 5 * SECOND)


def test_the_newest_list_has_each_kind_of_process(bench):
    """From Hopper on."""
    processes = [on_gpu(11, memory="1 GiB"), on_gpu(12, kind="graphics"), on_gpu(13, kind="mps")]
    for architecture in (8, 9):
        bench(made(gpus=[gpu(architecture=architecture)], pods=[pod("p", *processes)]))
        for mode, pid in enumerate((11, 12, 13)):
            arguments = gpu_at(), pynvml.nvmlProcessDetailList_v1, mode
            if architecture == 8:
                with pytest.raises(pynvml.NVMLError_NotSupported):
                    pynvml.nvmlDeviceGetRunningProcessDetailList(*arguments)
            else:
                listed = pynvml.nvmlDeviceGetRunningProcessDetailList(*arguments)
                assert [process.pid for process in listed] == [pid]


def test_each_process_that_ran_has_one_record_with_its_mean(bench):
    square = {"shape": "square", "low": 0, "high": 80, "period": 20}
    processes = [on_gpu(11, load=square), on_gpu(12), on_gpu(13, load={"high": 10})]
    node = bench(made(pods=[pod("p", *processes)]))
    node.step(5)
    node.step(10)
    node.step(15)
    assert utilization(0) == {11: (40, 5), 13: (10, 15)}
    assert utilization(START + 5 * SECOND) == {13: (10, 15)}


def test_without_a_busy_process_there_are_no_records(bench):
    node = bench(made(pods=[pod("p", on_gpu(11, memory="1 GiB"))]))
    node.step(1)
    with pytest.raises(pynvml.NVMLError_NotFound):
        utilization(0)
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu_at()).gpu == 0


def test_a_sizing_call_that_succeeds_raises_error_zero_in_the_binding(bench):
    fault = {"kind": "nvml_error", "function": "nvmlDeviceGetProcessUtilization", "code": "SUCCESS"}
    bench(made(faults=[fault]))
    with pytest.raises(pynvml.NVMLError) as caught:
        utilization(0)
    assert caught.value.value == 0


def test_compute_time_is_shared_by_demand(bench):
    """The sum is never above 100."""
    processes = [on_gpu(11, load={"high": 100}), on_gpu(12, load={"high": 50}), on_gpu(13, load={"high": 50})]
    bench(made(pods=[pod("p", *processes)]))
    assert {pid: sm for pid, (sm, _) in utilization(0).items()} == {11: 50, 12: 25, 13: 25}
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu_at()).gpu == 100


def test_the_mps_server_has_the_samples_of_its_clients(bench):
    """As on a real GPU; processes without MPS have their own."""
    processes = [on_gpu(11, kind="mps", load={"high": 20}), on_gpu(12, kind="mps", load={"high": 15})]
    server = on_gpu(13, command="nvidia-cuda-mps-server")
    bench(made(pods=[pod("p", *processes, server, on_gpu(14, load={"high": 10}))]))
    assert {pid: sm for pid, (sm, _) in utilization(0).items()} == {13: 35, 14: 10}
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu_at()).gpu == 45


def test_a_late_process_gets_the_remaining_memory(bench):
    late = {"kind": "pod_add", "at": 5, "pod": pod("late", on_gpu(12, memory="14 GiB"))}
    node = bench(made(pods=[pod("p", on_gpu(11, memory="10 GiB"))], faults=[late]))
    node.step(5)
    info = pynvml.nvmlDeviceGetMemoryInfo(gpu_at(), version=pynvml.nvmlMemory_v2)
    assert info.free == 0
    listed = {
        process.pid: process.usedGpuMemory
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())
    }
    assert listed == {11: 10240 * MIB, 12: (16384 - 512 - 100 - 10240) * MIB}


def test_a_memory_curve_grows_in_whole_mib(bench):
    ramp = {"shape": "ramp", "low": "1 GiB", "high": "3 GiB", "period": 100}
    node = bench(made(pods=[pod("p", on_gpu(11, memory=ramp))]))
    seen = []
    for t in (0, 25, 50):
        node.step(t)
        seen.append(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())[0].usedGpuMemory)
    assert seen == [1024 * MIB, 1536 * MIB, 2048 * MIB]


def test_the_driver_keeps_a_limited_number_of_samples(bench):
    node = bench(made(gpus=[gpu()], pods=[pod("p", on_gpu(11, load={"high": 20}))]))
    for t in range(150):
        node.step(t)
    assert len(node.gpus[0].samples) == 100
