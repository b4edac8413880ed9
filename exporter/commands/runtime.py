"""What commands share: the node, one poll, the end by a signal, and what is printed."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exporter.config.settings import Settings, SettingsError
from exporter.model import GpuReading, Snapshot
from exporter.poll.poller import Poller, PollResult
from exporter.poll.sources import Sources

if TYPE_CHECKING:
    from exporter.demo.node import FakeNode
    from exporter.demo.scenario.catalog import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The settings to use, and on a fake node its driver library; ``fake`` is None on a real one."""

    settings: Settings
    nvml_library: Any = None
    fake: "FakeNode | None" = None


@asynccontextmanager
async def node(settings: Settings, scenario: str | None, seed: int = 0) -> AsyncIterator[Node]:
    """Give this machine, or start a fake node and point every path and socket at it.

    Raises SettingsError for a scenario that does not exist or cannot be read.
    """
    if scenario is None:
        yield Node(settings=settings)
        return
    from exporter.demo.node import FakeNode  # noqa: PLC0415 - no part of the daemon

    async with FakeNode(_loaded(scenario), seed=seed) as fake:
        # No cluster knows of this node.
        alone = replace(settings, nvml_library=None, kubernetes_api="off", kubeconfig=None)
        pointed = replace(alone, node_name=fake.name, **asdict(fake.paths))
        yield Node(settings=pointed, nvml_library=fake.nvml, fake=fake)


def _loaded(scenario: str) -> "Scenario":
    from exporter.demo.scenario.catalog import ScenarioError, load  # noqa: PLC0415 - no part of the daemon

    try:
        return load(scenario)
    except ScenarioError as error:
        raise SettingsError(f"--scenario: {error}") from None


# Opening the driver takes up to half a minute on a node whose GPUs are not kept initialised.
PATIENCE_SECONDS = 60.0
CLOSE_SECONDS = 1.0
# Time between the two samples of a profiling meter, whose key among what is withheld is this. The hardware of
# a fake node moves once a second.
WINDOW_SECONDS = 1.1
METER = "profiling"
# After this long somebody who waits at a terminal wants to know why.
SILENCE_SECONDS = 3.0


async def poll_once(node: Node) -> tuple[Snapshot, PollResult]:
    """Read every source of the node once; return what was found and what it was made of."""
    # What was read while the slowest source was waited for is not stale.
    stale_after = max(node.settings.stale_after, 2 * PATIENCE_SECONDS)
    sources = Sources(node.settings, node.nvml_library)
    poller = Poller(
        replace(node.settings, stale_after=stale_after),
        sources,
        demo=node.fake is not None,
        deadline=PATIENCE_SECONDS,
    )
    waiting = asyncio.get_running_loop().call_later(SILENCE_SECONDS, _tell_wait)
    try:
        # Whoever wants the driver now does not want it opened for a look either.
        await sources.start()
        snapshot = await poller.poll()
        if any(map(_has_begun, poller.evidence.gpus)):
            await asyncio.sleep(WINDOW_SECONDS)
            snapshot = await poller.poll()
        return snapshot, poller.evidence
    finally:
        waiting.cancel()
        if node.fake is not None:
            # What is held up there, and nothing else, would be waited for.
            node.fake.nvml.release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _has_begun(gpu: GpuReading) -> bool:
    """Whether a profiling meter has taken its first sample, of which nothing can be told yet."""
    return gpu.identity.vendor == "nvidia" and gpu.up and not gpu.profiling and METER not in gpu.withheld


def _tell_wait() -> None:
    sys.stderr.write(
        f"gpuslice-exporter: waiting for a source that does not answer, {PATIENCE_SECONDS:.0f} s at most\n"
    )


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How long the work of the program may take to notice its end.
LAST_SECONDS = 1.0
# How long all of it may take. Threads of the standard library are waited for, and one may look up a name, or
# read a file, for minutes.
END_SECONDS = 5.0


@contextmanager
def told_to_end() -> Iterator[asyncio.Event]:
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


def say(text: str) -> None:
    """Print text as it is, at once; raises SettingsError when it cannot be, BrokenPipeError to nobody."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left of it would fail again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file, which is there whole or as it was before; OSError.

    What is no regular file, such as a terminal, is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    target = path.resolve()
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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


def keep_little() -> None:
    """Have the C library give back what is free; before threads are started. Only glibc can be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for setting, value in _SETTINGS.items():
        mallopt(setting, value)
