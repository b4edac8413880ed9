"""The process of a server command: its shutdown by a signal, and its memory."""

import asyncio
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Time for the main task to end.
LAST_SECONDS = 1.0
# Time for the whole shutdown. Python waits for threads of the standard library, and one of them may resolve a
# name, or read a file, for minutes.
END_SECONDS = 5.0


@contextmanager
def shutdown_signals() -> Iterator[asyncio.Event]:
    """Yield an event that each of the signals sets, in a running event loop.

    During and after this, none of the signals ends the process: a second one does not interrupt the shutdown.
    A signal that is ignored at the start, as SIGHUP by nohup, stays ignored. END_SECONDS after this the
    process ends, whatever hangs.
    """
    loop, shutdown = asyncio.get_running_loop(), asyncio.Event()
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        # A handler of the event loop would be removed with the loop: a signal could then kill the process.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(shutdown.set))
    try:
        yield shutdown
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_IGN)
        last = threading.Timer(END_SECONDS, os._exit, (0 if shutdown.is_set() else 1,))
        last.daemon = True
        last.start()


async def run_until(shutdown: asyncio.Event, work: "asyncio.Task[None]") -> None:
    """Wait for the event, and cancel ``work``; if ``work`` fails, raise its error."""
    waiting = asyncio.ensure_future(shutdown.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    work.cancel()
    # Work that ignores its cancellation must not delay the release of the driver any longer.
    await asyncio.wait({work}, timeout=LAST_SECONDS)
    if work.done() and not work.cancelled():
        work.result()


# Parameters of glibc's mallopt(3), by their numbers in malloc.h; sizes are in bytes.
_SETTINGS: Final = {
    # M_ARENA_MAX: one heap. By default threads get heaps of their own, up to eight per core, and each keeps
    # the memory of its largest page; Python runs one thread at a time anyway.
    -8: 1,
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: by default glibc raises them after large short-lived allocations,
    # such as pages. These values keep the buffers of each answer in the heap, a compressed page and the
    # 256 KiB that asyncio reads into: mapping those each time doubled the cost of a scrape.
    -3: 512 << 10,
    -1: 1 << 20,
}


def tune_malloc() -> None:
    """Make the C library return free memory to the system; glibc only. Call it before threads start."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for setting, value in _SETTINGS.items():
        mallopt(setting, value)
