"""What holds for all tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from exporter.nvml import event_wait
from tests import tools
from tests.scratch import use_memory

# The program is started a hundred times, and the tests are read by each worker: what they import is compiled
# once, also where nothing is to be kept of what is compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Pages and nodes are made of a hundred thousand objects. That the collector looked through them in vain took
# an eighth of the time. What is made until all tests are collected stays to the end, and a process that only
# gives out tests makes no cycles.
gc.set_threshold(20_000)
gc.disable()

use_memory()

# How long one example takes depends on what else the machine does; speed is what the benchmarks measure.
settings.register_profile("gpuslice", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuslice")

# Programs inherit what is ignored, as in the background of a shell or under nohup: none of them would end.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)
_HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update``."""
    parser.addoption(
        "--update",
        action="store_true",
        help="overwrite reviewed pages and budgets instead of comparing with them; review the diff in git",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note which test runs, for ``tests.tools``."""
    tools.current = item


@pytest.fixture(autouse=True, scope="session")
def _waits_for_events_are_short() -> Iterator[None]:
    """Let a poller that is closed not wait half a second for its thread of GPU events."""
    kept, event_wait.SLICE_MILLISECONDS = event_wait.SLICE_MILLISECONDS, 50
    yield
    event_wait.SLICE_MILLISECONDS = kept


@pytest.fixture(autouse=True)
def _signals_are_left_alone() -> Iterator[None]:
    """Programs inherit what is ignored: those of later tests would not end when they are told to."""
    yield
    assert {number: signal.getsignal(number) for number in _HANDLERS} == _HANDLERS


# NVIDIA's mock driver and Grafana are in no registry, and Kubernetes takes long to build: `make mock`,
# `make grafana` and `make cluster` have their folders.
collect_ignore = [
    folder
    for folder, needed in (
        ("together/mock", "NVML_MOCK"),
        ("product/grafana", "GRAFANA"),
        ("together/cluster", "CLUSTER"),
    )
    if needed not in os.environ
]
# Long runs of programs of their own, each of which any process may take.
_LONG = ("tests/together/soak/test_soak.py", "tests/together/fuzz/test_guided.py")
# Each of these takes all processors by itself: one process runs them one after the other.
_ALONE = ("tests/together/faults/test_matrices.py",)
# All tests of these folders ask one Prometheus, which each process that has one of them starts, or look at
# one image: while a process builds it, others would do nothing but wait.
_TOGETHER = ("tests/product/recipes/", "tests/product/image/")
# Tests that look at nodes, which a process acts out once for all of them, and the names of the nodes.
_OF_NODES = ("tests/core/golden/", "tests/page/web/test_truth_", "tests/page/web/test_views_")
_NODES = frozenset(path.name for path in (Path(__file__).parent / "core/golden").iterdir())


class _ByFileOrNode(LoadFileScheduling):
    """Gives a process all tests of a file, of a folder with one Prometheus, or that look at a node."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_LONG):
            return nodeid
        together = (folder for folder in _TOGETHER if nodeid.startswith(folder))
        return next(together, "") or _node_of(nodeid) or super()._split_scope(nodeid)


def _node_of(nodeid: str) -> str:
    parameter = nodeid.partition("[")[2].removesuffix("]")
    return parameter if nodeid.startswith(_OF_NODES) and parameter in _NODES else ""


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over the tests and modules, which take it seconds."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Distribute tests by file or node, if --dist=loadfile asks for that."""
    return _ByFileOrNode(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long runs first, because the last of them would be waited for, and then the nodes."""
    first = (*_ALONE, *_LONG)
    items.sort(key=lambda item: (not item.nodeid.startswith(first), not _node_of(item.nodeid)))
