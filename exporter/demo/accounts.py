"""The accounts that the fake driver keeps of processes on a GPU, if accounting is on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

# Accounts of processes that have ended, as in NVIDIA's open driver.
ENDED_KEPT = 128
MICROSECONDS = 1_000_000
# Of a percent.
HUNDREDTHS = 100
# Length of a sample.
SAMPLE = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """The account of one process. Times are in microseconds since the epoch."""

    pid: int
    start: int
    end: int | None = None  # None while it runs
    samples: int = 0  # of the GPU since its start
    booked: int = 0  # sum of its samples, in hundredths of a percent
    memory: int = 0  # bytes, at most


class Accounts:
    """The accounts of one GPU: the driver loses the oldest of those that have ended."""

    def __init__(self) -> None:
        self._running: dict[int, AccountState] = {}
        self._ended: dict[int, AccountState] = {}
        self._time: int | None = None

    def advance(self, wall: float, sampled: Mapping[int, int], memory: Mapping[int, int]) -> None:
        """Add the samples since the last step: percent by pid, and the bytes of each process that runs."""
        now = round(wall * MICROSECONDS)
        samples = 0 if self._time is None else now // SAMPLE - self._time // SAMPLE
        self._time = now
        for pid in self._running.keys() - memory.keys():
            self._ended.pop(pid, None)
            self._ended[pid] = replace(self._running.pop(pid), end=now)
        for pid in list(self._ended)[:-ENDED_KEPT]:
            del self._ended[pid]
        for pid, size in memory.items():
            account = self._running.get(pid)
            if account is None:
                self._running[pid] = AccountState(pid=pid, start=now, memory=size)
                continue
            self._running[pid] = replace(
                account,
                samples=account.samples + samples,
                booked=account.booked + samples * HUNDREDTHS * sampled.get(pid, 0),
                memory=max(account.memory, size),
            )

    def all(self) -> tuple[AccountState, ...]:
        """Return the accounts in the driver's order: those of processes that have ended first."""
        return (*self._ended.values(), *self._running.values())
