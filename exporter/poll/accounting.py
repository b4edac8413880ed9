"""Sums over a container's life: GPU-seconds held and used, energy, and the time of its last compute use.

Every poll adds what is *known* about the time since the previous poll. A poll without a new reading adds no
use, whatever the polls around it read; entitlement is added while holdings are known.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.attribution import Attribution
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuReading, Totals
from exporter.poll.disagreement import Disagreements
from exporter.poll.energy import ROUNDING, AccountKey, EnergyMeters, Step, account_key

# While holdings are unknown, a container without a row for this long counts as gone.
MISSED_SECONDS = 3600.0


class Interval(NamedTuple):
    """The time between two polls, in seconds."""

    elapsed: float
    lived: float  # the part of it in which the container existed
    # Seconds that a new reading covers; None without one, 0 if nothing is known of them.
    covered: float | None


@dataclass(slots=True)
class Account:
    """The sums of one container on one device. Times are the ledger's, in seconds."""

    uid: str  # uid of the pod, "" while unknown
    opened: float
    totals: Totals
    seen: float  # last time with a row
    measured: float  # last time with a known compute use
    # Whether the container holds slices; False for use without an allocation and for use by a whole pod.
    held: bool = False
    # Held since the last reading of the GPU: seconds, and GPU-seconds of the entitlement.
    waiting: tuple[float, float] = (0.0, 0.0)

    def with_held(self, row: ContainerRow, interval: Interval) -> Totals:
        """Return the totals with the holding of one interval added.

        A reading covers the time since the previous one. What a container holds meanwhile waits for it, and
        counts as measured at most once. So the measured part never exceeds the whole, also if the entitlement
        changes.
        """
        totals = self.totals
        seconds = interval.lived if self.held else 0.0
        gpu_seconds = interval.lived * (row.compute_entitled or 0.0)
        held = integrate(totals.held_seconds, 1.0 if self.held else None, seconds)
        entitled = integrate(totals.entitled_gpu_seconds, row.compute_entitled, interval.lived)
        seen, gpu_seen = self._covered(interval, seconds, gpu_seconds)
        memory = seen if row.memory_used is not None else 0.0
        compute = gpu_seen if row.compute_used is not None else 0.0
        known_use = row.compute_used if row.compute_entitled is not None else None
        return replace(
            totals,
            held_seconds=held,
            memory_measured_seconds=_part(held, totals.memory_measured_seconds, memory),
            entitled_gpu_seconds=entitled,
            measured_gpu_seconds=_part(entitled, totals.measured_gpu_seconds, compute),
            measured_use_gpu_seconds=integrate(
                totals.measured_use_gpu_seconds, None if interval.covered is None else known_use, seen
            ),
        )

    def _covered(self, interval: Interval, seconds: float, gpu_seconds: float) -> tuple[float, float]:
        """Return the seconds and GPU-seconds of holding that a new reading covers."""
        whole = self.waiting[0] + seconds, self.waiting[1] + gpu_seconds
        self.waiting = whole if interval.covered is None else (0.0, 0.0)
        if not interval.covered:
            return 0.0, 0.0
        return whole if interval.covered > interval.elapsed else (seconds, gpu_seconds)


def integrate(total: float | None, rate: float | None, seconds: float) -> float | None:
    """Return the integral: it begins at 0 with the first known rate, and does not change without one."""
    return total if rate is None else (total or 0.0) + rate * seconds


def _part(whole: float | None, part: float | None, more: float) -> float | None:
    """Return the part of a whole with more added to it; None while the whole is unknown."""
    # The whole was added up in another order, and may differ in the last digit.
    return None if whole is None else min((part or 0.0) + more, whole)


class Poll(NamedTuple):
    """The input of one poll to the accounts; see ``Ledger.advance``."""

    elapsed: float
    covered: Mapping[str, float]
    now: float
    energy: Mapping[AccountKey, float]  # joules by account


class Coverage:
    """Finds the GPUs with a new reading, and the seconds that each reading covers."""

    def __init__(self) -> None:
        self._polled: float | None = None
        self._read: dict[str, tuple[int, float]] = {}

    def advance(self, gpus: Iterable[GpuReading], now: float) -> tuple[float, dict[str, float]]:
        """Return the seconds since the previous poll, and by GPU uuid those that a new reading covers.

        The reading of the next sweep covers all the time since the last one, even if that sweep is late.
        After a failed sweep, a reading covers only the time since the previous poll.
        """
        # A clock that goes backwards must not lower any sum.
        elapsed = max(now - self._polled, 0.0) if self._polled is not None else 0.0
        self._polled = now
        covered: dict[str, float] = {}
        for gpu in gpus:
            sweep, at = self._read.get(gpu.identity.uuid, (-1, now))
            if not gpu.up or gpu.sweep == sweep:
                continue
            covered[gpu.identity.uuid] = max(now - at, 0.0) if gpu.sweep == sweep + 1 else elapsed
            self._read[gpu.identity.uuid] = gpu.sweep, now
        self._read = {uuid: read for uuid, read in self._read.items() if read[1] >= now - MISSED_SECONDS}
        return elapsed, covered


class Ledger:
    """Keeps the accounts of all containers from poll to poll.

    A gap of more than ``longest_gap`` seconds counts as unknown: no container is charged with compute or
    energy for it, and none is called idle.
    """

    def __init__(self, longest_gap: float) -> None:
        self.longest_gap = longest_gap
        self._accounts: dict[AccountKey, Account] = {}
        self._meters = EnergyMeters()
        self._disagreements = Disagreements()
        self._time = 0.0
        self._wall: float | None = None

    def advance(
        self,
        attribution: Attribution,
        elapsed: float,
        covered: Mapping[str, float],
        now: float,
        unsure: frozenset[ContainerRef] | None,
    ) -> Attribution:
        """Enter one poll and return its rows with their sums.

        ``elapsed``: seconds since the previous poll. ``covered``: seconds that each GPU's new reading
        covers, by uuid; a GPU without a new reading is absent. ``now``: Unix time.
        Accounts without a row are closed, except for the containers in ``unsure``. While holdings are
        unknown (None) they stay open for an hour, as do accounts of use without an allocation while the
        users of the device are unknown.
        """
        self._time += elapsed
        self._follow_clock(elapsed, now)
        old = frozenset(account_key(row) for row in attribution.containers if self._continues(row))
        present = frozenset(map(account_key, attribution.containers))
        new = present - old
        opened = {key: account.opened for key, account in self._accounts.items() if key not in new}
        measured = {uuid: self._seconds(seconds) for uuid, seconds in covered.items()}
        energy = self._meters.advance(attribution, Step(self._time, measured, opened))
        poll = Poll(elapsed, covered, now, energy)
        rows = [self._enter(row, account_key(row) in old, poll) for row in attribution.containers]
        self._close(present, unsure, attribution.proven)
        self._meters.forget({gpu.identity.uuid for gpu in attribution.gpus}, self._time - MISSED_SECONDS)
        self._disagreements.keep_only({gpu.identity.uuid for gpu in attribution.gpus})
        compared = self._disagreements.add(attribution.audits, measured)
        gpus = tuple(
            replace(self._meters.with_unattributed(gpu), disagreement=compared.get(gpu.identity.uuid))
            for gpu in attribution.gpus
        )
        return replace(attribution, gpus=gpus, containers=tuple(rows))

    def skip(self, elapsed: float) -> None:
        """Let ``elapsed`` seconds pass about which nothing is known."""
        self._time += elapsed
        if self._wall is not None:
            self._wall += elapsed

    def _follow_clock(self, elapsed: float, now: float) -> None:
        """Shift all dates if the wall clock was set, so that no container becomes idle by it."""
        step = 0.0 if self._wall is None else now - self._wall - elapsed
        self._wall = now
        # The two clocks are not read at once, and a smaller step makes no container idle.
        if abs(step) <= self.longest_gap:
            return
        for account in self._accounts.values():
            totals = account.totals
            active = None if totals.last_active is None else totals.last_active + step
            account.totals = replace(totals, first_seen=totals.first_seen + step, last_active=active)

    def _close(
        self,
        present: frozenset[AccountKey],
        unsure: frozenset[ContainerRef] | None,
        proven: Collection[DeviceKey],
    ) -> None:
        oldest = self._time - MISSED_SECONDS

        def may_return(key: AccountKey, account: Account) -> bool:
            holder, device = key
            if unsure is None or (not account.held and device not in proven):
                return account.seen >= oldest
            return holder in unsure

        self._accounts = {
            key: account
            for key, account in self._accounts.items()
            if key in present or may_return(key, account)
        }

    def _continues(self, row: ContainerRow) -> bool:
        """Return whether a row continues its account: a new pod of the same name has another uid."""
        account = self._accounts.get(account_key(row))
        return account is not None and (not account.uid or not row.pod_uid or account.uid == row.pod_uid)

    def _enter(self, row: ContainerRow, continues: bool, poll: Poll) -> ContainerRow:
        key = account_key(row)
        if not continues:
            totals = Totals(first_seen=poll.now)
            self._accounts[key] = Account("", self._time, totals, self._time, measured=self._time)
        account = self._accounts[key]
        if account.seen < self._time - poll.elapsed - ROUNDING:
            # There was a poll without its row.
            # What was held meanwhile is not measured.
            account.waiting = 0.0, 0.0
        account.seen, account.held = self._time, row.slices != 0 and bool(row.holder.container)
        account.uid = row.pod_uid or account.uid
        age = self._time - account.opened
        previous = account.totals
        covered = poll.covered.get(row.device.uuid)
        computed = row.compute_used if covered is not None else None
        last_active, seen_computing = self._last_active(account, computed, poll.now)
        used_seconds = self._seconds(min(covered or 0.0, age))
        interval = Interval(poll.elapsed, min(poll.elapsed, age), None if covered is None else used_seconds)
        account.totals = replace(
            account.with_held(row, interval),
            memory_peak=_larger(previous.memory_peak, row.memory_used),
            used_gpu_seconds=integrate(previous.used_gpu_seconds, computed, used_seconds),
            energy_joules=integrate(previous.energy_joules, poll.energy.get(key), 1.0),
            last_active=last_active,
            seen_computing=seen_computing,
        )
        if computed is not None:
            account.measured = self._time
        # While use cannot be measured, no idle time is claimed.
        shown = account.totals
        if row.compute_used is None:
            shown = replace(shown, last_active=None, seen_computing=False)
        return replace(row, totals=shown)

    def _last_active(self, account: Account, computed: float | None, now: float) -> tuple[float | None, bool]:
        """Return the time of the last compute use, and whether that use was observed."""
        totals = account.totals
        # After a long gap without a reading, the container may have computed in it: idle time starts now.
        if computed is not None and (computed > 0 or self._time - account.measured > self.longest_gap):
            return now, computed > 0
        if computed is not None and totals.last_active is None:
            return totals.first_seen, False
        return totals.last_active, totals.seen_computing

    def _seconds(self, covered: float) -> float:
        return covered if covered <= self.longest_gap else 0.0


def _larger(peak: int | None, size: int | None) -> int | None:
    return max((known for known in (peak, size) if known is not None), default=None)
