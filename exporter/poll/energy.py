"""The energy of containers: what the energy counter of a GPU rose by, split whenever that counter is read.

The counter is read less often than the GPU is polled. So each poll estimates the energy since the poll before
from the GPU's power, and splits the estimate among the containers. A reading of the counter is split in
proportion to the parts of all estimates since the previous reading. Readings that cannot be are ignored.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.attribution import Attribution
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuReading, GpuRow
from exporter.poll.counter import GpuCounter, most_millijoules

# Seconds by which sums of floats may differ.
ROUNDING = 1e-6
# Stands for an unknown power; any number, because only ratios of estimates count.
SOME_WATTS = 1.0
AccountKey = tuple[ContainerRef, DeviceKey]


@dataclass(slots=True)
class Estimate:
    """The estimated energy since a reading of the counter."""

    since: float  # time of that reading, in seconds
    covered: float = 0.0  # seconds since then that polls cover with a reading of the GPU
    joules: float = 0.0  # estimated joules of those seconds
    parts: dict[AccountKey, float] = field(default_factory=dict)  # parts of the joules by container

    def add(self, seconds: float, joules: float, parts: Mapping[AccountKey, float]) -> None:
        self.covered += seconds
        self.joules += joules
        for key, part in parts.items():
            self.parts[key] = self.parts.get(key, 0.0) + part

    def covers(self, time: float) -> bool:
        """Return whether no poll until ``time`` was missed."""
        return time - self.since <= self.covered + ROUNDING

    def shares(self, time: float) -> dict[AccountKey, float]:
        """Return the share of each container in the energy until ``time``."""
        # After a missed poll it is unknown who computed: the energy stays unattributed.
        if self.joules <= 0 or not self.covers(time):
            return {}
        return {key: part / self.joules for key, part in self.parts.items()}


@dataclass(slots=True)
class EnergyMeter:
    """The energy counter of one GPU, and the estimates since its last reading. Times are the ledger's."""

    watts: float | None  # power at the last poll that reported it; None before the first
    estimate: Estimate  # since that reading
    doubted: Estimate | None = None  # since the last reading that is not believed, if it is later
    counter: GpuCounter = field(default_factory=lambda: GpuCounter(rises=True))
    unattributed: float = 0.0  # joules that no container was charged with

    def add(
        self, gpu: GpuRow, rows: Sequence[ContainerRow], seconds: float, there: Collection[AccountKey]
    ) -> None:
        """Add the estimate of a poll that covers ``seconds``, during all of which containers were ``there``.

        Power is measured at the moment of a poll, so the mean of both ends counts. While it is unknown, the
        last known power counts.
        """
        watts = _watts(gpu.reading) or self.watts or SOME_WATTS
        joules = (watts + (self.watts or watts)) / 2 * seconds
        self.watts = watts
        parts = {key: part for key, part in split_energy(joules, gpu, rows).items() if key in there}
        for estimate in filter(None, (self.estimate, self.doubted)):
            estimate.add(seconds, joules, parts)

    def keep(self, opened: Container[AccountKey]) -> None:
        """Drop the parts of containers that are not ``opened`` any more."""
        for estimate in filter(None, (self.estimate, self.doubted)):
            estimate.parts = {key: part for key, part in estimate.parts.items() if key in opened}

    def charge(
        self, millijoules: int, most: float, time: float, present: Collection[AccountKey]
    ) -> dict[AccountKey, float]:
        """Return the joules of the containers in ``present`` since the last reading, and begin again.

        A reading that is not believed changes nothing; ``most`` is the most millijoules in a second. The
        energy before a restart of the counter is lost.
        """
        rise = self.counter.take(millijoules, time, most, outage=not self.estimate.covers(time))
        if rise is None:
            self.doubted = Estimate(time)
            return {}
        joules = rise / 1000
        # A reading that is believed because it continues the one before counts from there.
        begun = self.estimate if not self.counter.continues or self.doubted is None else self.doubted
        shares = {key: joules * share for key, share in begun.shares(time).items() if key in present}
        self.unattributed += max(joules - sum(shares.values()), 0.0)
        self.estimate, self.doubted = Estimate(time), None
        return shares


class Step(NamedTuple):
    """One poll, by the ledger's time in seconds."""

    time: float
    # Seconds that each GPU's new reading covers, by uuid; 0 after a gap that is too long.
    covered: Mapping[str, float]
    opened: Mapping[AccountKey, float]  # when each account was opened that the poll continues


class EnergyMeters:
    """The energy counters of all GPUs, by uuid."""

    def __init__(self) -> None:
        self._meters: dict[str, EnergyMeter] = {}

    def advance(self, attribution: Attribution, step: Step) -> dict[AccountKey, float]:
        """Enter one poll; return the joules to add to each container with a known use.

        All are 0 except in a poll that reads the counter. These stay unattributed: the part of a container in
        a poll in which its use is unknown, or which covers time before it was there; the part of a container
        that has ended before the reading; and all energy between two readings if a poll between was missed.
        """
        for meter in self._meters.values():
            meter.keep(step.opened)
        shares: dict[AccountKey, float] = {}
        rows_of: dict[str, list[ContainerRow]] = defaultdict(list)
        for row in attribution.containers:
            rows_of[row.device.uuid].append(row)
        for gpu in attribution.gpus:
            uuid = gpu.identity.uuid
            if gpu.reading is not None and uuid in step.covered:
                shares |= self._of_gpu(gpu, gpu.reading, rows_of[uuid], step)
        return shares

    def _of_gpu(
        self, gpu: GpuRow, reading: GpuReading, rows: Sequence[ContainerRow], step: Step
    ) -> dict[AccountKey, float]:
        uuid = gpu.identity.uuid
        counted = None if reading.energy_kept else reading.energy_millijoules
        continued = {key for key in map(account_key, rows) if key in step.opened}
        meter = self._meters.get(uuid)
        if meter is None:
            if counted is None:
                return {}
            meter = EnergyMeter(_watts(reading), Estimate(step.time))
            self._meters[uuid] = meter
        else:
            begin = step.time - step.covered[uuid] + ROUNDING
            there = {key for key in continued if step.opened[key] <= begin}
            meter.add(gpu, rows, step.covered[uuid], there)
        shares = {account_key(row): 0.0 for row in rows if row.compute_used is not None}
        if counted is not None:
            shares |= meter.charge(counted, most_millijoules(reading), step.time, continued)
        return shares

    def forget(self, listed: Collection[str], oldest: float) -> None:
        """Drop the meters of GPUs that are not ``listed`` and were last read before ``oldest``."""
        self._meters = {
            uuid: meter
            for uuid, meter in self._meters.items()
            if uuid in listed or meter.estimate.since >= oldest
        }

    def with_unattributed(self, row: GpuRow) -> GpuRow:
        """Return the row of a GPU with its unattributed energy."""
        meter = self._meters.get(row.identity.uuid)
        return row if meter is None else replace(row, unattributed_energy_joules=meter.unattributed)


def split_energy(joules: float, gpu: GpuRow, rows: Sequence[ContainerRow]) -> dict[AccountKey, float]:
    """Split the joules of one GPU: the active part by used share, the idle part by entitlement.

    A row with unknown use gets nothing. The idle part stays unattributed while it is unknown how much of the
    GPU was idle: if the GPU, or one of its MIG devices, has no meter, an unseen process may have used it.
    The parts never exceed the whole.
    """
    used = sum(row.compute_used for row in rows if row.compute_used is not None)
    rest = gpu.unattributed_utilization
    busy = None if rest is None else min(1.0, used + rest)
    scale = 1 / max(used, 1.0)
    entitled = sum(row.compute_entitled or 0.0 for row in rows)
    idle = 0.0 if busy is None else (1 - busy) / max(entitled, 1.0)
    return {
        account_key(row): joules * (row.compute_used * scale + idle * (row.compute_entitled or 0.0))
        for row in rows
        if row.compute_used is not None
    }


def account_key(row: ContainerRow) -> AccountKey:
    """Return the key of the account that a row continues or opens."""
    return row.holder, row.device


def _watts(reading: GpuReading | None) -> float | None:
    """Return the power of a GPU; a board that reports 0 does not measure it."""
    milliwatts = reading.power_milliwatts if reading is not None else None
    return milliwatts / 1000 if milliwatts else None
