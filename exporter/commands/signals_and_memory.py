"""The process of a command that goes on: its end by a signal, and its memory."""

import asyncio
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How long the work of the program may take to notice its end.
LAST_SECONDS = 1.0
# How long all of it may take. Threads of the standard library are waited for, and one may look up a name, or
# read a file, for minutes.
END_SECONDS = 5.0


@contextmanager
def shutdown_signals() -> Iterator[asyncio.Event]:
    """Give what is set by each of these signals, in a running event loop.

    From then on none of them ends the process by itself, and behind this they are ignored: who is told twice
    ends no less well. What was started to outlive its terminal is not told by that. The process ends within
    some seconds then, whatever hangs in it.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        # One of the loop's own would be taken away with it, and leave a moment in which a signal kills.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(told.set))
    try:
        yield told
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
        last = threading.Timer(END_SECONDS, os._exit, (0 if told.is_set() else 1,))
        last.daemon = True
        last.start()


async def until_told(work: "asyncio.Task[None]", told: asyncio.Event) -> None:
    """Wait until it is told to end, and end ``work``; work that ends by itself raises what ended it."""
    telling = asyncio.ensure_future(told.wait())
    await asyncio.wait({work, telling}, return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    work.cancel()
    # Work that does not heed it keeps the driver from being shut down no longer than this.
    await asyncio.wait({work}, timeout=LAST_SECONDS)
    if work.done() and not work.cancelled():
        work.result()


# By the numbers of glibc's malloc.h; sizes are in bytes.
_SETTINGS: Final = {
    # M_ARENA_MAX: one heap. Else threads get heaps of their own, up to eight for each core, and each keeps
    # what its largest page took; Python runs one thread at a time anyway.
    -8: 1,
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: by itself the library raises them when what is large does not
    # live long, and pages do not. What each answer takes for a moment stays: a compressed page, and the
    # 256 KiB that asyncio reads into. Taking those from the system every time doubled what a scrape costs.
    -3: 512 << 10,
    -1: 1 << 20,
}


def tune_malloc() -> None:
    """Have the C library give back what is free; before threads are started. Only glibc can be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for setting, value in _SETTINGS.items():
        mallopt(setting, value)
