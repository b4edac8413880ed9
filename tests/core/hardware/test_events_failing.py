"""Watching GPUs while the driver fails, hangs, is opened again, or reports too many events."""

import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from exporter.model import DeviceEvent
from exporter.nvml import event_wait
from exporter.nvml.events import RECENT, EventLog, EventWatcher
from tests.core.hardware import tiny
from tests.core.hardware.making import gpu
from tests.core.hardware.watching import MIG_CONFIG, XID, Watch, event_threads
from tests.waiting import wait_until

WAIT = "nvmlEventSetWait_v2"
# As the program has them: tests change them.
SLICE_SECONDS, END_SECONDS = event_wait.SLICE_MILLISECONDS / 1000, event_wait.END_SECONDS


@pytest.mark.parametrize(
    ("code", "name"),
    [("UNKNOWN", "Unknown"), ("GPU_IS_LOST", "GpuIsLost"), ("UNINITIALIZED", "Uninitialized")],
)
def test_a_failed_wait_ends_the_thread_until_the_next_sweep(watch: Watch, code: str, name: str) -> None:
    watched = watch(gpu("a"))
    watched.happen(XID, 31)
    watched.events(1)
    watched.driver.fail(code, WAIT)
    wait_until(lambda: not event_threads())
    assert watched.watched() == frozenset()

    watched.driver.recover()
    watched.start()
    watched.happen(XID, 31)
    wait_until(lambda: watched.counts() == {("xid", 31): 2})
    assert watched.watched() == {"GPU-a"}
    assert watched.calls.records.errors == {("", WAIT, name): 1}
    assert watched.driver.asked("nvmlEventSetFree") == 1


def test_a_wait_that_keeps_failing_costs_one_call_and_counts_one_error_per_sweep(watch: Watch) -> None:
    watched = watch(gpu("a"))
    watched.driver.fail("UNKNOWN", WAIT)
    wait_until(lambda: not event_threads())
    for sweep in range(1, 4):
        waits = watched.driver.asked(WAIT)
        watched.start()
        wait_until(lambda: not event_threads())
        assert watched.driver.asked(WAIT) == waits + 1
        assert watched.calls.records.errors["", WAIT, "Unknown"] == sweep


def test_a_wait_that_times_out_is_not_a_failure(watch: Watch) -> None:
    watched = watch(gpu("a"))
    wait_until(lambda: watched.driver.asked(WAIT) > 3)
    assert watched.watched() == {"GPU-a"}
    assert watched.calls.records.errors == {}


def test_a_driver_without_the_wait_is_asked_again_only_after_it_is_reopened(watch: Watch) -> None:
    watched = watch(gpu("a"), missing=[WAIT])
    wait_until(lambda: not event_threads())
    watched.start()
    watched.start()
    assert watched.driver.asked("nvmlEventSetCreate") == 1
    assert watched.calls.records.errors == {}

    watched.reopen()
    assert watched.driver.asked("nvmlEventSetCreate") == 2


def test_counts_go_on_after_the_driver_is_reopened(watch: Watch) -> None:
    watched = watch(gpu("a"), gpu("b"))
    watched.happen(XID, 79)
    watched.events(1)
    watched.reopen()
    watched.happen(XID, 79)
    assert watched.events(2) == [("GPU-a", "", "xid", 79)] * 2
    assert watched.counts() == {("xid", 79): 2}
    assert watched.watched() == {"GPU-a", "GPU-b"}


def test_stopping_needs_no_event(watch: Watch) -> None:
    """The thread returns from the driver after a slice, which is shorter than the time to end it."""
    assert SLICE_SECONDS < END_SECONDS
    watched = watch(gpu("a"))
    wait_until(lambda: watched.driver.asked(WAIT) >= 1)
    assert watched.watcher.stop()
    assert watched.watched() == frozenset()
    assert watched.driver.asked("nvmlEventSetFree") == 1


def test_stopping_without_a_wait_makes_no_call(watch: Watch) -> None:
    watched = watch(gpu("a", unsupported=["nvmlDeviceGetSupportedEventTypes"]))
    assert watched.watcher.stop()
    assert watched.watcher.stop()
    assert watched.driver.asked("nvmlEventSetFree") == 0


@pytest.fixture
def hung(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a watched driver whose wait hangs, and is not waited for when the thread is to end."""
    watched = watch(gpu("a"))
    watched.driver.hang(WAIT)
    # A wait that began before does not hang; the next one does.
    waits = watched.driver.asked(WAIT)
    wait_until(lambda: watched.driver.asked(WAIT) > waits)
    monkeypatch.setattr(event_wait, "END_SECONDS", 0.01)
    return watched


def test_a_wait_that_hangs_keeps_its_set_and_gets_no_second_thread(
    hung: Any, caplog: pytest.LogCaptureFixture
) -> None:
    [thread] = event_threads()
    assert not hung.watcher.stop()
    hung.start()
    hung.start()
    assert hung.watched() == frozenset()
    assert hung.driver.asked("nvmlEventSetFree") == 0
    assert event_threads() == [thread]
    assert len([record for record in caplog.records if "has not returned" in record.message]) == 1

    hung.driver.recover()
    wait_until(hung.watcher.stop)
    hung.start()
    hung.happen(XID, 13)
    assert hung.events(1) == [("GPU-a", "", "xid", 13)]


def test_a_sweep_notices_a_wait_that_hangs(hung: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is watched meanwhile, so that no zero stands for events that may have occurred."""
    hung.start()
    assert hung.watched() == {"GPU-a"}
    with monkeypatch.context() as patch:
        patch.setattr(event_wait, "HUNG_SECONDS", -1.0)
        hung.start()
        assert hung.watched() == frozenset()
    hung.driver.recover()

    def watched_again() -> bool:
        hung.start()
        return bool(hung.watched())

    wait_until(watched_again)
    hung.happen(XID, 13)
    assert hung.events(1) == [("GPU-a", "", "xid", 13)]


def watcher_of(wait: Any, **functions: Any) -> EventWatcher:
    """Return a watcher of GPU-a, started, whose driver has this function for the wait."""
    calls = tiny.installed(
        nvmlDeviceGetSupportedEventTypes=tiny.writes(XID | MIG_CONFIG),
        nvmlEventSetCreate=tiny.answers(0),
        nvmlDeviceRegisterEvents=tiny.answers(0),
        nvmlEventSetFree=tiny.answers(0),
        nvmlEventSetWait_v2=wait,
        **functions,
    )
    watcher = EventWatcher(calls)
    watcher.start({"GPU-a": tiny.HANDLE})
    return watcher


def delivers(*events: tuple[int, int, int]) -> Any:
    """Return a wait that returns these events (handle, type, data) and then times out."""
    remaining = list(events)

    def wait(_set: Any, data: Any, _milliseconds: Any) -> int:
        if not remaining:
            return pynvml.NVML_ERROR_TIMEOUT
        handle, data._obj.eventType, data._obj.eventData = remaining.pop(0)
        data._obj.device = pynvml.cast(handle, pynvml.c_nvmlDevice_t)
        return 0

    return wait


def recent(watcher: EventWatcher, number: int) -> tuple[DeviceEvent, ...]:
    """Return the recent events once there are ``number`` of them, and stop."""
    wait_until(lambda: len(watcher.log.snapshot()[2]) == number)
    assert watcher.log.snapshot()[0] == {"GPU-a"}
    assert watcher.stop()
    return watcher.log.snapshot()[2]


def test_an_event_with_an_unregistered_handle_is_attributed_by_asking_for_its_uuid() -> None:
    """Without an answer that event is lost, and the next one is recorded."""

    def uuid(handle: Any, buffer: Any, _length: Any) -> int:
        if tiny.address(handle) != 5:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        buffer.value = b"GPU-other"
        return 0

    watcher = watcher_of(delivers((5, XID, 48), (6, XID, 31), (1, XID, 13)), nvmlDeviceGetUUID=uuid)
    assert [(event.uuid, event.xid) for event in recent(watcher, 2)] == [("GPU-other", 48), ("GPU-a", 13)]


def test_implausible_xids_share_one_code() -> None:
    watcher = watcher_of(delivers(*((1, XID, code) for code in (79, 999, 1000, 2**64 - 1))))
    recent(watcher, 4)
    assert [(count.xid, count.count) for count in watcher.log.snapshot()[1]] == [(79, 1), (999, 3)]


def test_an_event_of_an_unknown_type_is_other_and_has_no_xid() -> None:
    [event] = recent(watcher_of(delivers((1, 1 << 20, 0))), 1)
    assert (event.kind, event.xid) == ("other", None)


@pytest.mark.parametrize(("events", "waits", "pauses"), [(0, 5, 5), (300, 301, 4)])
def test_the_thread_pauses_after_an_empty_wait_and_after_many_events(
    monkeypatch: pytest.MonkeyPatch, events: int, waits: int, pauses: int
) -> None:
    """A driver that returns at once, or reports events without end, leaves the sweeps the interpreter."""
    taken: list[float] = []
    done = threading.Event()

    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            taken.append(timeout or 0.0)
            if len(taken) == pauses:
                done.set()
                return super().wait()
            return self.is_set()

    monkeypatch.setattr(event_wait, "threading", SimpleNamespace(Event=Pauses, Thread=threading.Thread))
    wait, asked = delivers(*[(1, XID, 31)] * events), []
    watcher = watcher_of(lambda *arguments: asked.append(1) or wait(*arguments))
    wait_until(done.is_set)
    assert len(asked) == waits
    assert taken == [event_wait.REST_SECONDS] * pauses
    assert watcher.stop()


def test_an_exception_of_the_binding_ends_the_wait_until_the_next_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = [True]

    def wait(*_: Any) -> int:
        if broken[0]:
            raise ValueError("no such thing")
        return pynvml.NVML_ERROR_TIMEOUT

    watcher = watcher_of(wait)
    wait_until(lambda: not event_threads())
    broken[0] = False
    watcher.start({"GPU-a": tiny.HANDLE})
    assert watcher.log.snapshot()[0] == {"GPU-a"}
    assert "waiting for GPU events failed" in caplog.text
    assert watcher.stop()


def test_a_thread_that_cannot_be_started_is_tried_again(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watched = watch(gpu("a"), start=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        watched.start()
        assert watched.watched() == frozenset()
    watched.start()
    assert watched.watched() == {"GPU-a"}
    assert watched.calls.records.errors == {("", WAIT, "RuntimeError"): 1}


def test_all_events_are_counted_and_the_newest_are_kept() -> None:
    log = EventLog()
    for number in range(1000):
        log.note(DeviceEvent(at=float(number), uuid="GPU-a", kind="xid", xid=31))
    _, (count,), kept = log.snapshot()
    assert (count.count, count.last) == (1000, 999.0)
    assert [event.at for event in kept] == [float(number) for number in range(1000 - RECENT, 1000)]


def test_devices_kinds_and_codes_are_counted_separately_and_sorted() -> None:
    log = EventLog()
    for mig, kind, xid in (("MIG-1", "xid", 31), ("", "xid", 79), ("", "xid", 31), ("", "poison", None)):
        log.note(DeviceEvent(at=1.0, uuid="GPU-a", kind=kind, mig_uuid=mig, xid=xid))
    counted = [(count.mig_uuid, count.kind, count.xid) for count in log.snapshot()[1]]
    assert counted == [("", "poison", None), ("", "xid", 31), ("", "xid", 79), ("MIG-1", "xid", 31)]


def test_no_event_is_lost_between_threads() -> None:
    log = EventLog()

    def note() -> None:
        for _ in range(2000):
            log.note(DeviceEvent(at=1.0, uuid="GPU-a", kind="xid", xid=31))

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    sums = [sum(count.count for count in log.snapshot()[1]) for _ in range(200)]
    for thread in threads:
        thread.join()
    assert sums == sorted(sums)
    assert log.snapshot()[1][0].count == 8000
