"""Calls of the driver's accounting, with records of our own: older bindings lack the second version.

Layouts: ``nvmlAccountingStats_t`` and ``nvmlAccountingStats_v2_t`` of nvml.h.
"""

from collections.abc import Callable, Mapping
from ctypes import Structure, byref, c_uint, c_ulonglong
from typing import Any, ClassVar

from exporter.nvml.driver.binding import Records, _check, _function, _list

PIDS, STATS, STATS_V2 = (
    "nvmlDeviceGetAccountingPids",
    "nvmlDeviceGetAccountingStats",
    "nvmlDeviceGetAccountingStats_v2",
)


class AccountingStats(Structure):
    """An account, before driver 610."""

    _fields_: ClassVar[Any] = [
        ("gpuUtilization", c_uint),
        ("memoryUtilization", c_uint),
        ("maxMemoryUsage", c_ulonglong),
        ("time", c_ulonglong),
        ("startTime", c_ulonglong),
        ("isRunning", c_uint),
        *((f"reserved{place}", c_uint) for place in range(5)),
    ]


class AccountingStatsV2(Structure):
    """An account with the sum of its samples."""

    _fields_: ClassVar[Any] = [
        ("pid", c_uint),
        ("isRunning", c_uint),
        ("gpuUtilization", c_uint),
        ("memoryUtilization", c_uint),
        ("maxMemoryUsage", c_ulonglong),
        ("sampleCount", c_uint),
        ("sumGpuUtil", c_ulonglong),
        ("sumFbUtil", c_ulonglong),
        ("time", c_ulonglong),
        ("startTime", c_ulonglong),
    ]


_STATS, _STATS_V2 = Records(AccountingStats), Records(AccountingStatsV2)


def _pids(device: Any) -> list[int]:
    """Return the pids that have an account; a pid may have two, of which the driver reports the older one."""
    call = _function(PIDS)
    numbers, filled = _list(lambda count, numbers: call(device, count, numbers), c_uint, spare=5)
    return [numbers[place] for place in range(filled)]


def _stats(device: Any, pid: int) -> Any:
    answer = (AccountingStats * 1)()
    _check(_function(STATS)(device, c_uint(pid), byref(answer[0])))
    return _STATS.first(1, answer)[0]


def _stats_v2(device: Any, pid: int) -> Any:
    answer = (AccountingStatsV2 * 1)()
    answer[0].pid = pid
    _check(_function(STATS_V2)(device, byref(answer[0])))
    return _STATS_V2.first(1, answer)[0]


# By name; they raise NVMLError like the binding's own.
ACCOUNTING: Mapping[str, Callable[..., Any]] = {PIDS: _pids, STATS: _stats, STATS_V2: _stats_v2}
