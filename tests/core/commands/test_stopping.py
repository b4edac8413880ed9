"""The shutdown of a server command."""

import asyncio
import contextlib
import signal
import subprocess
import sys

import pytest

from exporter import server_process
from exporter.server_process import run_until
from tests.core.commands.program import ROOT, TIMEOUT
from tests.waiting import LIMIT_SECONDS

HUNG = """
import asyncio, threading
from exporter import server_process
server_process.END_SECONDS = 0.5

async def program():
    with server_process.shutdown_signals() as shutdown:
        thread = asyncio.ensure_future(asyncio.to_thread(threading.Event().wait))
        print("up", flush=True)
        await server_process.run_until(shutdown, asyncio.ensure_future(asyncio.Event().wait()))
    print("down", flush=True)

asyncio.run(program())
"""


async def test_work_goes_on_until_the_shutdown():
    shutdown, turns = asyncio.Event(), []

    async def work() -> None:
        while True:
            turns.append(len(turns))
            if len(turns) == 10:
                shutdown.set()
            await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await run_until(shutdown, task)
    assert task.cancelled()
    assert len(turns) >= 10


async def test_the_error_of_work_that_fails_is_raised():
    async def work() -> None:
        raise OSError("out of paper")

    with pytest.raises(OSError, match="out of paper"):
        await run_until(asyncio.Event(), asyncio.create_task(work()))


async def test_work_that_ignores_its_cancellation_does_not_delay_the_shutdown(monkeypatch):
    monkeypatch.setattr(server_process, "LAST_SECONDS", 0.01)
    shutdown, over = asyncio.Event(), asyncio.Event()
    shutdown.set()

    async def work() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    ending = asyncio.create_task(run_until(shutdown, task))
    await asyncio.wait({ending}, timeout=LIMIT_SECONDS)
    assert ending.done()
    assert not task.done()
    over.set()
    await task


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending():
    """The process ends END_SECONDS after the shutdown, with code 0; a second signal does not end it."""
    with subprocess.Popen(
        [sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            for line in ("up\n", "down\n"):
                assert process.stdout.readline() == line
                process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()
