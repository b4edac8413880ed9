"""What adds up over a container's life: GPU-seconds held and used, energy, and when it last computed.

Every poll adds what was *known* of the time since the poll before. A poll without a fresh reading adds no
use, whatever the polls around it saw; entitlement goes on while it is known who holds what.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.attribution import Attribution
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuReading, GpuRow, Totals

# Seconds that sums of floats may be apart.
ROUNDING = 1e-6
# While nobody can say who holds what, somebody who is not seen for so many seconds may be gone.
MISSED_SECONDS = 3600.0
AccountKey = tuple[ContainerRef, DeviceKey]


@dataclass(slots=True)
class Account:
    """The sums of one container on one device since ``opened``, which was last there at ``seen``.

    At ``measured`` its compute was last known. ``held``: it is no mere user of the device, nor what is used
    by a pod as a whole. ``uid`` is "" while it is not known.
    """

    uid: str
    opened: float
    totals: Totals
    seen: float
    measured: float
    held: bool = False


@dataclass(slots=True)
class Meter:
    """The energy counter of one GPU: its last value in millijoules, when, and what was nobody's."""

    millijoules: int
    read: float
    unattributed: float = 0.0


class Poll(NamedTuple):
    """What is entered: see ``Ledger.advance``; ``energy`` is the joules of each account."""

    elapsed: float
    covered: Mapping[str, float]
    now: float
    energy: Mapping[AccountKey, float]


class Coverage:
    """Tells which GPUs were read anew, and how many seconds each reading stands for."""

    def __init__(self) -> None:
        self._polled: float | None = None
        self._read: dict[str, tuple[int, float]] = {}

    def advance(self, gpus: Iterable[GpuReading], now: float) -> tuple[float, dict[str, float]]:
        """Return the seconds since the poll before, and by GPU those that its new reading covers.

        The reading of the sweep that followed the last one covers all the time between them, even if that
        sweep came late. After a sweep that failed, only the time since the poll before is covered.
        """
        # A clock that goes back, as on a machine whose counters are wrong, takes off nothing of what counts.
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

    Over a gap of more than ``longest_gap`` seconds nobody is said to have computed, nor to have drawn what
    was drawn, nor to have been idle.
    """

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._accounts: dict[AccountKey, Account] = {}
        self._meters: dict[str, Meter] = {}
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

        ``elapsed`` are the seconds since the poll before, ``covered`` those that the new reading of each
        GPU stands for (a GPU that is not in it was not read), ``now`` Unix time. The accounts of containers
        without a row are closed, but for those of ``unsure``; while holdings are not known (None), an hour
        later, and so are those of mere users of a device while its users are not known.
        """
        self._time += elapsed
        self._follow_clock(elapsed, now)
        old = frozenset(_key(row) for row in attribution.containers if self._continues(row))
        energy = self._energy(attribution, covered, old)
        poll = Poll(elapsed, covered, now, energy)
        rows = [self._enter(row, _key(row) in old, poll) for row in attribution.containers]
        self._close({_key(row) for row in rows}, unsure, attribution.proven)
        self._forget_meters({gpu.identity.uuid for gpu in attribution.gpus})
        gpus = tuple(self._with_energy(row) for row in attribution.gpus)
        return replace(attribution, gpus=gpus, containers=tuple(rows))

    def skip(self, elapsed: float) -> None:
        """Let so many seconds pass of which nothing is known."""
        self._time += elapsed
        if self._wall is not None:
            self._wall += elapsed

    def _follow_clock(self, elapsed: float, now: float) -> None:
        """Date anew what was dated by a wall clock that has been set since: nobody is idle by that."""
        step = 0.0 if self._wall is None else now - self._wall - elapsed
        self._wall = now
        # The two clocks are not read at once, and what is less than this makes nobody idle.
        if abs(step) <= self._longest_gap:
            return
        for account in self._accounts.values():
            totals = account.totals
            active = None if totals.last_active is None else totals.last_active + step
            account.totals = replace(totals, first_seen=totals.first_seen + step, last_active=active)

    def _close(
        self, present: set[AccountKey], unsure: frozenset[ContainerRef] | None, proven: Collection[DeviceKey]
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
        """Whether this is the container of the account: a new pod of the same name has another uid."""
        account = self._accounts.get(_key(row))
        return account is not None and (not account.uid or not row.pod_uid or account.uid == row.pod_uid)

    def _enter(self, row: ContainerRow, continues: bool, poll: Poll) -> ContainerRow:
        key = _key(row)
        if not continues:
            totals = Totals(first_seen=poll.now)
            self._accounts[key] = Account("", self._time, totals, self._time, measured=self._time)
        account = self._accounts[key]
        account.seen, account.held = self._time, row.slices != 0 and bool(row.holder.container)
        account.uid = row.pod_uid or account.uid
        age = self._time - account.opened
        before = account.totals
        covered = poll.covered.get(row.device.uuid)
        computed = row.compute_used if covered is not None else None
        measured = row.compute_entitled if computed is not None else None
        of_measured = computed if measured is not None else None
        last_active, seen_computing = self._last_active(account, computed, poll.now)
        entitled_seconds, used_seconds = min(poll.elapsed, age), self._seconds(min(covered or 0.0, age))
        account.totals = Totals(
            first_seen=before.first_seen,
            entitled_gpu_seconds=_add(before.entitled_gpu_seconds, row.compute_entitled, entitled_seconds),
            measured_gpu_seconds=_add(before.measured_gpu_seconds, measured, used_seconds),
            measured_use_gpu_seconds=_add(before.measured_use_gpu_seconds, of_measured, used_seconds),
            used_gpu_seconds=_add(before.used_gpu_seconds, computed, used_seconds),
            energy_joules=_add(before.energy_joules, poll.energy.get(key), 1.0),
            last_active=last_active,
            seen_computing=seen_computing,
        )
        if computed is not None:
            account.measured = self._time
        # An idle time is a claim: while the use cannot be measured it is not made.
        shown = account.totals
        if row.compute_used is None:
            shown = replace(shown, last_active=None, seen_computing=False)
        return replace(row, totals=shown)

    def _last_active(self, account: Account, computed: float | None, now: float) -> tuple[float | None, bool]:
        """Return since when a container has not computed, and whether it was seen computing then."""
        before = account.totals
        # Who was not watched for long may have computed: the time to be idle begins now.
        if computed is not None and (computed > 0 or self._time - account.measured > self._longest_gap):
            return now, computed > 0
        if computed is not None and before.last_active is None:
            return before.first_seen, False
        return before.last_active, before.seen_computing

    def _seconds(self, covered: float) -> float:
        return covered if covered <= self._longest_gap else 0.0

    def _energy(
        self, attribution: Attribution, covered: Mapping[str, float], old: frozenset[AccountKey]
    ) -> dict[AccountKey, float]:
        """Split the joules that each GPU drew since its last reading among the containers known then.

        A sweep that comes late tells of more time than a container may have been there.
        """
        shares: dict[AccountKey, float] = {}
        rows_of = _rows_by_gpu(attribution.containers)
        for gpu in attribution.gpus:
            uuid, reading = gpu.identity.uuid, gpu.reading
            if reading is None or reading.energy_millijoules is None or uuid not in covered:
                continue
            meter = self._meters.setdefault(uuid, Meter(reading.energy_millijoules, self._time))
            rows = rows_of.get(uuid, [])
            shares |= {_key(row): 0.0 for row in rows if row.compute_used is not None}
            # The counter falls when the driver is loaded anew; what was drawn before that is lost.
            joules = max(reading.energy_millijoules - meter.millijoules, 0) / 1000
            # Over a missed poll nobody knows who computed: what was drawn then is nobody's.
            known = self._time - meter.read <= self._seconds(covered[uuid]) + ROUNDING
            entered = {
                key: share
                for key, share in (split_energy(joules, gpu, rows) if known else {}).items()
                if key in old and self._accounts[key].opened <= meter.read + ROUNDING
            }
            meter.unattributed += max(joules - sum(entered.values()), 0.0)
            meter.millijoules, meter.read = reading.energy_millijoules, self._time
            shares |= entered
        return shares

    def _forget_meters(self, listed: Collection[str]) -> None:
        """Drop those of GPUs that have been gone for an hour; a lost one stays on the page as it was."""
        oldest = self._time - MISSED_SECONDS
        for uuid in [
            each for each, meter in self._meters.items() if each not in listed and meter.read < oldest
        ]:
            del self._meters[uuid]

    def _with_energy(self, row: GpuRow) -> GpuRow:
        meter = self._meters.get(row.identity.uuid)
        return row if meter is None else replace(row, unattributed_energy_joules=meter.unattributed)


def split_energy(joules: float, gpu: GpuRow, rows: Sequence[ContainerRow]) -> dict[AccountKey, float]:
    """Split joules of one GPU: the active part by used share, the idle part by entitlement.

    A row whose use is not known gets nothing, and neither does anyone of the idle part when it cannot be
    told how much of the GPU was idle: where the GPU, or one of the MIG devices it is cut into, has no meter,
    somebody who is not seen may have filled it. What is left over is nobody's; the parts never exceed the
    whole.
    """
    used = sum(row.compute_used for row in rows if row.compute_used is not None)
    busy = _busy_share(gpu, used)
    scale = 1 / max(used, 1.0)
    entitled = sum(row.compute_entitled or 0.0 for row in rows)
    idle = 0.0 if busy is None else (1 - busy) / max(entitled, 1.0)
    return {
        _key(row): joules * (row.compute_used * scale + idle * (row.compute_entitled or 0.0))
        for row in rows
        if row.compute_used is not None
    }


def _busy_share(gpu: GpuRow, used: float) -> float | None:
    rest = gpu.unattributed_utilization
    return None if rest is None else min(1.0, used + rest)


def _rows_by_gpu(rows: Iterable[ContainerRow]) -> dict[str, list[ContainerRow]]:
    by_gpu: dict[str, list[ContainerRow]] = {}
    for row in rows:
        by_gpu.setdefault(row.device.uuid, []).append(row)
    return by_gpu


def _key(row: ContainerRow) -> AccountKey:
    return row.holder, row.device


def _add(total: float | None, rate: float | None, seconds: float) -> float | None:
    """Integrate; a total begins at 0 with the first known rate and stands still while it is not known."""
    return total if rate is None else (total or 0.0) + rate * seconds
