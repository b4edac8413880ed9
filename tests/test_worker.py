"""The daemon thread for calls that may block for ever."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time

import pytest

from exporter.concurrency import Worker


def threads(name: str) -> list[threading.Thread]:
    """Return the living threads of a name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


async def test_a_job_runs_in_the_named_daemon_thread():
    """Its result comes back; the thread does not keep the program alive."""
    worker = Worker("one")
    thread = await worker.run(threading.current_thread)
    assert (thread.name, thread.daemon) == ("one", True)
    assert await worker.run(threading.current_thread) is thread
    worker.stop()
    thread.join(5)
    assert not thread.is_alive()


async def test_no_thread_before_the_first_job():
    """A worker that is never asked costs nothing."""
    Worker("unused").stop()
    assert threads("unused") == []


async def test_jobs_run_one_after_the_other_in_order():
    """However many are waiting, there is one thread and one job at a time."""
    worker = Worker("queue")
    running, most, order = 0, 0, []

    def job(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.001)
        order.append(number)
        running -= 1
        return number

    results = await asyncio.gather(*(worker.run(lambda n=n: job(n)) for n in range(20)))
    assert results == order == list(range(20))
    assert most == 1
    assert len(threads("queue")) == 1
    worker.stop()


async def test_an_error_comes_back_and_the_thread_goes_on():
    """A job that raises costs nothing but itself."""
    worker = Worker("raises")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        await worker.run(sys.exit)
    assert await worker.run(lambda: 7) == 7
    worker.stop()


async def test_the_loop_goes_on_while_a_job_blocks():
    """A job that hangs holds up only the jobs behind it."""
    worker, release = Worker("blocks"), threading.Event()
    hanging = asyncio.ensure_future(worker.run(release.wait))
    behind = asyncio.ensure_future(worker.run(lambda: "behind"))
    done, _ = await asyncio.wait({hanging, behind}, timeout=0.05)
    assert done == set()
    release.set()
    assert await asyncio.wait_for(behind, 5) == "behind"
    assert await hanging
    worker.stop()


async def test_nobody_waits_for_a_job_that_was_cancelled():
    """The job goes on, its result is dropped, and the next one is run."""
    worker, release = Worker("cancelled"), threading.Event()
    task = asyncio.ensure_future(worker.run(release.wait))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert await asyncio.wait_for(worker.run(lambda: "next"), 5) == "next"
    worker.stop()


async def test_stop_lets_the_jobs_that_wait_run_first():
    """What was asked for before the end is still answered."""
    worker = Worker("ends")
    tasks = [asyncio.ensure_future(worker.run(lambda n=n: n)) for n in range(5)]
    await asyncio.sleep(0)
    worker.stop()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]
    for thread in threads("ends"):
        thread.join(5)
    assert threads("ends") == []


def test_a_result_after_the_loop_was_closed_is_dropped():
    """A job that comes back too late, as from a driver that hung, disturbs nobody."""
    worker, release = Worker("late"), threading.Event()

    async def leave() -> None:
        task = asyncio.ensure_future(worker.run(release.wait))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(leave())
    release.set()
    worker.stop()
    for thread in threads("late"):
        thread.join(5)
    assert threads("late") == []


async def test_a_job_that_nobody_waits_for_any_more_is_not_begun():
    """While one hangs, those behind it are given up, and are not all done afterwards for nobody."""
    worker, release, done = Worker("behind"), threading.Event(), []
    first = asyncio.ensure_future(worker.run(release.wait))
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.run(lambda: done.append("given up")), 0.001)
    release.set()
    await first
    await worker.run(lambda: done.append("waited for"))
    assert done == ["waited for"]
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
    """A call that never returns does not keep the interpreter from ending."""
    command = [sys.executable, "-c", HANGING_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left behind\n", "")
