"""What adds up over a container's life: GPU-seconds held and used, energy, and when it last computed.

Every poll adds what was *known* of the time since the poll before. A poll without a fresh reading adds no
use, whatever the polls around it saw; entitlement goes on, since a container holds its slice all the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from exporter.attribution import Attribution
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuRow, Totals

AccountKey = tuple[ContainerRef, DeviceKey]


@dataclass(slots=True)
class Account:
    """The sums of one container on one device; ``uid`` is "" while its pod's uid is not known."""

    uid: str
    totals: Totals


@dataclass(slots=True)
class Meter:
    """The energy counter of one GPU: its last value in millijoules, in which poll, and what was nobody's."""

    millijoules: int
    poll: int
    unattributed: float = 0.0


class Ledger:
    """Keeps the accounts of all containers from poll to poll.

    Over a gap of more than ``longest_gap`` seconds between two polls nobody is said to have computed, nor
    to have drawn what was drawn.
    """

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._accounts: dict[AccountKey, Account] = {}
        self._meters: dict[str, Meter] = {}
        self._poll = 0

    def advance(
        self, attribution: Attribution, fresh: frozenset[str], elapsed: float, now: float, complete: bool
    ) -> Attribution:
        """Enter one poll and return its rows with their sums.

        ``fresh`` are the uuids of the GPUs that were read in this poll, ``elapsed`` the seconds since the
        poll before, ``now`` Unix time. ``complete`` says that holdings are known: then the accounts of
        containers without a row are closed.
        """
        self._poll += 1
        old = frozenset(_key(row) for row in attribution.containers if self._continues(row))
        energy = self._energy(attribution, fresh, old if elapsed <= self._longest_gap else frozenset())
        rows = [
            self._enter(row, row.device.uuid in fresh, elapsed if _key(row) in old else 0.0, now, energy)
            for row in attribution.containers
        ]
        if complete:
            present = {_key(row) for row in rows}
            self._accounts = {key: account for key, account in self._accounts.items() if key in present}
        gpus = tuple(self._with_energy(row) for row in attribution.gpus)
        return replace(attribution, gpus=gpus, containers=tuple(rows))

    def _continues(self, row: ContainerRow) -> bool:
        """Whether this is the container of the account: a new pod of the same name has another uid."""
        account = self._accounts.get(_key(row))
        return account is not None and (not account.uid or not row.pod_uid or account.uid == row.pod_uid)

    def _enter(
        self, row: ContainerRow, fresh: bool, seconds: float, now: float, energy: dict[AccountKey, float]
    ) -> ContainerRow:
        if not self._continues(row):
            self._accounts[_key(row)] = Account("", Totals(first_seen=now))
        account = self._accounts[_key(row)]
        account.uid = row.pod_uid or account.uid
        computed = row.compute_used if fresh else None
        before = account.totals
        account.totals = Totals(
            first_seen=before.first_seen,
            entitled_gpu_seconds=_add(before.entitled_gpu_seconds, row.compute_entitled, seconds),
            used_gpu_seconds=_add(
                before.used_gpu_seconds, computed, seconds if seconds <= self._longest_gap else 0.0
            ),
            energy_joules=_add(before.energy_joules, energy.get(_key(row)), 1.0),
            last_active=_last_active(before, computed, now),
        )
        # An idle time is a claim: while the use cannot be measured it is not made.
        shown = account.totals if row.compute_used is not None else replace(account.totals, last_active=None)
        return replace(row, totals=shown)

    def _energy(
        self, attribution: Attribution, fresh: frozenset[str], old: frozenset[AccountKey]
    ) -> dict[AccountKey, float]:
        """Split the joules that each GPU drew since its last reading among the containers known then."""
        shares: dict[AccountKey, float] = {}
        rows_of = _rows_by_gpu(attribution.containers)
        for gpu in attribution.gpus:
            reading = gpu.reading
            if reading is None or reading.energy_millijoules is None or gpu.identity.uuid not in fresh:
                continue
            meter = self._meters.get(gpu.identity.uuid)
            rows = rows_of.get(gpu.identity.uuid, [])
            shares |= {_key(row): 0.0 for row in rows if row.compute_used is not None}
            if meter is not None:
                shares |= self._split(gpu, meter, reading.energy_millijoules, rows, old)
            unattributed = meter.unattributed if meter is not None else 0.0
            self._meters[gpu.identity.uuid] = Meter(reading.energy_millijoules, self._poll, unattributed)
        return shares

    def _split(
        self,
        gpu: GpuRow,
        meter: Meter,
        millijoules: int,
        rows: list[ContainerRow],
        old: frozenset[AccountKey],
    ) -> dict[AccountKey, float]:
        # The counter falls when the driver is loaded anew; what was drawn before that is lost.
        joules = max(millijoules - meter.millijoules, 0) / 1000
        # Over a missed poll nobody knows who computed: what was drawn then is nobody's.
        split = split_energy(joules, gpu, rows) if meter.poll == self._poll - 1 else {}
        entered = {key: share for key, share in split.items() if key in old}
        meter.unattributed += max(joules - sum(entered.values()), 0.0)
        return entered

    def _with_energy(self, row: GpuRow) -> GpuRow:
        meter = self._meters.get(row.identity.uuid)
        return row if meter is None else replace(row, unattributed_energy_joules=meter.unattributed)


def split_energy(joules: float, gpu: GpuRow, rows: Sequence[ContainerRow]) -> dict[AccountKey, float]:
    """Split joules of one GPU: the active part by used share, the idle part by entitlement.

    A row whose use is not known gets nothing, and neither does anyone of the idle part when it cannot be
    told how much of the GPU was idle. What is left over is nobody's; the parts never exceed the whole.
    """
    known = {_key(row): row.compute_used for row in rows if row.compute_used is not None}
    used = sum(known.values())
    busy = _busy_share(gpu, rows, used)
    scale = 1 / max(used, 1.0)
    entitled = sum(row.compute_entitled or 0.0 for row in rows)
    idle = 0.0 if busy is None else (1 - busy) / max(entitled, 1.0)
    return {
        _key(row): joules * (row.compute_used * scale + idle * (row.compute_entitled or 0.0))
        for row in rows
        if row.compute_used is not None
    }


def _busy_share(gpu: GpuRow, rows: Sequence[ContainerRow], used: float) -> float | None:
    percent = gpu.reading.utilization_percent if gpu.reading is not None else None
    if percent is None and any(row.compute_used is None for row in rows):
        return None
    return min(1.0, max((percent or 0) / 100, used))


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


def _last_active(before: Totals, computed: float | None, now: float) -> float | None:
    if computed is None:
        return before.last_active
    if computed > 0:
        return now
    return before.last_active if before.last_active is not None else before.first_seen
