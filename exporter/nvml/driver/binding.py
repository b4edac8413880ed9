"""Calls that the binding makes with wrong argument types or leaves incomplete, and its records as tuples."""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import _SimpleCData, byref, c_int, c_uint, c_ulonglong, sizeof
from functools import lru_cache
from struct import Struct, calcsize
from typing import Any

import pynvml


class Records:
    """Reads arrays of ``record``, a structure of the binding whose fields are numbers.

    A record comes as a named tuple of the same fields.
    """

    def __init__(self, record: Any) -> None:
        names, kinds = zip(*record._fields_, strict=True)
        # Both modules of the standard library name the types of C by these letters and align them as C does.
        letters = "@" + "".join(kind._type_ for kind in kinds)
        self.record = record
        self._layout = Struct(f"{letters}{sizeof(record) - calcsize(letters)}x")
        kind: Any = namedtuple(record.__name__, names)  # type: ignore[misc] # noqa: PYI024 - found at run time
        self._make = kind._make

    def first(self, count: int, array: Any) -> list[Any]:
        """Read the first ``count`` records of an array, or all where there are fewer."""
        filled = memoryview(array).cast("B")[: count * self._layout.size]
        return list(map(self._make, self._layout.iter_unpack(filled)))


# Bindings of driver 570 have version 2 of the record only, under the name of the newest.
_FABRIC_INFO = getattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", None) or pynvml.c_nvmlGpuFabricInfoV_t
_SAMPLE = Records(pynvml.c_nvmlProcessUtilizationSample_t)
# No device has so many processes, samples of them or vGPUs; a driver that says so answers garbage.
MOST_RECORDS = 65536
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
# GPUs of one kind are asked the same; where a driver refuses fields together, they are asked one by one.
MOST_QUESTIONS = 512
# Stands for memory that the driver cannot tell.
NOT_AVAILABLE = 2**64 - 1
# No code of a driver's: of a record that it has not filled.
NOT_ANSWERED = 2**31
# The unversioned names of the binding stand for this one.
NEWEST = "_v3"

# Asks for a list: with None for its size, with an array to have it filled. Returns the driver's code.
Ask = Callable[[Any, Any], int]


def _function(name: str) -> Any:
    """Return a function of the driver's library; raise as the binding does where there is none."""
    return pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - there is no public way


def _frame_buffer_usage(vgpu: int) -> int:
    """Return the bytes that the guest of a vGPU uses; the binding's own way keeps the lower 32 bits only."""
    used = c_ulonglong(0)
    code = _function("nvmlVgpuInstanceGetFbUsage")(vgpu, byref(used))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return used.value


def _fabric_info(device: Any) -> Any:
    """Return the record that the binding wants from its caller."""
    info = _FABRIC_INFO()
    pynvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    return info


def _field_values(device: Any, wanted: Sequence[tuple[int, int]]) -> Any:
    """Return an answer for each field, by its number and scope.

    The binding hands out records of zeros, and zero says success: what a driver leaves as it was given would
    be read as an answer.
    """
    values = (pynvml.c_nvmlFieldValue_t * len(wanted)).from_buffer_copy(_unanswered(tuple(wanted)))
    code = _function("nvmlDeviceGetFieldValues")(device, c_int(len(wanted)), byref(values))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return values


@lru_cache(maxsize=MOST_QUESTIONS)
def _unanswered(wanted: tuple[tuple[int, int], ...]) -> bytes:
    """Return the records that ask for these fields; the binding takes its time for each value that is set."""
    values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
    for value, (number, scope) in zip(values, wanted, strict=True):
        value.fieldId, value.scopeId = number, scope
        value.nvmlReturn = NOT_ANSWERED
    return bytes(values)


def _filled(ask: Ask, record: Any, spare: int = 0) -> tuple[Any, int] | None:
    """Return an array and how many of its records the driver filled; None where the list is empty.

    The size is asked first. With ``spare``, there is room for twice as many and so many more: the list may
    grow between the two questions. Raises MemoryError when the size is none that a list can have.
    """
    count = c_uint(0)
    code = ask(byref(count), None)
    if code == pynvml.NVML_SUCCESS and not count.value:
        return None
    # Success with a size is not an empty list, although the documentation has no such answer.
    if code not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
        raise pynvml.NVMLError(code)
    if count.value > MOST_RECORDS:
        raise MemoryError(f"the driver says that a list has {count.value} records")
    if spare:
        count.value = count.value * 2 + spare
    records = (record * count.value)()
    code = ask(byref(count), records)
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return records, count.value


def _told(process: Any) -> Any:
    """Return a record without a figure that the driver does not have."""
    return process if process.usedGpuMemory != NOT_AVAILABLE else process._replace(usedGpuMemory=None)


def _running(name: str, function: str, record: Any) -> Callable[[Any], list[Any]]:
    """Make the call of this name, which lists processes; ``function`` is the one of the driver's library."""
    kind = Records(record)

    def running(device: Any) -> list[Any]:
        call = _function(function)
        found = _filled(lambda count, records: call(device, count, records), record, spare=5)
        if found is None:
            return []
        records, filled = found
        if filled > len(records):
            raise IndexError(f"the driver filled {filled} records where there was room for {len(records)}")
        return [_told(process) for process in kind.first(filled, records)]

    # The binding names the call in an error's text.
    running.__name__ = name
    return running


def _process_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples after a time; an empty list is an error that says success, as in the binding."""
    call, stamp = _function("nvmlDeviceGetProcessUtilization"), c_ulonglong(since)
    found = _filled(lambda count, records: call(device, records, count, stamp), _SAMPLE.record)
    if found is None:
        raise pynvml.NVMLError(pynvml.NVML_SUCCESS)
    records, filled = found
    return _SAMPLE.first(filled, records)


def _vgpu_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples of vGPUs after a time."""
    call, stamp = _function("nvmlDeviceGetVgpuUtilization"), c_ulonglong(since)
    kind = pynvml._nvmlValueType_t()  # noqa: SLF001 - the binding has no other name for it
    found = _filled(
        lambda count, records: call(device, stamp, byref(kind), count, records),
        pynvml.c_nvmlVgpuInstanceUtilizationSample_t,
    )
    if found is None:
        return []
    records, filled = found
    return list(records[:filled])


def _active_vgpus(device: Any) -> list[int]:
    """Return the driver's numbers of the vGPUs that run."""
    call = _function("nvmlDeviceGetActiveVgpus")
    found = _filled(lambda count, records: call(device, count, records), c_uint)
    if found is None:
        return []
    numbers, filled = found
    return [numbers[place] for place in range(filled)]


def _process_lists() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in PROCESS_LISTS:
        for version in ("_v2", NEWEST):
            function = name + version
            record = getattr(pynvml, f"c_nvmlProcessInfo{version}_t", None)
            if record is None:
                continue
            yield function, _running(function, function, record)
            if version == NEWEST:
                yield name, pynvml.throwOnVersionMismatch(_running(name, function, record))


def _corrected() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "nvmlVgpuInstanceGetFbUsage", _frame_buffer_usage
    yield "nvmlDeviceGetGpuFabricInfoV", _fabric_info
    yield "nvmlDeviceGetFieldValues", _field_values
    yield "nvmlDeviceGetProcessUtilization", _process_utilization
    yield "nvmlDeviceGetVgpuUtilization", _vgpu_utilization
    yield "nvmlDeviceGetActiveVgpus", _active_vgpus
    yield from _process_lists()


CORRECTED: Mapping[str, Callable[..., Any]] = {
    name: call for name, call in _corrected() if hasattr(pynvml, name)
}
"""By the name of the call, those that the binding has; they raise as the binding's own do."""


def to_python(answer: Any) -> Any:
    """Turn the binding's mixture of bytes, ctypes numbers and Python values into the last."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, _SimpleCData):
        return answer.value
    return answer
