"""A driver's library of a few functions, which answer as no healthy driver does.

A function gets what the binding would pass to C: out parameters by reference, arrays as they are.
"""

import shutil
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_void_p, cast
from types import SimpleNamespace
from typing import Any

import pynvml

from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from tests.tools import lacks

HANDLE = c_void_p(1)
NOT_AVAILABLE = 2**64 - 1
NOBODY = 0xFFFFFFFF
Function = Callable[..., int]


def installed(**functions: Function) -> Calls:
    """Open a library of these functions under the binding; return its calls."""
    Library(library=library(**functions)).open()
    return Calls()


def library(**functions: Function) -> SimpleNamespace:
    """Return a library that can be opened and closed, and has these functions."""
    return SimpleNamespace(nvmlInitWithFlags=answers(0), nvmlShutdown=answers(0), **functions)


def compiler() -> str:
    """Return the path of a C compiler; skip the test without one, or fail it in CI."""
    return shutil.which("cc") or shutil.which("gcc") or lacks("no C compiler is installed")


def answers(code: int) -> Function:
    """Return a function that returns a code and writes nothing."""
    return lambda *_: code


def fills(**fields: int) -> Function:
    """Return a function that fills the struct of its last argument."""

    def function(*arguments: Any) -> int:
        for name, value in fields.items():
            setattr(arguments[-1]._obj, name, value)
        return 0

    return function


def writes(value: Any) -> Function:
    """Return a function that writes its last argument, a number by reference."""

    def function(*arguments: Any) -> int:
        arguments[-1]._obj.value = value
        return 0

    return function


def lists(*records: dict[str, int]) -> Function:
    """Return a process list."""

    def function(_handle: Any, count: Any, infos: Any) -> int:
        return _give(records, infos, count)

    return function


def samples(*records: dict[str, int], asked: list[int] | None = None) -> Function:
    """Return a list of utilization samples; ``asked`` gets the time stamp of each call."""

    def function(_handle: Any, infos: Any, count: Any, since: Any) -> int:
        if asked is not None and infos is None:
            asked.append(since.value)
        return _give(records, infos, count)

    return function


def _give(records: Sequence[dict[str, int]], infos: Any, count: Any) -> int:
    room = 0 if infos is None else count._obj.value
    count._obj.value = len(records)
    if room < len(records):
        return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    for place, record in enumerate(records):
        for name, value in record.items():
            setattr(infos[place], name, value)
    return pynvml.NVML_SUCCESS


def context(pid: int, memory: int = 1 << 30, gi: int = NOBODY, ci: int = NOBODY) -> dict[str, int]:
    """Return an entry of a process list."""
    return {"pid": pid, "usedGpuMemory": memory, "gpuInstanceId": gi, "computeInstanceId": ci}


def sample(pid: int, at: int, percent: int) -> dict[str, int]:
    """Return a record of process utilization at a time in microseconds."""
    return {"pid": pid, "timeStamp": at, "smUtil": percent}


def address(handle: Any) -> int:
    """Return the pointer in a device handle."""
    return cast(handle, c_void_p).value or 0


def handle_of(reference: Any) -> Any:
    """Return the device handle that a call has written."""
    return cast(reference, POINTER(c_void_p))[0]
