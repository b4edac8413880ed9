"""The driver's own account of each process on a GPU, while an administrator has turned accounting on.

Facts of NVIDIA's open driver (src/nvidia/src/kernel/diagnostics/gpu_acct.c): once a second it adds the new
samples of the GPU to the accounts of the processes that run then, so an account misses the samples of the
last second of its process. They are the samples of nvmlDeviceGetProcessUtilization. The accounts of the last
128 processes that ended are kept. A process whose pid is among these has a second account, which cannot be
read until it ends.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.model import GpuReading, ProcessAccount, ProcessAccounts
from exporter.model.bounds import IMPOSSIBLE_VALUE, Bound
from exporter.model.hardware import BOOKING_SECONDS
from exporter.nvml.driver.accounting import PIDS, STATS, STATS_V2
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.answers import believed, forget, keep_only

GROUP = "accounting"
FORMS: tuple[Call, ...] = ((STATS_V2, ()), (STATS, ()))
# The fewest accounts of processes that have ended that a driver keeps.
FEWEST_KEPT = 128
# More would take a sweep too long.
MOST_ACCOUNTS = 1024
# Ten times the longest that NVIDIA documents, in seconds.
LONGEST_SAMPLE = 10.0
# Of a process, in microseconds: 15 years.
LONGEST_LIFE = 15 * 366 * 86_400 * 10**6
# The year 2200, in microseconds since the epoch.
LATEST_START = 230 * 366 * 86_400 * 10**6
MICROSECONDS, MILLISECONDS = 1e6, 1e3
# Sums are in hundredths of a percent.
WHOLE = 10_000
# Of the longest samples, which are of a second.
MOST_AT_ONCE = 2 * WHOLE
# Hosts of virtual machines account for these, by other pids.
HOSTS = frozenset({"vgpu_host", "vsga_host"})


class Entry(NamedTuple):
    """One account, as the driver has it. Times are Unix times in microseconds."""

    start: int
    end: int | None  # None while the process runs
    booked: int | None = None  # sum of samples, in hundredths of a percent; None before driver 610
    samples: int = 0  # of the GPU since its start


@dataclass(slots=True)
class SampleLength:
    """The length of the driver's samples in seconds, by the time in which a number of them was booked."""

    seconds: float = 0.0
    samples: int = 0
    slack: float = 0.0  # seconds by which that time may be wrong
    chained: bool = False  # whether the last sweep added to it, so that the next one goes on from there

    def add(self, seconds: float, samples: int, *, chains: bool) -> None:
        """Add a stretch of time; its ends are not exact, unless it goes on from the last one."""
        if not (chains and self.chained):
            self.slack += BOOKING_SECONDS
        self.seconds += seconds
        self.samples += samples
        self.chained = chains

    @property
    def length(self) -> float | None:
        length = self.seconds / self.samples if self.samples else 0.0
        return length if 0 < length <= LONGEST_SAMPLE else None

    @property
    def uncertainty(self) -> float:
        """The part of the length by which it may be wrong, at most 1."""
        return min(self.slack / self.seconds, 1.0) if self.seconds else 1.0


@dataclass(slots=True)
class Known:
    """The accounts of a GPU in its last sweep."""

    sweep: int
    at: float  # boot clock in seconds
    booted: float  # Unix time of the boot
    entries: dict[int, Entry]
    doubled: frozenset[int]  # pids with two accounts
    length: SampleLength = field(default_factory=SampleLength)

    @property
    def last_ended(self) -> frozenset[int]:
        """The pids of the processes that ended last, in one millisecond."""
        ended = {pid: entry.end for pid, entry in self.entries.items() if entry.end is not None}
        latest = max(ended.values(), default=0)
        return frozenset(pid for pid, end in ended.items() if end == latest)

    def most_seconds(self, last: "Known") -> float:
        """Return the GPU-seconds since the last sweep that can have been booked on one process."""
        length = self.length.length or LONGEST_SAMPLE
        most = self.at - last.at + BOOKING_SECONDS + 2 * length
        return most * (1 + self.length.uncertainty)


def accounts_processes(reading: GpuReading) -> bool:
    """Return whether a GPU has accounts of processes: by its mode, which an administrator sets."""
    return bool(reading.accounting) and not reading.mig_enabled and reading.virtualization not in HOSTS


class AccountReader:
    """Reads the accounts of GPUs, and what changed in them since the previous sweep."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def read(self, calls: Calls, handle: Any, reading: GpuReading, booted: float) -> ProcessAccounts | None:
        """Return the accounts since the previous sweep; ``booted`` is the Unix time of the boot.

        None if there is nothing to compare with, or if an account is missing: the driver keeps few of
        processes that have ended. Raises as ``Calls.ask`` does.
        """
        calls.group, uuid = GROUP, reading.identity.uuid
        last = self._known.pop(uuid, None)
        # A driver whose accounting was off for a moment has refused them.
        self._ask_again(calls, uuid, (PIDS, STATS))
        listed = calls.ask(uuid, PIDS, handle, none=())
        if listed is None or len(listed) > MOST_ACCOUNTS:
            return None
        entries = _entries(calls, handle, reading, listed, last)
        doubled = frozenset(pid for pid, count in Counter(listed).items() if count > 1)
        known = Known(reading.sweep, reading.boot_seconds or 0.0, booted, entries, doubled)
        self._known[uuid] = known
        if last is None:
            return None
        known.length = last.length
        if last.sweep != reading.sweep - 1 or not _is_complete(last, entries):
            known.length.chained = False
            return None
        _measure(known, last)
        return ProcessAccounts(
            by_pid=dict(_accounts(calls, uuid, known, last)),
            sample_seconds=known.length.length,
            uncertainty=known.length.uncertainty,
        )

    def forget(self, calls: Calls, uuid: str) -> None:
        """Drop the accounts of a GPU without accounting; its calls are tried again when it is turned on."""
        forget(uuid, self._known)
        self._ask_again(calls, uuid, (PIDS, STATS_V2, STATS))

    def keep_only(self, gpus: Collection[str]) -> None:
        """Forget other GPUs."""
        keep_only(gpus, self._known)

    @staticmethod
    def _ask_again(calls: Calls, uuid: str, names: Iterable[str]) -> None:
        for name in names:
            if not calls.supports(uuid, name):
                calls.records.forget_unsupported(uuid, name)


def _entries(
    calls: Calls, handle: Any, reading: GpuReading, listed: Sequence[int], last: Known | None
) -> dict[int, Entry]:
    """Return the accounts by pid; what ended earlier is not read again, except the last one and used pids.

    The driver lists those that have ended in their order.
    """
    uuid, sampled = reading.identity.uuid, reading.process_utilization or {}
    earlier = {} if last is None else last.entries
    newest = [pid for pid in listed if last is not None and pid in last.last_ended]
    entries: dict[int, Entry] = {}
    for pid in dict.fromkeys(listed):
        entry = earlier.get(pid)
        if entry is None or entry.end is None or pid in newest[-1:] or sampled.get(pid, 0) != 0:
            answer = calls.first(uuid, handle, FORMS, since=pid, none=())
            entry = _decode(calls, uuid, answer) if answer else None
        if entry is not None:
            entries[pid] = entry
    return entries


def _decode(calls: Calls, uuid: str, answer: Any) -> Entry | None:
    """Return an account; None for one that cannot be."""
    booked, samples = getattr(answer, "sumGpuUtil", None), getattr(answer, "sampleCount", 0)
    life = int(answer.time * MILLISECONDS)
    too_much = booked is not None and booked > (samples + 1) * MOST_AT_ONCE
    if too_much or life > LONGEST_LIFE or not 0 < answer.startTime < LATEST_START:
        calls.count(uuid, calls.form(uuid, FORMS), IMPOSSIBLE_VALUE)
        return None
    end = None if answer.isRunning else answer.startTime + life
    return Entry(answer.startTime, end, booked, samples)


def _is_complete(last: Known, entries: Mapping[int, Entry]) -> bool:
    """Return whether no account was lost since the last sweep.

    The driver drops the accounts of those that ended first. So none of a later one is lost while it has that
    of a process that had ended last, and those of all that ran.
    """
    running = {pid for pid, entry in last.entries.items() if entry.end is None}
    kept = {
        pid for pid, entry in last.entries.items() if pid in entries and entries[pid].start == entry.start
    }
    if not running <= kept:
        return False
    if last.last_ended:
        return not kept.isdisjoint(last.last_ended)
    return sum(entry.end is not None for entry in entries.values()) < FEWEST_KEPT


def _measure(known: Known, last: Known) -> None:
    """Add to the length of samples: by a process that ran at both sweeps, else by those that have ended."""
    counts = [
        entry.samples - last.entries[pid].samples
        for pid, entry in known.entries.items()
        if entry.end is None and pid in last.entries
    ]
    if counts and min(counts) >= 0:
        known.length.add(known.at - last.at, max(counts), chains=True)
        return
    known.length.chained = False
    for pid, entry in known.entries.items():
        if pid not in last.entries and entry.end is not None:
            known.length.add((entry.end - entry.start) / MICROSECONDS, entry.samples, chains=False)


def _accounts(calls: Calls, uuid: str, known: Known, last: Known) -> Iterator[tuple[int, ProcessAccount]]:
    """Yield the accounts that changed, by pid."""
    bound = Bound(0, known.most_seconds(last))
    for pid, entry in known.entries.items():
        earlier, started = last.entries.get(pid), entry.start / MICROSECONDS - known.booted
        if earlier is not None and earlier.start != entry.start:
            earlier = None
        if earlier is not None and earlier.end is not None:
            if pid in known.doubled:
                # The process that runs now has an account that cannot be read.
                yield pid, ProcessAccount(started=started)
            continue
        seconds = None if pid in known.doubled else _seconds(entry, earlier, known.length.length)
        yield (
            pid,
            ProcessAccount(
                started=started,
                gpu_seconds=believed(calls, uuid, STATS_V2, seconds, bound),
                ended=entry.end is not None,
                came_and_went=entry.end is not None and earlier is None and started >= last.at,
            ),
        )


def _seconds(entry: Entry, earlier: Entry | None, length: float | None) -> float | None:
    """Return the GPU-seconds that were booked since an earlier account of the process."""
    if entry.booked is None:
        return None
    booked = entry.booked - ((earlier and earlier.booked) or 0)
    if not booked:
        return 0.0
    return None if length is None else booked / WHOLE * length
