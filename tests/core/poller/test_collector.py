"""One source of the poller: its deadline, its health, and its log."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.model import CollectorHealth
from exporter.poll.collector import Collector
from podresources.channel import KubeletError

DEADLINE = 0.05


class Source:
    """A source that answers, fails or waits as set, and counts its reads."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: object = "first"
        self.open = asyncio.Event()
        self.open.set()

    async def read(self) -> object:
        """Wait until it may answer; an exception is an answer too."""
        self.calls += 1
        answer = self.answer
        await self.open.wait()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Clock:
    """A clock that stands still."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class LabelledError(Exception):
    """An error with a reason of its own."""

    reason = "no_socket"


def made(source: Source, clock: Callable[[], float] = time.monotonic) -> Collector[object]:
    """Put a source under a collector."""
    return Collector("thing", source.read, clock)


async def settle() -> None:
    """Let tasks that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return what was logged: level and message."""
    return [(record.levelname, record.getMessage()) for record in caplog.records]


async def test_before_the_first_read_there_is_no_value():
    collector = made(Source())
    assert (collector.value, collector.fresh_value(60)) == (None, None)
    assert collector.health == CollectorHealth(name="thing", success=False, message="has not answered yet")


async def test_an_answer_is_dated_and_timed():
    clock = Clock()
    collector = made(Source(), clock)
    before = time.time()
    await collector.collect(DEADLINE)
    assert collector.value == "first"
    health = collector.health
    assert (health.success, health.message, health.errors, health.duration) == (True, "", {}, 0.0)
    assert before <= health.last_success <= time.time()


async def late(source: Source, collector: Collector[object], clock: Clock, seconds: float = 7) -> None:
    """Read a source that answers after its poll."""
    source.open.clear()
    await collector.collect(DEADLINE)
    clock.now += seconds
    source.open.set()
    await settle()


async def test_each_collect_asks_again():
    source = Source()
    collector = made(source)
    await collector.collect(DEADLINE)
    source.answer = "second"
    await collector.collect(DEADLINE)
    assert (collector.value, source.calls) == ("second", 2)


async def test_a_slow_source_is_neither_waited_for_twice_nor_read_twice():
    """The deadline ends the wait, not the read; the last good answer and its time stay."""
    source, clock = Source(), Clock()
    collector = made(source, clock)
    await collector.collect(DEADLINE)
    good = collector.health
    source.open.clear()
    await collector.collect(DEADLINE)
    assert (collector.value, collector.health.success) == ("first", False)
    assert collector.health.last_success == good.last_success
    assert collector.health.errors == {"deadline": 1}
    assert collector.health.message == "no answer for 0 s; the poll goes on without it"
    clock.now += 120
    for _ in range(20):
        # The limit of the test would end such a wait.
        await collector.collect(3600)
    assert source.calls == 2
    assert collector.health.errors == {"deadline": 21}
    assert collector.health.message == "no answer for 120 s; the poll goes on without it"
    assert collector.health.duration == 120
    await collector.cancel()


async def test_a_late_answer_counts_and_is_marked_as_late():
    source, clock = Source(), Clock()
    collector = made(source, clock)
    await late(source, collector, clock)
    source.answer = "second"
    await collector.collect(DEADLINE)
    assert (collector.value, collector.late, source.calls) == ("first", True, 1)
    assert (collector.health.success, collector.health.duration) == (True, 7)
    assert collector.health.errors == {"deadline": 1}
    await collector.collect(DEADLINE)
    assert (collector.value, collector.late, source.calls) == ("second", False, 2)


@pytest.mark.parametrize("outcome", ["of then", LabelledError("of then"), asyncio.CancelledError()])
async def test_a_late_answer_is_read_again_if_late_answers_do_not_count(outcome):
    source, clock = Source(), Clock()
    source.answer = outcome
    collector = Collector("thing", source.read, clock, accept_late=False)
    await late(source, collector, clock)
    source.answer = "of now"
    await collector.collect(DEADLINE)
    assert (collector.value, collector.late, source.calls) == ("of now", False, 2)
    assert collector.health.success


async def test_a_late_failure_is_counted_by_its_own_reason():
    source, clock = Source(), Clock()
    source.answer = LabelledError("gone")
    collector = made(source, clock)
    await late(source, collector, clock)
    await collector.collect(DEADLINE)
    assert collector.health.errors == {"deadline": 1, "no_socket": 1}
    assert collector.health.message == "gone"


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (LabelledError("no socket there"), "no_socket", "no socket there"),
        (
            KubeletError("absent", Path("kubelet.sock"), "No such file"),
            "absent",
            "kubelet.sock: No such file",
        ),
        (OSError("disk on fire"), "OSError", "disk on fire"),
        (ValueError(), "ValueError", "ValueError()"),
        (KeyError("x"), "KeyError", "'x'"),
    ],
)
async def test_a_failure_is_counted_by_its_reason(error: Exception, reason: str, message: str):
    source = Source()
    source.answer = error
    collector = made(source)
    await collector.collect(DEADLINE)
    first = collector.health
    await collector.collect(DEADLINE)
    assert collector.health.errors == {reason: 2}
    assert collector.health.message.startswith(message)
    assert collector.value is None
    # The health in a published snapshot does not change.
    assert first.errors == {reason: 1}


async def test_reasons_add_up_over_the_life():
    """Recovery does not erase the counts."""
    source = Source()
    collector = made(source)
    answers: list[object] = [LabelledError("a"), "good", ValueError("b"), LabelledError("c"), "good"]
    for source.answer in answers:
        await collector.collect(DEADLINE)
    assert collector.health.success
    assert collector.health.errors == {"no_socket": 2, "ValueError": 1}


@pytest.mark.parametrize("answered_before", [True, False])
async def test_failure_and_recovery_are_each_logged_once(caplog, answered_before: bool):
    caplog.set_level(logging.DEBUG)
    source = Source()
    collector = made(source)
    if answered_before:
        await collector.collect(DEADLINE)
    assert logged(caplog) == []
    answers: list[object] = [LabelledError("gone")] * 2 + [ValueError("worse"), "good", "good"]
    for source.answer in answers:
        await collector.collect(DEADLINE)
    once = [("WARNING", "thing failed: gone"), ("INFO", "thing recovered")]
    assert logged(caplog) == once
    for source.answer in [LabelledError("again"), "good"]:
        await collector.collect(DEADLINE)
    assert logged(caplog) == [*once, ("WARNING", "thing failed: again"), ("INFO", "thing recovered")]


async def test_a_value_is_fresh_by_its_age():
    source, clock = Source(), Clock()
    collector = made(source, clock)
    await collector.collect(DEADLINE)
    source.answer = LabelledError("gone")
    for age, expected in [(0.0, "first"), (59.9, "first"), (60.0, "first"), (60.1, None), (3600.0, None)]:
        clock.now = 100.0 + age
        await collector.collect(DEADLINE)
        assert collector.fresh_value(60.0) == expected
    source.answer = "new"
    await collector.collect(DEADLINE)
    assert collector.fresh_value(0.0) == "new"


async def test_cancel_ends_the_wait_and_a_later_read_starts():
    source = Source()
    source.open.clear()
    collector = made(source)
    await collector.collect(DEADLINE)
    await collector.cancel()
    await collector.cancel()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    source.open.set()
    await collector.collect(DEADLINE)
    assert (collector.value, source.calls) == ("first", 2)


async def test_cancel_does_not_wait_for_a_read_that_will_not_end():
    over = asyncio.Event()

    async def stubborn() -> str:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    collector = Collector("thing", stubborn)
    await collector.collect(DEADLINE)
    await collector.cancel()
    over.set()
    await settle()


async def test_cancel_leaves_no_unheard_error():
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    source = Source()
    source.open.clear()
    source.answer = LabelledError("gone")
    collector = made(source)
    await collector.collect(DEADLINE)
    source.open.set()
    await settle()
    await collector.cancel()
    del collector
    gc.collect()
    assert complaints == []


async def test_a_read_that_was_cancelled_by_others_is_a_failure():
    async def cancelled() -> str:
        raise asyncio.CancelledError

    collector = Collector("thing", cancelled)
    await collector.collect(DEADLINE)
    assert collector.health.errors == {"cancelled": 1}


async def test_a_collector_that_does_not_log_failures_logs_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    source.answer = LabelledError("no driver")
    collector = Collector("thing", source.read, logs_failures=False)
    await collector.collect(DEADLINE)
    assert not caplog.records
    collector.log_failure()
    collector.log_failure()
    await collector.collect(DEADLINE)
    collector.log_failure()
    assert [record.getMessage() for record in caplog.records] == ["thing failed: no driver"]
    source.answer = "well"
    await collector.collect(DEADLINE)
    collector.log_failure()
    assert len(caplog.records) == 1
