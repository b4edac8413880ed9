"""GPUs that are removed and added, and a driver that is reloaded, in the library and in files."""

import os
import threading
from pathlib import Path

import pynvml
import pytest

from exporter.demo.present import present
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import dump, parse
from exporter.demo.tree import Tree
from tests.fake.demo.driver import code_of, gpu_at
from tests.fake.demo.making import gpu, made, pod
from tests.waiting import LIMIT_SECONDS, wait_until

DRIVER = "sys/bus/pci/drivers/nvidia"
RELOAD = {"kind": "driver_reload", "at": 10, "for": 10}


def absent(place: int, at: float, seconds: float) -> dict[str, object]:
    """Return the fault of a GPU that is removed for a while."""
    return {"kind": "gpu_absent", "gpu": place, "at": at, "for": seconds}


def listed() -> list[str]:
    """Return the uuids of the GPUs by index, or the name of the error instead."""
    return [_uuid(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _uuid(index: int) -> str:
    try:
        return str(pynvml.nvmlDeviceGetUUID(gpu_at(index)))
    except pynvml.NVMLError as error:
        return type(error).__name__


def reopen() -> None:
    """Shut the library down and initialise it again."""
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()


def test_a_removed_gpu_is_lost_until_the_library_is_opened_again(bench):
    """It keeps its index, even when it returns."""
    node = bench(made(gpus=[gpu(count=2)], faults=[absent(0, 10, 10)]))
    a, b = (board.uuid for board in node.scenario.gpus)
    handle = gpu_at()
    node.step(10)
    assert listed() == ["NVMLError_GpuIsLost", b]
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, handle) == lost
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 0) == lost
    node.step(20)
    assert listed() == ["NVMLError_GpuIsLost", b]
    reopen()
    assert listed() == [a, b]


def test_the_index_of_a_gpu_counts_those_present_when_the_library_is_opened(bench):
    node = bench(made(gpus=[gpu(count=2)], faults=[absent(0, 10, 10)]))
    node.step(10)
    reopen()
    assert listed() == [node.scenario.gpus[1].uuid]


def test_an_added_gpu_is_listed_once_the_library_is_opened_again(bench):
    node = bench(made(gpus=[gpu(count=2)], faults=[absent(1, 0, 10)]))
    a, b = (board.uuid for board in node.scenario.gpus)
    node.step(10)
    assert listed() == [a]
    reopen()
    assert listed() == [a, b]


def test_counters_of_a_gpu_restart_when_it_returns(bench):
    """Those of another GPU continue."""
    node = bench(made(gpus=[gpu(count=2)], faults=[absent(0, 10, 10)]))
    for t in (5, 10, 20, 21):
        node.step(t)
    reopen()
    energy = [pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu_at(index)) for index in range(2)]
    assert energy == [20_000, 21 * 20_000]


def test_without_the_driver_every_call_fails_but_buffers_and_sets_can_be_freed(bench):
    node = bench(made(gpus=[gpu(architecture=9)], faults=[RELOAD]))
    handle = gpu_at()
    sample, events = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlEventSetCreate()
    node.step(10)
    for call, arguments in (
        (pynvml.nvmlDeviceGetCount, ()),
        (pynvml.nvmlDeviceGetPowerUsage, (handle,)),
        (pynvml.nvmlSystemGetDriverVersion, ()),
        (pynvml.nvmlEventSetWait_v2, (events, 0)),
        (pynvml.nvmlGpmSampleGet, (handle, sample)),
    ):
        assert code_of(call, *arguments) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlGpmSampleFree(sample)
    pynvml.nvmlEventSetFree(events)
    pynvml.nvmlShutdown()
    assert (node.nvml.opened, node.nvml.gpm.live, len(node.nvml.events)) == (0, 0, 0)
    assert code_of(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    node.step(20)
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1


def test_after_a_reload_an_open_library_must_be_initialised_again(bench):
    """Earlier event sets get no more events."""
    node = bench(made(faults=[RELOAD, {"kind": "xid", "at": 20, "device": "{gpu:0}", "xid": 79}]))
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu_at(), 0x8, events)
    node.step(10)
    node.step(20)
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert node.nvml.events.settle(0)
    reopen()
    assert pynvml.nvmlDeviceGetCount() == 1


def test_energy_counts_from_the_load_of_the_driver(bench):
    node = bench(made(faults=[RELOAD]))
    for t in (8, 10, 19, 20, 22):
        node.step(t)
    reopen()
    handle = gpu_at()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 3 * 20_000


def test_a_slow_init_blocks_its_caller_only(bench):
    hang = {"kind": "nvml_hang", "function": "nvmlInitWithFlags"}
    node = bench(made(faults=[hang]), opened=False)
    thread = threading.Thread(target=pynvml.nvmlInit)
    thread.start()
    wait_until(lambda: node.nvml.calls["nvmlInitWithFlags", ""])
    node.step(1)
    assert node.nvml.opened == 0
    node.nvml.release()
    thread.join(LIMIT_SECONDS)
    assert node.nvml.opened == 1


def busy(*faults: dict[str, object]) -> Scenario:
    """Return a node of two GPUs with a process each."""
    pods = [pod(f"p{n}", {"pid": 100 + n, "device": f"{{gpu:{n}}}"}) for n in range(2)]
    return made(gpus=[gpu(count=2)], pods=pods, faults=list(faults))


@pytest.mark.parametrize(("fault", "ended"), [(absent(0, 10, 10), {100}), (RELOAD, {100, 101})])
def test_processes_of_a_removed_gpu_end_and_are_started_again(fault, ended):
    """In the same pod."""
    scenario = busy(fault)
    assert {running.process.pid for running in present(scenario, 10).running} == {100, 101} - ended
    assert len(present(scenario, 10).pods) == 2
    born = {running.process.pid: running.born for running in present(scenario, 25).running}
    assert {pid for pid, when in born.items() if when == 20} == ended
    assert parse(dump(scenario)) == scenario


def bound(root: Path) -> list[str] | None:
    """Return the PCI addresses that the driver is bound to, None without a driver."""
    folder = root / DRIVER
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else None


def test_sysfs_has_a_link_for_each_gpu_the_driver_is_bound_to(tmp_path):
    boards = [gpu(pci_bus_id="00000000:07:00.0"), gpu(pci_bus_id="00000001:0F:00.0")]
    scenario = made(gpus=boards, faults=[absent(1, 10, 10)])
    tree = Tree(scenario, tmp_path, booted=0, uptime=30)
    tree.create()
    seen = []
    for t in (0, 10, 20):
        tree.step(present(scenario, t))
        seen.append(bound(tmp_path))
    both = ["0000:07:00.0", "0001:0f:00.0"]
    assert seen == [both, both[:1], both]
    assert os.path.realpath(tmp_path / DRIVER / both[1]) == str(tmp_path / "sys/devices/pci0001:00" / both[1])


def test_the_files_of_the_driver_exist_while_it_is_loaded(tmp_path):
    scenario = made(faults=[RELOAD])
    tree = Tree(scenario, tmp_path, booted=0, uptime=30)
    tree.create()
    version = tmp_path / "sys/module/nvidia/version"
    seen = []
    for t in (0, 10, 11, 20):
        tree.step(present(scenario, t))
        seen.append((version.exists(), bound(tmp_path) is not None))
    assert seen == [(True, True), (False, False), (False, False), (True, True)]


def test_events_are_settled_once_their_taker_waits_again(bench):
    node = bench(made(faults=[{"kind": "xid", "at": 10, "device": "{gpu:0}", "xid": 31}]))
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu_at(), 0x8, events)
    assert node.nvml.events.settle(0)
    node.step(10)
    assert not node.nvml.events.settle(0)
    pynvml.nvmlEventSetWait_v2(events, 0)
    assert not node.nvml.events.settle(0)
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == pynvml.NVML_ERROR_TIMEOUT
    assert node.nvml.events.settle(0)
