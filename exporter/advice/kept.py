"""What this node keeps of its holders since they were first seen, for advice: 5-minute means, and peaks.

The means follow from the totals of a holder at the ends of a step, so a poll costs nearly nothing. All is in
memory: after a restart of the exporter, every holder is young.

A figure that is unknown for one holder of a device is unknown for their sum.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from exporter.advice.guards import COVERED, DAY, ENGINES, STEP
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuRow, MigRow, Snapshot, Totals
from exporter.model.readings import Engine

# A step with less measured time is left out; a sum with less known steps is unknown.
_LEAST_MEASURED = 0.5
_BINS = 100
_NEAR_PEAK, _FLAT = 0.98, 0.95
_MEDIA: tuple[Engine, ...] = ("encoder", "decoder", "jpeg")
HolderKey = tuple[ContainerRef, DeviceKey]


@dataclass(slots=True)
class Histogram:
    """Counts of shares between 0 and 1, in bins of a hundredth."""

    counts: "array[int]" = field(default_factory=lambda: array("I", bytes(4 * (_BINS + 1))))

    def add(self, share: float) -> None:
        """Count a share; more than 1 counts as 1."""
        self.counts[min(math.ceil(share * _BINS - 1e-9), _BINS)] += 1

    def p95(self) -> float | None:
        """Return the upper end of the bin that 95 % of the shares above 0 do not exceed."""
        total = sum(self.counts) - self.counts[0]
        left = -(-total * 95 // 100)
        for place in range(1, _BINS + 1):
            left -= self.counts[place]
            if left <= 0 < total:
                return place / _BINS
        return None

    def __copy__(self) -> "Histogram":
        """Return a histogram with the same counts."""
        return Histogram(self.counts[:])


@dataclass(slots=True)
class KeptHolder:
    """One container on one device."""

    totals: Totals  # totals at the end of the last step
    compute: Histogram = field(default_factory=Histogram)
    sm: Histogram = field(default_factory=Histogram)
    computing: float = 0.0  # seconds of the steps with compute
    steps: int = 0  # steps with a known memory use, since it left the range within 2 % of its former peak
    near_peak: int = 0  # those of them within 2 % of the peak
    engine: str = ""

    @property
    def memory_flat(self) -> bool:
        """Whether nearly all steps were near the peak of memory."""
        return self.steps > 0 and self.near_peak >= _FLAT * self.steps

    def step(self, row: ContainerRow, totals: Totals, sm: float | None) -> float | None:
        """Enter a step, with the mean SM activity if it holds the device alone; return the mean compute."""
        before, self.totals = self.totals, totals
        if _rose(before.memory_peak, totals.memory_peak):
            self.near_peak, self.steps = 0, 0
        if row.memory_used is not None and totals.memory_peak is not None:
            self.steps += 1
            if row.memory_used >= _NEAR_PEAK * totals.memory_peak:
                self.near_peak += 1
        mean = mean_compute(before, totals)
        if mean is not None:
            self.compute.add(mean)
            if mean > 0:
                self.computing += STEP
        if sm is not None and mean:
            self.sm.add(sm)
        return mean

    def __copy__(self) -> "KeptHolder":
        """Return a copy that later steps do not change."""
        return replace(self, compute=copy(self.compute), sm=copy(self.sm))


def _rose(before: int | None, peak: int | None) -> bool:
    """Return whether memory left the range within 2 % of its former peak."""
    return before is None or (peak is not None and before < _NEAR_PEAK * peak)


def mean_compute(before: Totals, after: Totals) -> float | None:
    """Return the mean share of a GPU used between two totals; None if too little of the time was measured."""
    held = _less(after.held_seconds, before.held_seconds)
    share = measured_share(before, after)
    used = _less(after.used_gpu_seconds, before.used_gpu_seconds)
    if not held or share is None or used is None or share < _LEAST_MEASURED:
        return None
    return used / (held * share)


def measured_share(before: Totals, after: Totals) -> float | None:
    """Return the share of the time held in which compute use was known."""
    entitled = _less(after.entitled_gpu_seconds, before.entitled_gpu_seconds)
    measured = _less(after.measured_gpu_seconds, before.measured_gpu_seconds)
    return min(measured / entitled, 1.0) if entitled and measured is not None else None


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None else after - (before or 0.0)


@dataclass(slots=True)
class KeptDevice:
    """A GPU or MIG device that may have several holders."""

    # Of the sum of its holders in each step in which all were known.
    compute: Histogram = field(default_factory=Histogram)
    held_steps: int = 0  # steps with holders
    peak: int = 0  # most memory used at a poll, in bytes
    unattributed: float = 0.0  # sum over the steps of the share of its memory that no container accounts for
    steps: int = 0  # steps in which that was known
    nvlink: bool | None = None
    media: bool | None = None

    def __copy__(self) -> "KeptDevice":
        """Return a copy that later steps do not change."""
        return replace(self, compute=copy(self.compute))

    @property
    def sum_p95(self) -> float | None:
        """The 95th percentile of the sum of its holders; None if it was unknown for much of the time."""
        return self.compute.p95() if sum(self.compute.counts) >= COVERED * self.held_steps else None

    @property
    def mean_unattributed(self) -> float | None:
        """Mean share of its memory that no container accounts for; None if it was never known."""
        return self.unattributed / self.steps if self.steps else None


@dataclass(slots=True)
class Book:
    """All holders and devices."""

    at: float = 0.0  # Unix time of the last step
    holders: dict[HolderKey, KeptHolder] = field(default_factory=dict)
    devices: dict[DeviceKey, KeptDevice] = field(default_factory=dict)

    def __copy__(self) -> "Book":
        """Return a copy that later steps do not change."""
        return Book(
            self.at,
            {key: copy(kept) for key, kept in self.holders.items()},
            {key: copy(kept) for key, kept in self.devices.items()},
        )


class Keeper:
    """Enters each snapshot. The event loop writes; threads read the copies made at the ends of steps."""

    def __init__(self) -> None:
        self._book = Book()
        self._shown = Book()
        # Copies that were shown at intervals of a day; the older one is one to two days old.
        self._days: tuple[Book | None, Book | None] = (None, None)
        # SM activity since the last step: sum and number of readings.
        self._sm: defaultdict[DeviceKey, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def record(self, snapshot: Snapshot) -> None:
        """Enter a snapshot; at the end of a step, also its holders."""
        for key, activity in _sm_activity(snapshot):
            sums = self._sm[key]
            sums[0] += activity
            sums[1] += 1
        _enter_peaks(self._book, snapshot)
        # A clock that was set back begins a new step.
        if not 0 <= snapshot.timestamp - self._book.at < STEP:
            self._step(snapshot)

    def books(self) -> tuple[Book, Book | None]:
        """Return what is kept up to the last step, and one to two days before it; None until then."""
        return self._shown, self._days[0]

    def _step(self, snapshot: Snapshot) -> None:
        sm = {key: sums[0] / sums[1] for key, sums in self._sm.items()}
        self._sm.clear()
        self._book.at = snapshot.timestamp
        _enter_holders(self._book, snapshot, sm)
        _enter_devices(self._book, snapshot)
        self._shown = copy(self._book)
        newer = self._days[1]
        if newer is None or abs(self._shown.at - newer.at) >= DAY:
            self._days = newer, self._shown


def _sm_activity(snapshot: Snapshot) -> Iterator[tuple[DeviceKey, float]]:
    for key, row in _devices(snapshot).items():
        profile = row.reading.profiling if row.reading is not None else None
        if profile is not None and "sm" in profile.active:
            yield key, profile.active["sm"]


def _devices(snapshot: Snapshot) -> dict[DeviceKey, GpuRow | MigRow]:
    gpus = {DeviceKey(gpu.identity.uuid): gpu for gpu in snapshot.gpus}
    return {**gpus, **{mig.device: mig for mig in snapshot.migs}}


def _enter_peaks(book: Book, snapshot: Snapshot) -> None:
    for gpu in snapshot.gpus:
        memory = gpu.reading.memory if gpu.reading is not None else None
        if memory is not None:
            device = book.devices.setdefault(DeviceKey(gpu.identity.uuid), KeptDevice())
            device.peak = max(device.peak, memory.used)


def _enter_holders(book: Book, snapshot: Snapshot, sm: Mapping[DeviceKey, float]) -> None:
    engines = _engines(snapshot)
    counts: defaultdict[DeviceKey, int] = defaultdict(int)
    for row in snapshot.containers:
        counts[row.device] += 1
    kept: dict[HolderKey, KeptHolder] = {}
    sums: dict[DeviceKey, float | None] = {}
    for row in snapshot.containers:
        if row.totals is None or not row.slices:
            continue
        key, mean = (row.holder, row.device), None
        known = book.holders.get(key)
        if known is None or known.totals.first_seen != row.totals.first_seen:
            known = KeptHolder(row.totals)
        else:
            mean = known.step(row, row.totals, sm.get(row.device) if counts[row.device] == 1 else None)
        known.engine = known.engine or engines.get(row.holder, "")
        kept[key] = known
        before = sums.get(row.device, 0.0)
        sums[row.device] = None if mean is None or before is None else before + mean
    book.holders = kept
    for device_key, compute in sums.items():
        device = book.devices.setdefault(device_key, KeptDevice())
        device.held_steps += 1
        if compute is not None:
            device.compute.add(compute)


def _engines(snapshot: Snapshot) -> dict[ContainerRef, str]:
    return {
        row.holder: engine
        for row in snapshot.processes
        if row.holder is not None and row.command
        for start, engine in ENGINES.items()
        if row.command.startswith(start)
    }


def _enter_devices(book: Book, snapshot: Snapshot) -> None:
    rows = _devices(snapshot)
    book.devices = {key: book.devices.get(key, KeptDevice()) for key in rows}
    for key, row in rows.items():
        device = book.devices[key]
        memory = row.reading.memory if row.reading is not None else None
        if memory is not None and memory.total and row.unattributed_memory is not None:
            device.unattributed += row.unattributed_memory / memory.total
            device.steps += 1
        if isinstance(row, GpuRow):
            _enter_engines(device, row)


def _enter_engines(device: KeptDevice, gpu: GpuRow) -> None:
    if gpu.nvlink_bytes_per_second is not None:
        device.nvlink = bool(device.nvlink) or gpu.nvlink_bytes_per_second > 0
    used = [gpu.reading.engine_percent.get(name) if gpu.reading is not None else None for name in _MEDIA]
    if any(used):
        device.media = True
    elif device.media is None and None not in used:
        device.media = False
