"""Functions of the fake driver about the accounts of processes, while accounting is on."""

from ctypes import addressof, c_uint
from typing import Any

from exporter.demo.accounts import HUNDREDTHS, MICROSECONDS, AccountState
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import Argument, Code, Function, known, numbers, require

# Running and ended processes.
MOST_ACCOUNTS = 4000


def is_on(device: GpuDevice) -> bool:
    """Return whether an administrator has turned accounting on; MIG turns it off."""
    return device.spec.accounting and not device.spec.mig_enabled


def _pids(device: GpuDevice, count: Argument, pids: Argument) -> None:
    require(is_on(device))
    accounts = device.state.accounts
    count.put_length(len(accounts), pids)
    array = (c_uint * len(accounts)).from_address(addressof(pids.target))
    array[:] = [account.pid for account in accounts]


def _account(device: GpuDevice, pid: int) -> AccountState:
    """Return the account of a pid: of the process that has ended, before that of one that runs."""
    require(is_on(device))
    accounts = (account for account in device.state.accounts if account.pid == pid)
    return known(next(accounts, None), Code.NOT_FOUND)


def _stats(device: GpuDevice, pid: Argument, reference: Argument) -> None:
    _fill(reference.target, _account(device, pid.number))


def _stats_v2(device: GpuDevice, reference: Argument) -> None:
    answer = reference.target
    account = _account(device, answer.pid)
    _fill(answer, account)
    answer.sampleCount, answer.sumGpuUtil = account.samples, account.booked
    answer.sumFbUtil = account.booked // 2


def _fill(answer: Any, account: AccountState) -> None:
    """Write what both versions have."""
    mean = account.booked // account.samples // HUNDREDTHS if account.samples else 0
    answer.gpuUtilization, answer.memoryUtilization = mean, mean // 2
    answer.maxMemoryUsage, answer.startTime = account.memory, account.start
    answer.isRunning = account.end is None
    # In milliseconds, and 0 while the process runs.
    answer.time = 0 if account.end is None else (account.end - account.start) * 1000 // MICROSECONDS


FUNCTIONS: dict[str, Function] = {
    "nvmlDeviceGetAccountingMode": numbers("gpu", is_on),
    "nvmlDeviceGetAccountingBufferSize": numbers("gpu", lambda _: MOST_ACCOUNTS),
    "nvmlDeviceGetAccountingPids": Function("gpu", _pids),
    "nvmlDeviceGetAccountingStats": Function("gpu", _stats),
    "nvmlDeviceGetAccountingStats_v2": Function("gpu", _stats_v2),
}
