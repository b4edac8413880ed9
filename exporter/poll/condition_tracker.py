"""Decides the conditions of all GPUs at each poll, and keeps what the rules need between polls."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from exporter.model import Condition, EventCount, GpuReading, GpuRow, HardwareReading, Raised, only
from exporter.model.condition_signs import UNKNOWN, Inputs, PendingXid
from exporter.model.conditions import TABLE, judge_condition
from exporter.model.xids import branch_of
from exporter.poll.gpu_counters import GpuCounters, NodeCounters
from exporter.poll.several_readings import DegradedLinks, Throttling, behind_switches, switched_links

# How long an XID counts on a GPU without a counter that would show a restart.
UNSEEN_RESTART_SECONDS = 6 * 3600.0
RESET_REQUIRED = "ResetRequired"

Errors = Mapping[tuple[str, str, str], int]
_XidKey = tuple[str, int]


@dataclass(slots=True)
class _GpuState:
    """The state of one GPU."""

    counters: GpuCounters
    last: GpuReading | None = None  # the last reading with values
    # How often each XID had occurred when the GPU was last restarted.
    repaired: dict[_XidKey, int] = field(default_factory=dict)
    unloaded: bool = False  # whether the driver has been unloaded since ``last``
    refused: bool = False  # whether it has answered "reset required" and nothing else since
    throttling: Throttling = field(default_factory=Throttling)
    links: DegradedLinks = field(default_factory=DegradedLinks)
    raised: dict[Condition, Raised] = field(default_factory=dict)

    def advance(self, row: GpuRow, *, unloaded: bool) -> None:
        """Take the reading of a poll; ``row`` has the GPU's events.

        ``unloaded`` is whether the file of the kernel module is gone. It counts while the GPU does not
        answer: a driver that answers is loaded.
        """
        reading = row.reading
        if reading is None or not reading.up:
            self.unloaded = self.unloaded or unloaded
            return
        self.refused = False
        last, self.last = self.last, reading
        if last is None or last.read_monotonic == reading.read_monotonic:
            return
        restarted = reading.read_at if self.unloaded else self.counters.restarted
        if restarted is not None:
            self.links.restart()
            self.repair(row, restarted)
        elif last.recovery_action not in (None, "none") and reading.recovery_action == "none":
            # The driver no longer asks for the recovery that it asked for before.
            self.repair(row, reading.read_at)
        self.unloaded = False
        self.throttling.note(last, reading)
        self.links.note(last, reading)

    def repair(self, row: GpuRow, until: float) -> None:
        """Forget the XIDs ``until`` a Unix time; one that is newer still counts."""
        self.repaired = {key: event.count - (event.last > until) for key, event in _xids(row)}

    def pending(self, row: GpuRow, now: float) -> Iterator[PendingXid]:
        """Yield the XIDs since the last restart, at Unix time ``now``."""
        visible = self.last is None or self.counters.shows_restarts
        for key, event in _xids(row):
            recent = abs(now - event.last) <= UNSEEN_RESTART_SECONDS
            if event.count > self.repaired.get(key, 0) and (visible or recent):
                yield PendingXid(key[1], event.last)


def _xids(row: GpuRow) -> Iterator[tuple[_XidKey, EventCount]]:
    for event in row.events:
        if event.xid is not None:
            yield (event.mig_uuid, event.xid), event


def _refusing(rows: Iterable[GpuRow], before: Errors, errors: Errors) -> Iterator[str]:
    """Yield the GPUs of which the driver has answered since ``before`` that they must be reset.

    An error without a uuid belongs to the only GPU that does not answer.
    """
    silent = [row.identity.uuid for row in rows if row.reading is not None and not row.reading.up]
    for key, count in errors.items():
        uuid, _, error = key
        if error == RESET_REQUIRED and count > before.get(key, 0):
            yield uuid or only(silent) or ""


class ConditionTracker:
    """Adds the conditions to the rows of each poll. GPUs that are gone are forgotten.

    ``counters`` are those of the same poll; without them no restart is noticed by counters.
    """

    def __init__(self, counters: NodeCounters | None = None) -> None:
        self._counters = counters or NodeCounters()
        # Whether the file of the kernel module was there: on some systems it never is.
        self._module_seen = False
        self._gpus: dict[str, _GpuState] = {}
        self._errors: Errors = {}

    def advance(
        self,
        rows: Iterable[GpuRow],
        hardware: HardwareReading,
        timestamp: float,
        *,
        module_loaded: bool | None = None,
    ) -> tuple[GpuRow, ...]:
        """Return the rows with their conditions at Unix time ``timestamp``.

        ``module_loaded`` is whether the kernel module of the NVIDIA driver is loaded, None if unknown.
        """
        known = tuple(rows)
        self._note(known, hardware.errors, module_loaded)
        siblings = switched_links(row.reading for row in known if row.reading is not None)
        return tuple(
            row
            if row.unread
            else self._judged(row, self._inputs(row, siblings, hardware, timestamp), timestamp)
            for row in known
        )

    def _note(self, rows: tuple[GpuRow, ...], errors: Errors, module_loaded: bool | None) -> None:
        self._gpus = {row.identity.uuid: self._state(row) for row in rows}
        unloaded = module_loaded is False and self._module_seen
        self._module_seen = self._module_seen or module_loaded is True
        refusing = set(_refusing(rows, self._errors, errors))
        self._errors = errors
        for row in rows:
            gpu = self._gpus[row.identity.uuid]
            gpu.refused = gpu.refused or row.identity.uuid in refusing
            gpu.advance(row, unloaded=unloaded and row.identity.vendor == "nvidia")

    def _state(self, row: GpuRow) -> _GpuState:
        """Return the state of a GPU. One that is new, or back, was initialized: its XIDs are of before."""
        state = self._gpus.get(row.identity.uuid)
        if state is None:
            state = _GpuState(self._counters.of_gpu(row.identity.uuid))
            state.repair(row, row.reading.read_at if row.reading is not None else 0.0)
        return state

    def _inputs(
        self, row: GpuRow, siblings: Mapping[str, int], hardware: HardwareReading, timestamp: float
    ) -> Inputs:
        gpu, reading = self._gpus[row.identity.uuid], row.reading
        inputs = Inputs(
            vendor=row.identity.vendor,
            reading=reading,
            released=hardware.released,
            watched=row.watched,
            xids=tuple(gpu.pending(row, timestamp)),
            driver_branch=branch_of(hardware.driver.driver_version),
            reset_required=gpu.refused,
        )
        if reading is None or not reading.up:
            return inputs
        now = reading.read_monotonic
        most = siblings.get(reading.identity.model, 0) if behind_switches(reading) else 0
        throttled = UNKNOWN if reading.clock_events is None else gpu.throttling.judge(now)
        return replace(inputs, throttled=throttled, links=gpu.links.judge(reading, most, now))

    def _judged(self, row: GpuRow, inputs: Inputs, timestamp: float) -> GpuRow:
        gpu = self._gpus[row.identity.uuid]
        conditions: dict[Condition, bool] = {}
        raised: dict[Condition, Raised] = {}
        for name in TABLE:
            verdict = judge_condition(name, inputs)
            if verdict.state is not None:
                conditions[name] = verdict.state
            if verdict.state:
                began = [sign.at for sign in verdict.signs if sign.at is not None]
                before = gpu.raised.get(name)
                raised[name] = Raised(
                    since=before.since if before is not None else min([timestamp, *began]),
                    causes=tuple(sign.cause for sign in verdict.signs),
                )
        gpu.raised = raised
        return replace(row, conditions=conditions, raised=raised)
