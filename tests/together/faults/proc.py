"""Faults of the files of processes, and what each may cost.

Nothing stands between this program and the kernel: a file that cannot be read is a directory, a link into
the void, or one of the kernel's own files that gives the wanted error; one that hangs is a pipe.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from exporter.demo.scenario import Scenario
from tests.fake.demo.making import gpu, pod
from tests.fake.demo.making import made as scenario_of
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.compare import failures_of
from tests.together.faults.harness import Watch
from tests.together.faults.kubelet_servers import aside, forbidden, let_in, resting
from tests.together.faults.limits import short
from tests.together.faults.pages import Page, labels_of, name_of

RESOURCE: Final = "nvidia.com/gpu"
VICTIM, OTHER = 5001, 5002
"""The process whose files fail, and the one that shares its GPU."""
STATES = frozenset({"gpuslice_collector_success", "gpuslice_process_attribution_available"})
Put = Callable[[Path], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is put at a path below the process table; ``fails`` is the reason that the collector counts."""

    at: str
    put: Put
    fails: str = ""
    polls: int = 1


def node() -> Scenario:
    """Make a node of a GPU that two pods share and one that a third has for itself."""
    return scenario_of(
        identity="pods_api",
        # What the second one uses is all its holder's, so that this is so by whichever source.
        gpus=[gpu(), gpu(overhead=0)],
        offers=[{"resource": RESOURCE, "of": "gpus", "gpus": [0], "replicas": 4}],
        pods=[
            pod("victim", _running(VICTIM, 40), devices={RESOURCE: ["{gpu:0}::0"]}),
            pod("other", _running(OTHER, 20), devices={RESOURCE: ["{gpu:0}::1"]}),
            pod("idle", devices={RESOURCE: ["{gpu:0}::2"]}),
            pod("alone", _running(5003, 50), devices={"nvidia.com/whole": ["{gpu:1}"]}),
        ],
    )


def _running(pid: int, load: int) -> dict[str, object]:
    return {"pid": pid, "memory": "1 GiB", "load": {"high": load}}


def having(make: Callable[[Path], object]) -> Put:
    """Have something else at the path."""

    @contextlib.asynccontextmanager
    async def put(path: Path) -> AsyncIterator[None]:
        with aside(path):
            make(path)
            yield

    return put


def linked(target: str) -> Put:
    """Have a link at the path."""
    return having(lambda path: path.symlink_to(target))


def saying(content: bytes) -> Put:
    """Have another content at the path."""
    return having(lambda path: path.write_bytes(content))


@contextlib.contextmanager
def hung(path: Path) -> Iterator[None]:
    """Have a pipe at the path with a silent writer: a read of it waits until it is over."""
    with contextlib.ExitStack() as stack, aside(path):
        os.mkfifo(path)
        writer = os.open(path, os.O_RDWR)
        # Only when the file is back: a reader that finds the pipe without a writer would wait for ever.
        stack.callback(os.close, writer)
        yield


@contextlib.asynccontextmanager
async def hanging(path: Path) -> AsyncIterator[None]:
    """Have reads of the path wait until it is over."""
    with hung(path):
        yield


@contextlib.contextmanager
def ended(path: Path) -> Iterator[None]:
    """Have the file of a process that has ended, which the kernel answers with ESRCH."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        held = os.open(f"/proc/{process.pid}/stat", os.O_RDONLY)
        process.communicate(b"\n")
    try:
        with aside(path):
            path.symlink_to(f"/proc/self/fd/{held}")
            yield
    finally:
        os.close(held)


# Reading the memory of a process at 0, where it has none.
EIO: Final = "/proc/self/mem"
LONG: Final = b"5001 (" + b"x" * (1 << 20) + b") R " + b"1 " * 50
OF_PROCESS: Mapping[str, Put] = {
    "gone": having(lambda _: None),
    "a directory": having(Path.mkdir),
    "a link to nothing": linked("nothing"),
    "a link to itself": having(lambda path: path.symlink_to(path)),
    "EIO": linked(EIO),
    "ESRCH": resting(ended),
    "EACCES": resting(forbidden),
    "empty": saying(b""),
    "cut short": saying(b"5001 (pyth"),
    "garbage": saying(bytes(range(256)) * 16),
    "a megabyte": saying(LONG),
}
FAULTS: Mapping[str, Fault] = {
    **{
        f"{file} {how}": Fault(at=f"{VICTIM}/{file}", put=put, polls=2)
        for file in ("stat", "cgroup")
        for how, put in OF_PROCESS.items()
    },
    "process gone": Fault(at=str(VICTIM), put=having(lambda _: None), polls=2),
    "process a file": Fault(at=str(VICTIM), put=having(Path.touch), polls=2),
    "process EACCES": Fault(at=str(VICTIM), put=resting(forbidden), polls=2),
    "stat hangs": Fault(at=f"{VICTIM}/stat", put=hanging, fails="deadline"),
    "cgroup hangs": Fault(at=f"{VICTIM}/cgroup", put=hanging, fails="deadline"),
    "uptime gone": Fault(at="uptime", put=having(lambda _: None)),
    "uptime a directory": Fault(at="uptime", put=having(Path.mkdir)),
    "uptime garbage": Fault(at="uptime", put=saying(b"\xff\xfe inf nan")),
    "uptime EIO": Fault(at="uptime", put=linked(EIO)),
    "all gone": Fault(at="", put=having(lambda _: None), fails="OSError"),
    "all a file": Fault(at="", put=having(Path.touch), fails="OSError"),
    "all EACCES": Fault(at="", put=resting(forbidden), fails="OSError"),
}
"""Ways to fail, by name."""
CELLS = tuple(
    Cell(source="/proc", what=what, how=how, where="poll")
    for what, _, how in (name.partition(" ") for name in FAULTS)
)


def claim_of(watch: Watch, fault: Fault) -> Claim:
    """Only what containers use of the GPU where the process runs may leave; the rest is unattributed."""
    shared = watch.node.scenario.gpus[0].uuid

    def own(series: str) -> bool:
        name = name_of(series)
        if name in STATES:
            return True
        in_reach = bool(fault.fails) or labels_of(series).get("uuid") == shared
        return in_reach and name.startswith(
            ("gpuslice_container_", "gpuslice_gpu_unattributed", "gpuslice_pod_")
        )

    def health(before: Page, page: Page) -> Iterator[str]:
        # cGPU's files are below the process table, too.
        reasons = {key[1] for key in failures_of(before, page)} - {"cgpu_file"}
        if reasons != ({fault.fails} if fault.fails else set()):
            yield f"is counted as {reasons}"
        if page.value("gpuslice_process_attribution_available") != (0 if fault.fails else 1):
            yield "gpuslice_process_attribution_available is wrong"
        yield from _false_zeros(before, page)

    return Claim(own=own, health=health, states=STATES)


def _false_zeros(before: Page, page: Page) -> Iterator[str]:
    for series, value in page.samples.items():
        if value == 0 and before.samples.get(series) and name_of(series).startswith("gpuslice_container_"):
            yield f"{series} is 0, and should be {before.samples[series]:g}"


def outcome(before: Page, page: Page) -> str:
    """Return what is unknown now."""
    left = [
        name
        for name in ("memory_used_bytes", "compute_used_ratio", "processes")
        if len(list(page.series(f"gpuslice_container_{name}")))
        < len(list(before.series(f"gpuslice_container_{name}")))
    ]
    return f"unknown: {', '.join(left)}" if left else "nothing lost"


async def try_cell(watch: Watch, cell: Cell) -> Result:
    """Put the fault of a cell on."""
    fault = FAULTS[f"{cell.what} {cell.how}"]
    path = watch.node.paths.proc_root / fault.at
    let_in(watch.node)
    standing = _standing(watch, fault, path)
    return await watch.under(cell, standing, claim_of(watch, fault), outcome, fault.polls)


@contextlib.asynccontextmanager
async def _standing(watch: Watch, fault: Fault, path: Path) -> AsyncIterator[None]:
    """Have the node write no file of processes meanwhile: it could not either."""
    hangs = fault.fails == "deadline"
    with (
        mock.patch.object(watch.node._tree, "step"),
        short(watch.poller._processes) if hangs else contextlib.nullcontext(),
    ):
        async with fault.put(path):
            yield
        if hangs:
            await asyncio.wait({watch.poller._processes._task})
