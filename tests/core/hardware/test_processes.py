"""Processes of a device, from lists and samples that a driver may answer."""

from ctypes import byref, memmove
from typing import Any

import pynvml
import pytest

from exporter.model import DeviceProcess
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.gpu_processes import InstanceIds, read_utilization, running
from exporter.nvml.readings.samples import SampleReader
from tests.core.hardware.making import GIB, LARGE, MIB, SMALL, Driver, gpu, process, ticking
from tests.core.hardware.tiny import (
    HANDLE,
    NOBODY,
    NOT_AVAILABLE,
    Function,
    address,
    answers,
    context,
    installed,
    lists,
    sample,
    samples,
)

GPU = "GPU-a"
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses_v3"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
SAMPLES = "nvmlDeviceGetProcessUtilization"
SAMPLE_CALLS = (SAMPLES, "nvmlDeviceGetProcessesUtilizationInfo")
OLDER = "nvmlDeviceGetComputeRunningProcesses_v2"
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE, UNKNOWN = 3, 4, 6, 7, 999


def listed(calls: Calls, instance: InstanceIds | None = None) -> dict[int, tuple[Any, set[str]]]:
    """Return memory and kinds of the processes by pid."""
    processes = running(calls, GPU, HANDLE, instance)
    assert processes is not None
    assert len({one.pid for one in processes}) == len(processes)
    return {one.pid: (one.memory, set(one.kinds)) for one in processes}


def test_the_three_lists_are_merged_by_pid():
    calls = installed(
        **{
            COMPUTE: lists(context(50, 30), context(41, 100)),
            GRAPHICS: lists(context(41, 100), context(43, 7)),
            MPS: lists(context(44, 60)),
        }
    )
    assert listed(calls) == {
        41: (100, {"compute", "graphics"}),
        43: (7, {"graphics"}),
        44: (60, {"mps"}),
        50: (30, {"compute"}),
    }
    assert list(listed(calls)) == [41, 43, 44, 50]


@pytest.mark.parametrize(
    ("first", "second", "memory"),
    [
        (100, 120, 120),
        (120, 100, 120),
        (NOT_AVAILABLE, 100, 100),
        (100, NOT_AVAILABLE, 100),
        (NOT_AVAILABLE,) * 2 + (None,),
    ],
)
def test_the_larger_memory_of_two_lists_counts(first: int, second: int, memory: int | None):
    calls = installed(**{COMPUTE: lists(context(41, first)), GRAPHICS: lists(context(41, second))})
    assert listed(calls) == {41: (memory, {"compute", "graphics"})}


@pytest.mark.parametrize("memory", [2**32 - 1, 2**47, 2**63, 2**64 - 2])
def test_process_memory_that_no_machine_has_is_unknown(memory: int):
    """As in a record of another length."""
    calls = installed(**{COMPUTE: lists(context(41, memory), context(42, 1000))})
    assert listed(calls) == {41: (None, {"compute"}), 42: (1000, {"compute"})}
    assert calls.records.errors == {(GPU, "nvmlDeviceGetComputeRunningProcesses", "ImpossibleValue"): 1}


@pytest.mark.parametrize("total", ["8 GiB", "24 GiB"])
def test_the_total_that_a_process_exceeds_is_unknown(total: str):
    """GPUs that share the memory of the machine may report a part of it as their total."""
    board = gpu("a", memory_total=total)
    driver = Driver(board, host_processes=[process(41, GPU), process(42, GPU)])
    there = [context(41, 20 * GIB), context(42, GIB)]

    def listing(*arguments: Any) -> int:
        return lists(*there)(*arguments)

    setattr(driver.library, COMPUTE, listing)
    reading = driver.read()
    assert [one.memory for one in reading.processes] == [20 * GIB, GIB]
    exceeded = total == "8 GiB"
    assert (reading.memory is None) == exceeded
    assert ("memory" in reading.withheld) == exceeded
    del there[0]
    assert driver.read().memory.total == int(total.split(maxsplit=1)[0]) * GIB


def test_an_empty_list_is_an_observation():
    calls = installed(**{COMPUTE: lists(), GRAPHICS: lists(), MPS: lists()})
    assert running(calls, GPU, HANDLE) == ()
    assert not calls.records.errors


@pytest.mark.parametrize("failing", [COMPUTE, GRAPHICS, MPS])
@pytest.mark.parametrize("code", [NO_PERMISSION, UNKNOWN])
def test_one_failing_list_makes_all_processes_unknown(failing: str, code: int):
    good = {name: lists(context(41)) for name in (COMPUTE, GRAPHICS, MPS)}
    calls = installed(**(good | {failing: answers(code)}))
    assert running(calls, GPU, HANDLE) is None
    assert calls.records.errors


def longer(*records: dict[str, int]) -> Function:
    """Return the list of a driver whose records have eight bytes more than the binding reads."""

    def function(_handle: Any, count: Any, infos: Any) -> int:
        room, count._obj.value = 0 if infos is None else count._obj.value, len(records)
        if room < len(records):
            return INSUFFICIENT_SIZE
        for place, record in enumerate(records):
            memmove(byref(infos, 32 * place), byref(pynvml.c_nvmlProcessInfo_v3_t(**record)), 24)
        return 0

    return function


def test_records_longer_than_the_binding_reads_are_requested_in_the_older_form():
    """They show impossible pids."""
    records = context(41, 100), context(42, 60), context(43, 7)
    calls = installed(**{COMPUTE: longer(*records), OLDER: lists(*records)})
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(HANDLE)[1].pid == 0
    for _ in range(2):
        assert {pid: memory for pid, (memory, _) in listed(calls).items()} == {41: 100, 42: 60, 43: 7}
    assert calls.records.errors == {(GPU, "nvmlDeviceGetComputeRunningProcesses", "ImpossiblePid"): 1}


@pytest.mark.parametrize("pid", [0, 2**32 - 1])
@pytest.mark.parametrize("name", [COMPUTE, GRAPHICS])
def test_a_list_with_an_impossible_pid_is_unknown(name: str, pid: int):
    garbage = lists(context(41), context(pid))
    functions = {COMPUTE: lists(context(41)), name: garbage, name.replace("_v3", "_v2"): garbage}
    calls = installed(**functions)
    for _ in range(2):
        assert running(calls, GPU, HANDLE) is None


@pytest.mark.parametrize("missing", [(GRAPHICS,), (MPS,), (GRAPHICS, MPS)])
def test_unsupported_lists_of_graphics_and_mps_are_empty(missing: tuple[str, ...]):
    functions: dict[str, Function] = {name: lists(context(41)) for name in (COMPUTE, GRAPHICS, MPS)}
    calls = installed(**(functions | dict.fromkeys(missing, answers(NOT_SUPPORTED))))
    for _ in range(2):
        assert list(listed(calls)) == [41]
    assert not calls.records.errors


@pytest.mark.parametrize("functions", [{}, {COMPUTE: answers(NOT_SUPPORTED)}])
def test_without_a_compute_list_processes_are_unknown(functions: dict[str, Function]):
    calls = installed(**functions)
    for _ in range(2):
        assert running(calls, GPU, HANDLE) is None


@pytest.mark.parametrize(
    ("gi", "ci", "there"),
    [
        (1, 0, True),
        (1, 1, False),
        (2, 0, False),
        (NOBODY, NOBODY, True),
        (1, NOBODY, True),
        (NOBODY, 0, True),
    ],
)
def test_processes_of_other_instances_are_left_out(gi: int, ci: int, there: bool):
    calls = installed(**{COMPUTE: lists(context(41, gi=gi, ci=ci))})
    assert (41 in listed(calls, instance=InstanceIds(1, 0))) is there


@pytest.mark.parametrize(
    ("gi", "known", "there"),
    [(0, (1, 2), None), (2, (1, 2), [41]), (NOBODY, (1, 2), [41, 42]), (0, (), [41]), (0, (0, 1), [41])],
)
def test_a_list_with_ids_of_unknown_instances_is_unknown(gi: int, known: tuple[int, ...], there: list[int]):
    """Drivers that leave the ids at zero do not say where a process runs."""
    calls = installed(**{COMPUTE: lists(context(41, gi=1, ci=0), context(42, gi=gi, ci=0))})
    processes = running(calls, GPU, HANDLE, InstanceIds(1, 0, known))
    assert there == (None if processes is None else [one.pid for one in processes])
    assert sum(calls.records.errors.values()) == (there is None)


def test_a_whole_gpu_has_the_processes_of_all_instances():
    calls = installed(**{COMPUTE: lists(context(41, gi=1, ci=0), context(42))})
    assert list(listed(calls)) == [41, 42]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([(41, 1001, 30), (42, 1002, 0)], {41: 30, 42: 0}),
        ([(41, 999, 30), (42, 1001, 20)], {42: 20}),
        ([(41, 1002, 30), (41, 1001, 90)], {41: 30}),
        ([(41, 1001, 90), (41, 1002, 30)], {41: 30}),
        ([(41, 1001, 117)], {41: 100}),
        ([(41, 1001, 2**32 - 1), (42, 1001, 9)], {41: None, 42: 9}),
        ([(1 << 22, 1001, 3), ((1 << 22) + 1, 1001, 3)], {1 << 22: 3, (1 << 22) + 1: None}),
        ([(41, 1001, 30), (0, 0, 0), (0, 0, 0)], {41: 30}),
    ],
    ids=[
        "percent",
        "old",
        "newest first",
        "newest last",
        "over 100",
        "implausible",
        "impossible pid",
        "empty",
    ],
)
def test_utilization_by_pid_since_the_last_read(
    records: list[tuple[int, int, int]], expected: dict[int, int | None]
):
    """The newest sample of a process counts; old, empty and impossible ones do not."""
    reader = SampleReader(ticking())
    read_utilization(reader, installed(**{SAMPLES: samples(sample(41, 1000, 1))}), GPU, HANDLE, ())
    calls = installed(**{SAMPLES: samples(*(sample(*record) for record in records))})
    assert read_utilization(reader, calls, GPU, HANDLE, ()) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [(NOT_FOUND, {}), (0, {}), (NOT_SUPPORTED, None), (NO_PERMISSION, None), (UNKNOWN, None)],
)
def test_no_samples_and_no_answer_differ(code: int, expected: dict[int, int] | None):
    calls = installed(**{SAMPLES: answers(code)})
    assert read_utilization(SampleReader(ticking()), calls, GPU, HANDLE, ()) == expected
    assert sum(calls.records.errors.values()) == (code in (NO_PERMISSION, UNKNOWN))


def test_each_gpu_is_asked_for_samples_since_its_own_last_one():
    asked: list[int] = []
    reader = SampleReader(ticking())
    early = installed(**{SAMPLES: samples(sample(41, 1000, 5), sample(42, 3000, 5), asked=asked)})
    read_utilization(reader, early, "GPU-a", HANDLE, ())
    late = installed(**{SAMPLES: samples(sample(43, 9000, 5), asked=asked)})
    read_utilization(reader, late, "GPU-b", HANDLE, ())
    nothing = installed(**{SAMPLES: samples(asked=asked)})
    for name in ("GPU-a", "GPU-b", "GPU-a"):
        read_utilization(reader, nothing, name, HANDLE, ())
    assert asked == [0, 0, 3000, 9000, 3000]


@pytest.mark.parametrize("answers_to", [0, 1])
def test_samples_come_from_the_call_that_the_driver_supports(answers_to: int):
    """One of the two forms is asked, once it is known which."""
    other = SAMPLE_CALLS[1 - answers_to]
    driver = Driver(
        gpu("a", unsupported=[other]), host_processes=[process(41, GPU, load={"high": 60}), process(42, GPU)]
    )
    for _ in range(3):
        assert driver.read().process_utilization == {41: 60}
        driver.advance(10)
    assert driver.asked(SAMPLE_CALLS[answers_to], GPU) == 2 * 3
    assert driver.asked(other, GPU) == answers_to
    assert not driver.errors()


def test_without_both_forms_the_samples_are_unknown():
    driver = Driver(gpu("a", unsupported=list(SAMPLE_CALLS)), host_processes=[process(41, GPU)])
    for _ in range(3):
        assert driver.read().process_utilization is None
    assert sum(driver.asked(name, GPU) for name in SAMPLE_CALLS) == 2
    assert not driver.errors()


@pytest.mark.parametrize("instances", [(), (SMALL, LARGE)])
def test_processes_come_from_the_newest_list_where_no_other_is_supported(instances: Any):
    older = [name.replace("_v3", version) for name in (COMPUTE, GRAPHICS, MPS) for version in ("_v3", "_v2")]
    parts = [{**part, "unsupported": older} for part in instances]
    boards = gpu("a", *parts, architecture=9, unsupported=older)
    device = "MIG-small" if instances else GPU
    kinds = {41: "compute", 42: "graphics", 43: "mps"}
    held = [process(pid, device, kind=kind, memory=f"{pid} MiB") for pid, kind in kinds.items()]
    driver = Driver(boards, host_processes=held)
    for _ in range(3):
        reading = driver.read()
        [there] = [one.processes for one in reading.mig if one.uuid == device] or [reading.processes]
        assert {one.pid: (one.memory, set(one.kinds)) for one in there} == {
            pid: (pid * MIB, {kind}) for pid, kind in kinds.items()
        }
    assert not driver.errors()


def test_a_failed_read_does_not_move_the_window():
    asked: list[int] = []
    reader = SampleReader(ticking())
    read_utilization(reader, installed(**{SAMPLES: samples(sample(41, 1000, 5))}), GPU, HANDLE, ())
    assert read_utilization(reader, installed(**{SAMPLES: answers(UNKNOWN)}), GPU, HANDLE, ()) is None
    read_utilization(
        reader, installed(**{SAMPLES: samples(sample(41, 1500, 5), asked=asked)}), GPU, HANDLE, ()
    )
    assert asked == [1000]


def test_time_stamps_of_removed_gpus_are_forgotten():
    asked: list[int] = []
    reader = SampleReader(ticking())
    calls = installed(**{SAMPLES: samples(sample(41, 1000, 5), asked=asked)})
    for name in ("GPU-a", "GPU-b"):
        read_utilization(reader, calls, name, HANDLE, ())
    reader.keep_only(["GPU-b"])
    for name in ("GPU-a", "GPU-b"):
        read_utilization(reader, calls, name, HANDLE, ())
    assert asked == [0, 0, 0, 1000]


def test_a_process_that_stops_is_idle_from_the_next_read():
    driver = Driver(gpu("a"), host_processes=[process(41, GPU, load={"high": 60})])
    assert [driver.read().process_utilization for _ in range(2)] == [{41: 60}, {}]
    driver.advance(10)
    assert driver.read().process_utilization == {41: 60}


def test_beside_implausible_samples_no_process_is_known_to_be_idle():
    """A driver reported two zombies, and no samples of the processes that run."""
    zombies = sample(50554, 217_144_956_601_725, 37100), sample(50021, 158_819_300_671_603, 38305)
    calls = installed(**{SAMPLES: samples(*zombies, sample(50017, 49_936, 0), *[sample(0, 0, 0)] * 97)})
    running_there = [DeviceProcess(pid=pid, memory=1, kinds=frozenset({"compute"})) for pid in (41, 50017)]
    assert read_utilization(SampleReader(ticking()), calls, GPU, HANDLE, running_there) == {
        41: None,
        50554: None,
        50021: None,
        50017: 0,
    }
    assert calls.records.errors == {(GPU, SAMPLES, "ImpossibleSample"): 1}


def test_a_sweep_reports_unknown_utilization_beside_implausible_samples():
    driver = Driver(gpu("a"), host_processes=[process(41, GPU), process(42, GPU)])
    setattr(driver.library, SAMPLES, samples(sample(50554, 1000, 37100), sample(42, 1001, 7)))
    reading = driver.read()
    assert [one.pid for one in reading.processes] == [41, 42]
    assert reading.process_utilization == {41: None, 42: 7, 50554: None}
    assert reading.withheld["utilization"] == "ImpossibleSample"


def test_a_process_listed_by_several_compute_instances_is_attributed_to_none():
    halves = [LARGE | {"uuid": f"MIG-{ci}", "ci": ci, "profile": "1c.3g.8gb"} for ci in (0, 1)]
    driver = Driver(gpu("a", *halves, SMALL))
    there = {"MIG-0": (41, 42), "MIG-1": (42,), "MIG-small": (42,)}

    def listing(handle: Any, count: Any, infos: Any) -> int:
        uuid = driver.library.board.by_address[address(handle)].spec.uuid
        return lists(*(context(pid) for pid in there[uuid]))(handle, count, infos)

    setattr(driver.library, COMPUTE, listing)
    reading = driver.read()
    pids = {
        mig.uuid: None if mig.processes is None else [one.pid for one in mig.processes] for mig in reading.mig
    }
    assert pids == {"MIG-0": None, "MIG-1": None, "MIG-small": [42]}
