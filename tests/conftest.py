"""What holds for all tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# The program is started a hundred times, and the tests are read by each worker: what they import is compiled
# once, also where nothing is to be kept of what is compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Pages and nodes are made of a hundred thousand objects. That the collector looked through them in vain took
# an eighth of the time.
gc.set_threshold(20_000)

# How long one example takes depends on what else the machine does; speed is what the benchmarks measure.
settings.register_profile("gpuslice", deadline=None)
settings.load_profile("gpuslice")

# What ends a program, by the names of its signals, as this process was started.
_HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


@pytest.fixture(autouse=True)
def _signals_are_left_alone() -> Iterator[None]:
    """Programs inherit what is ignored: those of later tests would not end when they are told to."""
    yield
    assert {number: signal.getsignal(number) for number in _HANDLERS} == _HANDLERS


# Files that look at the same nodes, each of which a process acts out once.
_TOGETHER = ("tests/golden/", "tests/web/test_truth_")


class _Together(LoadFileScheduling):
    """Gives all files of a group to one process, and each other file to any."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid) or super()._split_scope(nodeid)


def _group(nodeid: str) -> str:
    return next(filter(nodeid.startswith, _TOGETHER), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Distribute by files, where that is asked for."""
    return _Together(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the groups: one that came last would be waited for."""
    items.sort(key=lambda item: not _group(item.nodeid))
