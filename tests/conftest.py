"""What holds for all tests."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The program is started a hundred times, and the tests are read by each worker: what they import is compiled
# once, also where nothing is to be kept of what is compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

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
