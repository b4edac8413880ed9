"""Calls of the fake driver through the unmodified binding."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.fake.demo.making import Bench

NOT_SUPPORTED, NOT_FOUND = pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND
INVALID, MISSING = pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def gpu_at(index: int = 0) -> Any:
    """Return the handle of a GPU."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def mig_at(slot: int) -> Any:
    """Return the handle of a MIG device of the first GPU."""
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu_at(), slot)


def code_of(function: Callable[..., object], *arguments: object) -> int:
    """Return the code of the error that a call of the binding raises."""
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*arguments)
    return int(caught.value.value)


def fields_of(handle: object, *wanted: int | tuple[int, int]) -> list[int | None]:
    """Return field values by number or (number, scope), None for one that is not supported."""
    entries = pynvml.nvmlDeviceGetFieldValues(handle, list(wanted))
    assert {entry.nvmlReturn for entry in entries} <= {0, pynvml.NVML_ERROR_NOT_SUPPORTED}
    members = {1: "uiVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
    return [None if entry.nvmlReturn else getattr(entry.value, members[entry.valueType]) for entry in entries]


def listed(bench: Bench, function: str, handle: object) -> list[int]:
    """Return the pids of a process list, also one without a wrapper in the binding."""
    infos, count = (pynvml.c_nvmlProcessInfo_v2_t * 8)(), ctypes.c_uint(8)
    assert getattr(bench.nvml, function)(handle, ctypes.byref(count), infos) == pynvml.NVML_SUCCESS
    return [infos[place].pid for place in range(count.value)]
