"""Watching GPUs while the driver fails, hangs, is opened anew, or floods us with events."""

import threading
import time
from typing import Any

import pynvml
import pytest

from exporter.model import DeviceEvent
from exporter.nvml import event_wait
from exporter.nvml.driver.calls import Calls
from exporter.nvml.events import RECENT, EventLog, EventWatcher
from tests.hardware import tiny
from tests.hardware.making import GPU_BUDGET_SECONDS, Driver, gpu
from tests.hardware.watching import MIG_CONFIG, XID, Watch, Watched, until

WAIT = "nvmlEventSetWait_v2"


@pytest.mark.parametrize(
    ("code", "name"),
    [("UNKNOWN", "Unknown"), ("GPU_IS_LOST", "GpuIsLost"), ("UNINITIALIZED", "Uninitialized")],
)
def test_a_failed_wait_ends_without_a_loop(watch: Watch, code: str, name: str) -> None:
    """After one failure nobody waits any more, until a sweep begins anew with another set."""
    watched = watch(gpu("a"))
    watched.happen(XID, 31)
    watched.noted(1)
    watched.driver.fail(code, WAIT)
    until(lambda: not watched.watched())
    waits = watched.driver.asked(WAIT)
    time.sleep(0.05)
    assert watched.driver.asked(WAIT) == waits

    watched.driver.recover()
    watched.start()
    watched.happen(XID, 31)
    until(lambda: watched.counts() == {("xid", 31): 2})

    assert watched.watched() == {"GPU-a"}
    assert watched.calls.errors == {("", WAIT, name): 1}
    assert watched.driver.asked("nvmlEventSetFree") == 1


def test_a_wait_that_keeps_failing_costs_one_call_a_sweep(watch: Watch) -> None:
    """Each sweep tries once, and says each time that it failed."""
    watched = watch(gpu("a"))
    watched.driver.fail("UNKNOWN", WAIT)
    until(lambda: not watched.watched())
    for sweep in range(1, 4):
        waits = watched.driver.asked(WAIT)
        watched.start()
        until(lambda: not watched.watched())

        assert watched.driver.asked(WAIT) == waits + 1
        assert watched.calls.errors["", WAIT, "Unknown"] == sweep


def test_time_without_events_is_no_failure(watch: Watch) -> None:
    """A wait that times out again and again goes on, and is not counted."""
    watched = watch(gpu("a"))
    until(lambda: watched.driver.asked(WAIT) > 3)

    assert watched.watched() == {"GPU-a"}
    assert watched.calls.errors == {}


def test_a_driver_that_cannot_wait_is_not_asked_again(watch: Watch) -> None:
    """A library without the call of the wait is left alone, until it is opened anew."""
    watched = watch(gpu("a"), missing=[WAIT])
    until(lambda: not watched.watched())
    watched.start()
    watched.start()

    assert watched.driver.asked("nvmlEventSetCreate") == 1
    assert watched.calls.errors == {}

    watched.reopen()
    assert watched.driver.asked("nvmlEventSetCreate") == 2


def test_counts_outlive_the_driver(watch: Watch) -> None:
    """After the driver was opened anew the same GPUs are watched and their counts go on."""
    watched = watch(gpu("a"), gpu("b"))
    watched.happen(XID, 79)
    watched.noted(1)
    watched.reopen()
    watched.happen(XID, 79)

    assert watched.noted(2) == [("GPU-a", "", "xid", 79)] * 2
    assert watched.counts() == {("xid", 79): 2}
    assert watched.watched() == {"GPU-a", "GPU-b"}


def test_stopping_does_not_wait_for_an_event() -> None:
    """A thread that is blocked in the driver comes out within a second, and its set is freed after that."""
    watched = Watched(Driver())
    watched.start()
    until(lambda: watched.driver.asked(WAIT) == 1)
    began = time.monotonic()

    assert watched.watcher.stop()
    assert time.monotonic() - began < event_wait.END_SECONDS
    assert watched.watched() == frozenset()
    assert watched.driver.asked("nvmlEventSetFree") == 1
    watched.close()
    assert watched.driver.library.events.misuse == {}


def test_a_wait_that_hangs_is_left_alone(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its set is not freed under it and no second thread is started; when it returns all goes on."""
    monkeypatch.setattr(event_wait, "END_SECONDS", 0.05)
    watched = watch(gpu("a"))
    watched.driver.hang(WAIT)
    before = threading.active_count()
    # On a busy machine the thread takes its time to come back to the call.
    time.sleep(0.5)

    assert not watched.watcher.stop()
    watched.start()
    watched.start()
    assert watched.watched() == frozenset()
    assert watched.driver.asked("nvmlEventSetFree") == 0
    assert threading.active_count() == before
    assert len([each for each in caplog.records if "has not returned" in each.message]) == 1

    watched.driver.recover()
    until(watched.watcher.stop)
    watched.start()
    watched.happen(XID, 13)
    assert watched.noted(1) == [("GPU-a", "", "xid", 13)]


def test_a_wait_that_hangs_is_noticed_by_the_next_sweep(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is watched while it hangs, so that no zero stands for what may have occurred."""
    monkeypatch.setattr(event_wait, "END_SECONDS", 0.01)
    monkeypatch.setattr(event_wait, "HUNG_SECONDS", 0.01)
    watched = watch(gpu("a"))
    watched.driver.hang(WAIT)

    def unwatched() -> bool:
        watched.start()
        return not watched.watched()

    until(unwatched)
    monkeypatch.undo()
    watched.driver.recover()

    def watched_again() -> bool:
        watched.start()
        return bool(watched.watched())

    until(watched_again)
    watched.happen(XID, 13)
    assert watched.noted(1) == [("GPU-a", "", "xid", 13)]


def test_stopping_what_was_never_started_is_done_at_once(watch: Watch) -> None:
    """A node without events has nothing to stop, and stopping twice is as once."""
    watched = watch(gpu("a", unsupported=["nvmlDeviceGetSupportedEventTypes"]))

    assert watched.watcher.stop()
    assert watched.watcher.stop()
    assert watched.driver.asked("nvmlEventSetFree") == 0


def _library(wait: Any, **functions: Any) -> EventWatcher:
    """Watch one GPU of a driver whose wait is written out by hand."""
    calls = tiny.installed(
        nvmlDeviceGetSupportedEventTypes=tiny.writes(XID | MIG_CONFIG),
        nvmlEventSetCreate=tiny.answers(0),
        nvmlDeviceRegisterEvents=tiny.answers(0),
        nvmlEventSetFree=tiny.answers(0),
        nvmlEventSetWait_v2=wait,
        **functions,
    )
    return EventWatcher(calls)


def test_a_handle_that_was_never_registered_is_asked_for_its_name() -> None:
    """A driver that tells an event with another pointer is asked whose it is; no answer costs that event."""
    names = {5: b"GPU-other"}
    events = [(5, 48), (6, 31), (1, 13)]

    def wait(_set: Any, data: Any, _milliseconds: Any) -> int:
        if not events:
            return pynvml.NVML_ERROR_TIMEOUT
        data._obj.device = pynvml.cast(events[0][0], pynvml.c_nvmlDevice_t)
        data._obj.eventType, data._obj.eventData = XID, events.pop(0)[1]
        return 0

    def uuid(handle: Any, buffer: Any, _length: Any) -> int:
        if tiny.address(handle) not in names:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        buffer.value = names[tiny.address(handle)]
        return 0

    watcher = _library(wait, nvmlDeviceGetUUID=uuid)
    watcher.start({"GPU-a": tiny.HANDLE})
    until(lambda: len(watcher.log.snapshot()[2]) == 2)

    assert [(each.uuid, each.xid) for each in watcher.log.snapshot()[2]] == [("GPU-other", 48), ("GPU-a", 13)]
    assert watcher.log.snapshot()[0] == {"GPU-a"}
    assert watcher.stop()


def test_an_xid_that_cannot_be_is_the_unknown_one() -> None:
    """Garbage in the place of a code does not make a series of its own each time."""
    codes = [2**64 - 1, 1000, 999, 79]

    def wait(_set: Any, data: Any, _milliseconds: Any) -> int:
        if not codes:
            return pynvml.NVML_ERROR_TIMEOUT
        data._obj.device = pynvml.cast(1, pynvml.c_nvmlDevice_t)
        data._obj.eventType, data._obj.eventData = XID, codes.pop()
        return 0

    watcher = _library(wait)
    watcher.start({"GPU-a": tiny.HANDLE})
    until(lambda: len(watcher.log.snapshot()[2]) == 4)

    assert [(each.xid, each.count) for each in watcher.log.snapshot()[1]] == [(79, 1), (999, 3)]
    assert watcher.stop()


def test_a_driver_that_returns_too_early_does_not_spin() -> None:
    """Waits that end at once without an event are not more than a hundred a second."""
    waits = [0]

    def wait(*_: Any) -> int:
        waits[0] += 1
        return pynvml.NVML_ERROR_TIMEOUT

    watcher = _library(wait)
    watcher.start({"GPU-a": tiny.HANDLE})
    until(lambda: waits[0] > 0)
    began, before = time.monotonic(), waits[0]
    time.sleep(0.1)
    passed, more = time.monotonic() - began, waits[0] - before
    assert watcher.stop()

    assert 0 < more <= passed / event_wait.REST_SECONDS + 1


def test_an_event_without_a_kind_is_other() -> None:
    """A bit that was never asked for is counted under a word of its own, and is no XID."""
    events = [1 << 20]

    def wait(_set: Any, data: Any, _milliseconds: Any) -> int:
        if not events:
            return pynvml.NVML_ERROR_TIMEOUT
        data._obj.device = pynvml.cast(1, pynvml.c_nvmlDevice_t)
        data._obj.eventType = events.pop()
        return 0

    watcher = _library(wait)
    watcher.start({"GPU-a": tiny.HANDLE})
    until(lambda: bool(watcher.log.snapshot()[2]))

    assert [(each.kind, each.xid) for each in watcher.log.snapshot()[2]] == [("other", None)]
    assert watcher.stop()


def test_a_binding_that_breaks_ends_the_wait_until_the_next_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception that is no error of NVML is logged, counted, and no reason to stay away."""
    broken = [True]

    def wait(*_: Any) -> int:
        if broken[0]:
            raise ValueError("no such thing")
        return pynvml.NVML_ERROR_TIMEOUT

    watcher = _library(wait)
    watcher.start({"GPU-a": tiny.HANDLE})
    until(lambda: not watcher.log.snapshot()[0])
    broken[0] = False
    watcher.start({"GPU-a": tiny.HANDLE})

    assert watcher.log.snapshot()[0] == {"GPU-a"}
    assert "waiting for GPU events failed" in caplog.text
    assert watcher.stop()


def test_a_thread_that_cannot_be_started_is_tried_again(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node that is out of threads nothing is watched, which is said and ends when there are some."""

    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watched = watch(gpu("a"), started=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        watched.start()
        assert watched.watched() == frozenset()

    watched.start()
    assert watched.watched() == {"GPU-a"}
    assert watched.calls.errors == {("", WAIT, "RuntimeError"): 1}


def test_ten_thousand_events_are_counted_and_few_are_kept() -> None:
    """The counts are exact; of the events themselves only the newest are kept, oldest first."""
    log = EventLog()
    for number in range(10_000):
        log.note(DeviceEvent(at=float(number), uuid="GPU-a", kind="xid", xid=31))
    _, (count,), recent = log.snapshot()

    assert (count.count, count.last) == (10_000, 9999.0)
    assert [event.at for event in recent] == [float(number) for number in range(10_000 - RECENT, 10_000)]


def test_counts_are_kept_apart_and_in_order() -> None:
    """Devices, instances, kinds and codes are counted each for itself."""
    log = EventLog()
    for mig, kind, xid in (("MIG-1", "xid", 31), ("", "xid", 79), ("", "xid", 31), ("", "poison", None)):
        log.note(DeviceEvent(at=1.0, uuid="GPU-a", kind=kind, mig_uuid=mig, xid=xid))
    found = [(each.mig_uuid, each.kind, each.xid) for each in log.snapshot()[1]]

    assert found == [("", "poison", None), ("", "xid", 31), ("", "xid", 79), ("MIG-1", "xid", 31)]


def test_no_event_is_lost_between_threads() -> None:
    """Several threads that note at the same time, while another reads, lose nothing."""
    log = EventLog()

    def note() -> None:
        for _ in range(2000):
            log.note(DeviceEvent(at=1.0, uuid="GPU-a", kind="xid", xid=31))

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [sum(each.count for each in log.snapshot()[1]) for _ in range(200)]
    for thread in threads:
        thread.join()

    assert seen == sorted(seen)
    assert log.snapshot()[1][0].count == 8000


@pytest.mark.slow
def test_a_storm_of_events_does_not_hold_up_the_sweeps(watch: Watch) -> None:
    """While five thousand events are taken, what a sweep asks is answered in a fraction of its budget."""
    watched = watch(gpu("a"), gpu("b"))
    (handle, _) = watched.handles.values()
    for _ in range(5000):
        watched.happen(XID, 31)
    calls = Calls()
    began = time.monotonic()
    answers = [calls.ask("GPU-a", "nvmlDeviceGetPowerUsage", handle) for _ in range(200)]
    spent = time.monotonic() - began

    assert None not in answers
    assert spent < GPU_BUDGET_SECONDS / 5
    until(lambda: watched.counts() == {("xid", 31): 5000})
