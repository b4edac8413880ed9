"""The end of what a program does."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import pytest

from exporter.commands.server_process import END_SECONDS, LAST_SECONDS, run_until

HUNG = """
import asyncio, time
from exporter.commands.server_process import run_until, shutdown_signals

async def program():
    with shutdown_signals() as told:
        thread = asyncio.ensure_future(asyncio.to_thread(time.sleep, 100))
        print("up", flush=True)
        await run_until(told, asyncio.ensure_future(asyncio.Event().wait()))

asyncio.run(program())
"""


async def test_work_is_ended_when_the_program_is_told_to_end():
    """It goes on until then."""
    told, turns = asyncio.Event(), []

    async def work() -> None:
        while True:
            turns.append(len(turns))
            if len(turns) == 10:
                told.set()
            await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await run_until(told, task)
    assert task.cancelled()
    assert len(turns) >= 10


async def test_work_that_ends_by_itself_tells_why():
    """Nobody has told the program to end."""

    async def work() -> None:
        raise OSError("out of paper")

    with pytest.raises(OSError, match="out of paper"):
        await run_until(asyncio.Event(), asyncio.create_task(work()))


@pytest.mark.slow
async def test_work_that_will_not_end_is_not_waited_for():
    """What comes after it is to be closed all the same."""
    told, over = asyncio.Event(), asyncio.Event()
    told.set()

    async def work() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    began = time.monotonic()
    await run_until(told, task)
    assert LAST_SECONDS <= time.monotonic() - began < LAST_SECONDS + 10
    over.set()
    await task


@pytest.mark.slow
def test_a_thread_that_hangs_does_not_keep_the_program_from_ending():
    """It ends some seconds after it was told to, and well."""
    with subprocess.Popen([sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS + 20) == 0
        assert time.monotonic() - began >= END_SECONDS
