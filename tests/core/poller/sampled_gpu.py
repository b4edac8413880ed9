"""A GPU whose driver samples it as NVIDIA's does, with the truth that the samples are of.

A sample is a stretch of time, and books all of it on one process. Once a second the driver adds the new ones
to the accounts of the processes that run then. It reports means of samples in whole percents, rounded up,
and keeps the accounts of 128 processes that have ended.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Mapping
from ctypes import addressof, c_uint
from dataclasses import dataclass, field
from typing import Any

from exporter.model import GpuReading
from exporter.nvml.readings.accounting import AccountReader
from exporter.nvml.readings.gpu_processes import read_utilization
from exporter.nvml.readings.samples import SampleReader
from tests.core.attribution.build import UUID, gpu, process
from tests.core.hardware import tiny

WALL = 1_700_000_000.0
KEPT_SAMPLES, KEPT_ACCOUNTS = 72, 128
NOT_FOUND, TOO_SMALL, SUCCESS = 6, 7, 0


@dataclass
class Run:
    """A process: the container it runs in, and the share of the GPU that it asks for."""

    pid: int
    owner: str
    share: float
    since: float
    until: float = math.inf
    booked: int = 0
    samples_before: int = 0
    samples: int = 0
    end: float | None = None


@dataclass
class Gpu:
    """The GPU, its driver, and the readers over it; ``now`` is the boot clock in seconds."""

    seed: int = 0
    length: float = 0.2  # seconds of a sample
    now: float = 0.0
    runs: dict[int, Run] = field(default_factory=dict)
    ended: dict[int, Run] = field(default_factory=dict)
    samples: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    truth: Counter[str] = field(default_factory=Counter)  # GPU-seconds by owner
    owners: dict[int, str] = field(default_factory=dict)
    sampled: int = 0  # samples that the driver has taken
    accounted: int = 0  # samples that it has added to accounts
    sweep: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - a simulation
        self._unbooked: list[tuple[int, int]] = []
        self._counted = 0
        self._pids = iter(range(1000, 1 << 22))
        self._reader, self._accounts = SampleReader(lambda: self.now), AccountReader()
        self.calls = tiny.installed(
            nvmlDeviceGetAccountingPids=self._list_pids,
            nvmlDeviceGetAccountingStats_v2=self._stats,
            nvmlDeviceGetProcessUtilization=self._utilization,
        )

    # The module ``time`` of the readers.
    def time(self) -> float:
        return WALL + self.now

    def monotonic(self) -> float:
        return self.now

    def start(self, owner: str, share: float, seconds: float = math.inf, pid: int | None = None) -> int:
        """Start a process; return its pid."""
        pid = next(self._pids) if pid is None else pid
        run = Run(pid, owner, share, self.now, self.now + seconds, samples_before=self._counted)
        self.runs[pid], self.owners[pid] = run, owner
        return pid

    def run(self, seconds: float) -> None:
        """Let time pass, sample by sample."""
        end = self.now + seconds
        while (next_sample := (self.sampled + 1) * self.length) <= end + 1e-9:
            self._tick_until(next_sample)
            self.now = next_sample
            self._sample()
        self._tick_until(end)
        self.now = end
        self._bury()

    def _tick_until(self, time: float) -> None:
        while self.accounted + 1 <= time:
            self.accounted += 1
            self.now = max(self.now, float(self.accounted))
            self._bury()
            self._counted += len(self._unbooked)
            for pid, hundredths in self._unbooked:
                if pid in self.runs:
                    self.runs[pid].booked += hundredths
            self._unbooked.clear()

    def _sample(self) -> None:
        self.sampled += 1
        asked = {pid: min(run.share, 1.0) for pid, run in self.runs.items()}
        whole = max(1.0, sum(asked.values()))
        shares = {pid: share / whole for pid, share in asked.items() if share}
        for pid, share in shares.items():
            self.truth[self.owners[pid]] += share * self.length
        pid, hundredths = 0, round(sum(shares.values()) * 10_000)
        if shares:
            [pid] = self.random.choices(list(shares), list(shares.values()))
        self.samples.append((self.now, pid, hundredths))
        self._unbooked.append((pid, hundredths))
        self._bury()

    def _bury(self) -> None:
        for pid in [pid for pid, run in self.runs.items() if run.until <= self.now]:
            run = self.runs.pop(pid)
            run.end, run.samples = self.now, self._counted - run.samples_before
            self.ended.pop(pid, None)
            self.ended[pid] = run
        while len(self.ended) > KEPT_ACCOUNTS:
            del self.ended[next(iter(self.ended))]

    def read(self) -> GpuReading:
        """Read the processes, their samples and their accounts, as a sweep does."""
        self.sweep += 1
        listed = tuple(process(pid, 0) for pid in sorted(self.runs))
        utilization = read_utilization(self._reader, self.calls, UUID, tiny.HANDLE, listed)
        reading = gpu(
            listed,
            utilization,
            used=0,
            accounting=True,
            sweep=self.sweep,
            boot_seconds=self.now,
            utilization_percent=None,
        )
        accounts = self._accounts.read(self.calls, tiny.HANDLE, reading, WALL)
        if accounts is None:
            return reading
        overlap = self._reader.overlap(UUID)
        return gpu(
            listed,
            utilization,
            used=0,
            utilization_percent=None,
            process_accounts=type(accounts)(
                by_pid=accounts.by_pid,
                sample_seconds=accounts.sample_seconds,
                uncertainty=accounts.uncertainty,
                overlap=overlap,
            ),
        )

    def _list_pids(self, _device: Any, count: Any, pids: Any) -> int:
        both = [*self.ended, *self.runs]
        room, count._obj.value = count._obj.value if pids is not None else 0, len(both)
        if len(both) > room:
            return TOO_SMALL
        (c_uint * len(both)).from_address(addressof(pids))[:] = both
        return SUCCESS

    def _stats(self, _device: Any, reference: Any) -> int:
        answer = reference._obj
        run = self.ended.get(answer.pid) or self.runs.get(answer.pid)
        if run is None:
            return NOT_FOUND
        answer.isRunning, answer.sumGpuUtil = run.end is None, run.booked
        answer.sampleCount = run.samples if run.end is not None else self._counted - run.samples_before
        answer.startTime = round((WALL + run.since) * 1e6)
        answer.time = 0 if run.end is None else round((run.end - run.since) * 1e3)
        return SUCCESS

    def _utilization(self, _device: Any, records: Any, count: Any, since: Any) -> int:
        window = [sample for sample in self.samples if round((WALL + sample[0]) * 1e6) > since.value]
        means = self._means(window)
        if not means:
            return NOT_FOUND
        room, count._obj.value = count._obj.value if records is not None else 0, len(means)
        if len(means) > room:
            return TOO_SMALL
        for record, (pid, percent) in zip(records, means.items(), strict=False):
            record.pid, record.smUtil = pid, percent
            record.timeStamp = max(round((WALL + at) * 1e6) for at, of, _ in window if of == pid)
        return SUCCESS

    def _means(self, window: list[tuple[float, int, int]]) -> Mapping[int, int]:
        """Return percents by pid, rounded up."""
        sums: Counter[int] = Counter()
        for _, pid, hundredths in window:
            if hundredths:
                sums[pid] += hundredths
        return {pid: math.ceil(booked / len(window) / 100) for pid, booked in sums.items()}
