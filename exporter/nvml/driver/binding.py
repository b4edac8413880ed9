"""Corrected calls: the binding's own pass wrong types, are incomplete, or decode slowly."""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from ctypes import _SimpleCData, byref, c_int, c_uint, c_ulonglong, c_void_p, sizeof
from functools import lru_cache
from struct import Struct, calcsize
from typing import Any, NamedTuple

import pynvml

from exporter.model.hardware import ProcessKind
from exporter.nvml.driver.memory_limits import memory_limits


class Records:
    """Decodes arrays of ``record``, a structure of the binding with numbers only, into named tuples."""

    def __init__(self, record: Any) -> None:
        names, kinds = zip(*record._fields_, strict=True)
        # ctypes and struct use the same letters for C types, and align them as C does.
        letters = "@" + "".join(kind._type_ for kind in kinds)
        self.record = record
        self._layout = Struct(f"{letters}{sizeof(record) - calcsize(letters)}x")
        kind: Any = namedtuple(record.__name__, names)  # type: ignore[misc] # noqa: PYI024 - found at run time
        self._make = kind._make

    def first(self, count: int, array: Any) -> list[Any]:
        """Return the first ``count`` records of an array, or all if there are fewer."""
        filled = memoryview(array).cast("B")[: count * self._layout.size]
        return list(map(self._make, self._layout.iter_unpack(filled)))


# Bindings of driver 570 have only version 2 of the record, under the name of the newest.
_FABRIC_INFO = getattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", None) or pynvml.c_nvmlGpuFabricInfoV_t
_SAMPLE = Records(pynvml.c_nvmlProcessUtilizationSample_t)
_NEWER_SAMPLE = Records(pynvml.c_nvmlProcessUtilizationInfo_v1_t)
# Both versions of the lists have it.
_PROCESS = Records(pynvml.c_nvmlProcessInfo_v2_t)
_PROCESS_DETAIL = Records(pynvml.c_nvmlProcessDetail_v1_t)
# A longer list of processes, samples or vGPUs is not plausible.
MOST_RECORDS = 65536
# In the order of the modes of nvmlDeviceGetRunningProcessDetailList.
PROCESS_LISTS: Mapping[ProcessKind, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
# Sets of fields that are read together: few, unless a driver refuses them together, and they are read singly.
MOST_FIELD_SETS = 512
# Sentinel for memory that the driver cannot report (NVML_VALUE_NOT_AVAILABLE).
NOT_AVAILABLE = 2**64 - 1
# Id of a GPU instance or compute instance where there is none: on a whole GPU.
NO_INSTANCE = 0xFFFFFFFF
# Not an NVML code: marks a record that the driver has not filled.
NOT_ANSWERED = 2**31

# Gets a list: its size without an array, else its records. Receives (count, array); returns the driver's
# code.
GetList = Callable[[Any, Any], int]


def _function(name: str) -> Any:
    """Return a function of the driver's library; raises NVMLError FunctionNotFound as the binding does."""
    return pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - there is no public way


def _frame_buffer_usage(vgpu: int) -> int:
    """Return the bytes used by the guest of a vGPU; the binding's own call keeps only the lower 32 bits."""
    used = c_ulonglong(0)
    _check(_function("nvmlVgpuInstanceGetFbUsage")(vgpu, byref(used)))
    return used.value


def _fabric_info(device: Any) -> Any:
    """Return the fabric record; the binding's own call leaves it to the caller to make one."""
    info = _FABRIC_INFO()
    pynvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    return info


def _conf_compute_settings() -> Any:
    """Return the settings of confidential computing; the binding's own call does not check the code."""
    settings = pynvml.c_nvmlSystemConfComputeSettings_v1_t()
    _check(_function("nvmlSystemGetConfComputeSettings")(byref(settings)))
    return settings


def _field_values(device: Any, fields: Sequence[tuple[int, int]]) -> Any:
    """Return an array with a record for each field (number, scope).

    The binding passes zeroed records, and zero is the code for success: a record that the driver does not
    fill would look like an answer.
    """
    values = (pynvml.c_nvmlFieldValue_t * len(fields)).from_buffer_copy(_unanswered(tuple(fields)))
    _check(_function("nvmlDeviceGetFieldValues")(device, c_int(len(fields)), byref(values)))
    return values


@lru_cache(maxsize=MOST_FIELD_SETS)
def _unanswered(fields: tuple[tuple[int, int], ...]) -> bytes:
    """Return the records that request these fields; cached, as filling the binding's records is slow."""
    values = (pynvml.c_nvmlFieldValue_t * len(fields))()
    for value, (number, scope) in zip(values, fields, strict=True):
        value.fieldId, value.scopeId = number, scope
        value.nvmlReturn = NOT_ANSWERED
    return bytes(values)


def _check(code: int) -> None:
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)


def _list(get: GetList, record: Any, spare: int = 0) -> tuple[Any, int]:
    """Return an array of ``record`` and the number of its records that the driver filled.

    With ``spare``, the array has room for twice the size plus ``spare``, because the list may grow between
    the two calls. Raises NVMLError, and MemoryError for an implausible size.
    """
    count = c_uint(0)
    code = get(byref(count), None)
    # Some drivers answer success with a size, although the documentation has no such answer.
    if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        _check(code)
    if code == pynvml.NVML_SUCCESS and not count.value:
        return (), 0
    if count.value > MOST_RECORDS:
        raise MemoryError(f"the driver reports a list of {count.value} records")
    if spare:
        count.value = count.value * 2 + spare
    records = (record * count.value)()
    _check(get(byref(count), records))
    return records, count.value


def _process_list(function: str) -> Callable[[Any], list[Any]]:
    """Return a call that lists processes with ``function`` of the driver's library."""

    def processes(device: Any) -> list[Any]:
        call = _function(function)
        records, filled = _list(lambda count, records: call(device, count, records), _PROCESS.record, spare=5)
        return _processes(_PROCESS, records, filled)

    return processes


def _processes(layout: Records, records: Any, filled: int) -> list[Any]:
    """Return the first ``filled`` entries of a list of processes."""
    if filled > len(records):
        raise IndexError(f"the driver filled {filled} records in an array of {len(records)}")
    entries = layout.first(filled, records) if filled else []
    return [
        entry._replace(usedGpuMemory=None) if entry.usedGpuMemory == NOT_AVAILABLE else entry
        for entry in entries
    ]


def _process_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples after ``since`` (microseconds); raises NVMLError Success if there are none."""
    call, stamp = _function("nvmlDeviceGetProcessUtilization"), c_ulonglong(since)
    records, filled = _list(lambda count, records: call(device, records, count, stamp), _SAMPLE.record)
    if records == ():
        raise pynvml.NVMLError(pynvml.NVML_SUCCESS)
    return _SAMPLE.first(filled, records)


class ListRecord(NamedTuple):
    """A call whose only out parameter is a record with a list."""

    function: str
    # Fields of that record: the number of entries, and the pointer to them.
    length: str
    array: str
    entry: Any  # an entry

    def read(self, device: Any, answer: Any, spare: int = 0) -> tuple[Any, int]:
        """Return the list as ``_list`` does; ``answer`` is the record."""
        call = _function(self.function)

        def get(size: Any, entries: Any) -> int:
            setattr(answer, self.length, size._obj.value)  # noqa: SLF001 - what byref() refers to
            if entries is not None:
                setattr(answer, self.array, entries)
            code: int = call(device, byref(answer))
            size._obj.value = getattr(answer, self.length)  # noqa: SLF001
            return code

        return _list(get, self.entry, spare)


_NEWER_SAMPLES = ListRecord(
    "nvmlDeviceGetProcessesUtilizationInfo", "processSamplesCount", "procUtilArray", _NEWER_SAMPLE.record
)
_PROCESS_DETAILS = ListRecord(
    "nvmlDeviceGetRunningProcessDetailList", "numProcArrayEntries", "procArray", _PROCESS_DETAIL.record
)
_NEWER_VGPU_SAMPLES = ListRecord(
    "nvmlDeviceGetVgpuInstancesUtilizationInfo",
    "vgpuInstanceCount",
    "vgpuUtilArray",
    pynvml.c_nvmlVgpuInstanceUtilizationInfo_v1_t,
)


def _processes_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples after ``since`` as ``_process_utilization`` does, from the newer call."""
    answer = pynvml.c_nvmlProcessesUtilizationInfo_v1_t(
        version=pynvml.ProcessesUtilizationInfo_v1, lastSeenTimeStamp=since
    )
    records, filled = _NEWER_SAMPLES.read(device, answer)
    if records == ():
        raise pynvml.NVMLError(pynvml.NVML_SUCCESS)
    return _NEWER_SAMPLE.first(filled, records)


def _process_details(device: Any, mode: int) -> list[Any]:
    """Return the list of processes of one kind from the newest call."""
    answer = pynvml.c_nvmlProcessDetailList_t(version=pynvml.nvmlProcessDetailList_v1, mode=mode)
    return _processes(_PROCESS_DETAIL, *_PROCESS_DETAILS.read(device, answer, spare=5))


def _vgpus_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples of vGPUs after ``since`` (microseconds), from the newer call."""
    answer = pynvml.c_nvmlVgpuInstancesUtilizationInfo_v1_t(
        version=pynvml.VgpuInstancesUtilizationInfo_v1, lastSeenTimeStamp=since
    )
    records, filled = _NEWER_VGPU_SAMPLES.read(device, answer)
    return list(records[:filled])


def _vgpu_utilization(device: Any, since: int) -> list[Any]:
    """Return the samples of vGPUs after ``since`` (microseconds)."""
    call, stamp = _function("nvmlDeviceGetVgpuUtilization"), c_ulonglong(since)
    kind = pynvml._nvmlValueType_t()  # noqa: SLF001 - the binding has no other name for it
    records, filled = _list(
        lambda count, records: call(device, stamp, byref(kind), count, records),
        pynvml.c_nvmlVgpuInstanceUtilizationSample_t,
    )
    return list(records[:filled])


def _active_vgpus(device: Any) -> list[int]:
    """Return NVML's ids of the running vGPUs."""
    call = _function("nvmlDeviceGetActiveVgpus")
    numbers, filled = _list(lambda count, records: call(device, count, records), c_uint)
    return [numbers[place] for place in range(filled)]


# Corrected calls by name, which raise NVMLError like the binding's own; a bare name calls version 3.
CORRECTED: Mapping[str, Callable[..., Any]] = {
    "nvmlVgpuInstanceGetFbUsage": _frame_buffer_usage,
    "nvmlDeviceGetGpuFabricInfoV": _fabric_info,
    "nvmlSystemGetConfComputeSettings": _conf_compute_settings,
    "nvmlDeviceGetFieldValues": _field_values,
    "nvmlDeviceGetProcessUtilization": _process_utilization,
    "nvmlDeviceGetProcessesUtilizationInfo": _processes_utilization,
    "nvmlDeviceGetRunningProcessDetailList": _process_details,
    "nvmlDeviceGetVgpuUtilization": _vgpu_utilization,
    "nvmlDeviceGetVgpuInstancesUtilizationInfo": _vgpus_utilization,
    "nvmlDeviceGetActiveVgpus": _active_vgpus,
    "nvmlDeviceGetMemoryLimits_v1": memory_limits,
    **{name: _process_list(f"{name}_v3") for name in PROCESS_LISTS.values()},
    **{f"{name}_v2": _process_list(f"{name}_v2") for name in PROCESS_LISTS.values()},
}


def to_python(answer: Any) -> Any:
    """Return text for bytes and a number for a ctypes number; other answers of the binding unchanged."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, _SimpleCData):
        return answer.value
    return answer


def text_field(record: Any, name: str) -> str:
    """Return the text in a field of a record; the binding's own access raises if it is not UTF-8."""
    raw: bytes = object.__getattribute__(record, name)
    return raw.decode(errors="replace")


def address_of(handle: Any) -> int:
    """Return the pointer in a handle."""
    # A cast would create a reference cycle of the handle.
    return c_void_p.from_buffer(handle).value or 0
