"""Errors of the program's own parts: each costs what it is about, and the rest of the page stays.

A part raises what it should not: a reader of one GPU, one sharing system, a handler of events, the join.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pynvml

from exporter import sharing
from exporter.demo.scenario import XidEvent
from exporter.nvml import event_wait
from exporter.nvml.events import EventWatcher
from exporter.nvml.gpu import GpuReader
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.sharing.base import System
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.harness import Watch
from tests.together.faults.nvml_cells import OF_EVENTS, STATES
from tests.together.faults.nvml_nodes import WHOLE
from tests.together.faults.pages import Page, name_of

BROKEN = RuntimeError("broken")


class Broken(System):
    """A sharing system that fails whatever it is asked."""

    name = "broken"
    read = mock.Mock(side_effect=BROKEN)
    claim = mock.Mock(side_effect=BROKEN)
    grants = mock.Mock(side_effect=BROKEN)


class Unmade(System):
    """A sharing system that cannot be made."""

    name = "unmade"

    # Its files are new on the node, so that holders are resolved again.
    read = mock.Mock(side_effect=BROKEN)
    begin = mock.Mock(side_effect=BROKEN)

    def __init__(self, view: Any) -> None:
        self.begin(view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A part that raises; ``own`` are the series that it may cost, ``logs`` what may be logged."""

    put: Callable[[Watch], AbstractContextManager[object]]
    own: Callable[[Watch, str], bool] = lambda _watch, _series: False
    logs: bool = False


def _of_whole_gpu(watch: Watch, series: str) -> bool:
    return watch.node.scenario.gpus[WHOLE].uuid in series


def _of_events(_watch: Watch, series: str) -> bool:
    return name_of(series) in OF_EVENTS | {"gpuslice_gpu_events_watched"}


def _raises(target: object, name: str, error: BaseException = BROKEN) -> Callable[[Watch], Any]:
    return lambda _watch: mock.patch.object(target, name, side_effect=error)


def _with_systems(*systems: type[System]) -> Callable[[Watch], Any]:
    @contextlib.contextmanager
    def put(_watch: Watch) -> Iterator[None]:
        with_these = (*systems, *sharing.SYSTEMS)
        with (
            mock.patch.object(sharing, "SYSTEMS", with_these),
            mock.patch.object(sharing.made, "__defaults__", (with_these,)),
        ):
            yield
        assert Broken.grants.called or Unmade.begin.called

    return put


@contextlib.contextmanager
def _unreadable_gpu(watch: Watch) -> Iterator[None]:
    real, uuid = GpuReader.read, watch.node.scenario.gpus[WHOLE].uuid

    def read(reader: GpuReader, handle: Any, which: str, *more: Any) -> Any:
        if which == uuid:
            raise BROKEN
        return real(reader, handle, which, *more)

    with mock.patch.object(GpuReader, "read", read):
        yield


@contextlib.contextmanager
def _unreadable_event(watch: Watch) -> Iterator[None]:
    xid = XidEvent(kind="xid", at=watch.node.time, device=watch.node.scenario.gpus[WHOLE].uuid, xid=13)
    with mock.patch.object(EventWatcher, "_record", side_effect=BROKEN):
        watch.plan(xid)
        yield
        watch.plan()


@contextlib.contextmanager
def _bad_subscriber(watch: Watch) -> Iterator[None]:
    reader = mock.Mock(side_effect=BROKEN)
    watch.poller._readers.insert(0, reader)
    yield
    assert reader.called
    watch.poller._readers.remove(reader)


@contextlib.contextmanager
def _failing_join(watch: Watch) -> Iterator[None]:
    poller = watch.poller

    async def guarded() -> None:
        with mock.patch.object(poller, "poll", real):
            await poller._guarded_poll()

    real = poller.poll
    with (
        mock.patch.object(poller, "poll", guarded),
        mock.patch.object(SnapshotBuilder, "_joined", side_effect=BROKEN),
    ):
        yield


ERRORS: Mapping[str, Error] = {
    "a reader of a GPU": Error(put=_unreadable_gpu, own=_of_whole_gpu),
    "an answer that cannot be decoded": Error(
        put=_raises(pynvml, "nvmlDeviceGetEncoderUtilization", ValueError("broken")),
        own=lambda _watch, series: "enc" in name_of(series).lower(),
    ),
    "an event": Error(put=_unreadable_event, own=_of_events, logs=True),
    "the wait for events": Error(put=_raises(event_wait.EventWait, "_next"), own=_of_events, logs=True),
    "a sharing system": Error(put=_with_systems(Broken)),
    "a sharing system that is made": Error(put=_with_systems(Unmade)),
    "a subscriber": Error(put=_bad_subscriber, logs=True),
    "the join": Error(put=_failing_join, own=lambda _watch, _series: True, logs=True),
}
CELLS = tuple(Cell(source="program", what=what, how="raises", where="poll") for what in ERRORS)


def outcome(before: Page, page: Page) -> str:
    """Return how many series are absent."""
    lost = len(before.samples.keys() - page.samples.keys())
    return f"{lost} series absent" if lost else "nothing lost"


async def try_cell(watch: Watch, cell: Cell) -> Result:
    """Have a part raise for one poll."""
    error = ERRORS[cell.what]
    claim = Claim(
        own=lambda series: error.own(watch, series),
        health=lambda _before, _page: (),
        states=STATES,
    )

    @contextlib.asynccontextmanager
    async def put() -> Any:
        with error.put(watch):
            yield

    result = await watch.under(cell, put(), claim, outcome)
    if not error.logs:
        return result
    # An error that ends a thread is not one that is only logged.
    logged = re.compile(r"logged: (?!thread ).*broken")
    broken = tuple(text for text in result.broken if not logged.match(text))
    return replace(result, broken=broken)
