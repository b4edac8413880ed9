"""The daemon thread for calls that may block for ever."""

import asyncio
import contextlib
import subprocess
import sys
import threading

import pytest

from exporter.concurrency import Worker
from tests.waiting import LIMIT_SECONDS, wait_until, wait_until_async


class Blocking:
    """A job that has begun and does not return until it is released."""

    def __init__(self) -> None:
        self._begun, self._released = threading.Event(), threading.Event()
        self.release = self._released.set

    async def start(self, worker: Worker) -> "asyncio.Task[bool]":
        """Run it in a worker; return once it has begun."""
        task = asyncio.ensure_future(worker.run(self._run))
        await wait_until_async(self._begun.is_set)
        return task

    def _run(self) -> bool:
        self._begun.set()
        return self._released.wait()


def threads(name: str) -> list[threading.Thread]:
    """Return the living threads of a name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


async def test_all_jobs_run_in_one_named_daemon_thread_that_stop_ends():
    worker = Worker("one")
    thread = await worker.run(threading.current_thread)
    assert (thread.name, thread.daemon) == ("one", True)
    assert await worker.run(threading.current_thread) is thread
    worker.stop()
    await wait_until_async(lambda: not thread.is_alive())


async def test_no_thread_is_started_before_the_first_job():
    Worker("unused").stop()
    assert threads("unused") == []


async def test_jobs_run_one_after_the_other_in_order():
    worker = Worker("queue")
    running, most, order = 0, 0, []

    def job(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(number)
        running -= 1
        return number

    results = await asyncio.gather(*(worker.run(lambda n=n: job(n)) for n in range(20)))
    assert results == order == list(range(20))
    assert most == len(threads("queue")) == 1
    worker.stop()


async def test_an_error_is_raised_in_the_caller_and_the_thread_goes_on():
    worker = Worker("raises")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        await worker.run(sys.exit)
    assert await worker.run(lambda: 7) == 7
    worker.stop()


async def test_a_job_that_blocks_holds_up_only_the_jobs_behind_it():
    worker, blocking = Worker("blocks"), Blocking()
    first = await blocking.start(worker)
    second = asyncio.ensure_future(worker.run(lambda: "second"))
    await asyncio.sleep(0)
    assert not first.done()
    assert not second.done()
    blocking.release()
    assert (await first, await second) == (True, "second")
    worker.stop()


async def test_a_cancelled_job_goes_on_and_its_result_is_dropped():
    worker, blocking = Worker("cancelled"), Blocking()
    task = await blocking.start(worker)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    blocking.release()
    assert await worker.run(lambda: "next") == "next"
    worker.stop()


async def test_stop_lets_queued_jobs_run_first():
    worker = Worker("ends")
    tasks = [asyncio.ensure_future(worker.run(lambda n=n: n)) for n in range(5)]
    await asyncio.sleep(0)
    worker.stop()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]
    await wait_until_async(lambda: threads("ends") == [])


def test_a_result_after_the_loop_was_closed_is_dropped():
    worker, blocking = Worker("late"), Blocking()

    async def leave() -> None:
        (await blocking.start(worker)).cancel()

    asyncio.run(leave())
    blocking.release()
    worker.stop()
    wait_until(lambda: threads("late") == [])


async def test_a_queued_job_that_was_cancelled_is_not_begun():
    worker, blocking, done = Worker("behind"), Blocking(), []
    first = await blocking.start(worker)
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.run(lambda: done.append("cancelled")), 0.001)
    blocking.release()
    await first
    await worker.run(lambda: done.append("awaited"))
    assert done == ["awaited"]
    worker.stop()


HANGING_PROGRAM = """
import asyncio, threading
from exporter.concurrency import Worker

async def main():
    try:
        await asyncio.wait_for(Worker("stuck").run(threading.Event().wait), 0.05)
    except TimeoutError:
        print("left behind")

asyncio.run(main())
"""


def test_a_program_ends_while_a_job_hangs():
    command = [sys.executable, "-c", HANGING_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left behind\n", "")
