"""The GPUs of some nodes and their holders, as ``inspect`` shows them: from the series of these nodes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.fleet import Target
from exporter.fleet.amounts import (
    FAILED_AMOUNT,
    UNKNOWN_AMOUNT,
    UNKNOWN_SLICES,
    Amount,
    Units,
    closed,
    total_amount,
)
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers, some, target_of
from exporter.fleet.targets import holder_key, holder_of
from exporter.model import Condition, ContainerRow, DeviceKey, HeldClaim, Totals
from exporter.model.conditions import TABLE
from exporter.model.states import ACTIVE_SECONDS, Judgement, judge_holder
from exporter.wording import is_system

_UP, _INFO, _CONDITIONS = "GPUs", "names of GPUs", "conditions of GPUs"
_OFFERED, _HELD, _UNHEALTHY = "slices offered", "slices held", "unhealthy slices"
_OF_GPU = {
    _UP: "gpuslice_gpu_up",
    _INFO: "gpuslice_gpu_info",
    _CONDITIONS: "gpuslice_gpu_condition",
    "memory": "gpuslice_gpu_memory_total_bytes",
    "memory held": "gpuslice_gpu_memory_entitled_bytes",
    "memory used": "gpuslice_gpu_memory_used_bytes",
    "unattributed compute": "gpuslice_gpu_unattributed_utilization_ratio",
    "number of holders": "gpuslice_gpu_holders",
    _OFFERED: "gpuslice_gpu_slices",
    _HELD: "gpuslice_gpu_slices_allocated",
    _UNHEALTHY: "gpuslice_gpu_slices_unhealthy",
}
_OF_ROW = {
    "slices": "gpuslice_container_slices",
    "memory_entitled": "gpuslice_container_memory_entitled_bytes",
    "memory_used": "gpuslice_container_memory_used_bytes",
    "compute_entitled": "gpuslice_container_compute_entitled_ratio",
    "compute_used": "gpuslice_container_compute_used_ratio",
    "last_active": "gpuslice_container_last_active_timestamp_seconds",
    "used": "gpuslice_container_used_gpu_seconds_total",
}
_CLAIM = ("claim_namespace", "claim", "request", "driver", "pool", "device")
_HOLDERS = "names of holders"
# Few nodes have these; claims are beyond the default set of series.
_CLAIMS, _HEALTH = "claims of holders", "health of holders' devices"
_OF_HOLDER = "{} of holders"
_HOLDER_ROWS = tuple(map(_OF_HOLDER.format, _OF_ROW))
# No counter has the compute before the first poll that saw a container.
_COMPUTED = "holders that computed lately"
_STATE_UNKNOWN = Judgement("unknown", "unknown", None)
_OF_DETAILS = {_CLAIMS: "gpuslice_container_claim_info", _HEALTH: "gpuslice_container_device_health_info"}
# The state of a holder may depend on any of these.
_FOR_STATES = (_COMPUTED, *_HOLDER_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container on a device, and its state."""

    row: ContainerRow
    judged: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, with slices and units as those of a Node."""

    uuid: str
    index: str
    model: str
    sharing: str
    up: bool | None  # None if the exporter does not read it
    conditions: tuple[Condition, ...] | None  # those that it has; None if the query failed
    slices: Units
    units: tuple[Units, ...] | None
    memory_total: Amount
    memory_held: Amount
    memory_used: Amount
    compute_held: Amount
    compute_used: Amount
    holders: (
        tuple[Holder, ...] | None
    ) = ()  # None if the query failed, or if it is unknown whether there are any
    all_holders: bool = True  # if not, there may be more


def questions(nodes: Collection[str]) -> dict[str, str]:
    """Return the queries for the series of the GPUs and holders of these nodes; none if there are none."""
    if not nodes:
        return {}
    families = _OF_GPU | {_HOLDERS: "gpuslice_container_info"} | _OF_DETAILS
    families |= {_OF_HOLDER.format(name): family for name, family in _OF_ROW.items()}
    lately = some("gpuslice_container_compute_used_ratio", "node", nodes)
    return {
        **{name: some(family, "node", nodes) for name, family in families.items()},
        _COMPUTED: f"max_over_time({lately}[{ACTIVE_SECONDS:.0f}s]) > 0",
    }


def read_gpus(answers: Answers, at: float, idle_after: float) -> Mapping[Target, tuple[Gpu, ...]] | None:
    """Return the GPUs of each target by index; ``at`` is the Unix time of the answers.

    None if the list of GPUs could not be queried.
    """
    if _INFO in answers.problems:
        return None
    series: dict[Target, _Series] = defaultdict(lambda: _Series(answers.problems))
    for name in questions(("",)):
        for sample in answers.samples(name):
            series[target_of(sample)].add(name, sample)
    return {target: _gpus(rows, at, idle_after) for target, rows in series.items()}


class _Series:
    """The series of one target."""

    def __init__(self, failed: Collection[str]) -> None:
        self._rows: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        self._failed = failed

    def add(self, name: str, sample: Sample) -> None:
        """Add a row of an answer."""
        self._rows[name][sample.text("uuid")].append(sample)

    def rows(self, name: str) -> list[Sample]:
        """Return all rows of an answer."""
        return [sample for rows in self._rows[name].values() for sample in rows]

    def of(self, name: str, uuid: str) -> Sequence[Sample]:
        """Return the rows of a GPU."""
        return self._rows[name].get(uuid, ())

    def gpus(self) -> list[Sample]:
        """Return a row for each GPU: with its names, if that is not missing."""
        return list({sample.text("uuid"): sample for sample in self._all((*_OF_GPU, _INFO))}.values())

    def holders(self) -> dict[tuple[str, ...], Sample]:
        """Return a row for each container on a device by its key, likewise."""
        return {holder_key(sample): sample for sample in self._all((*_HOLDER_ROWS, _HOLDERS))}

    def _all(self, names: Iterable[str]) -> Iterator[Sample]:
        return (sample for name in names for sample in self.rows(name))

    def failed(self, *names: str) -> bool:
        """Return whether one of the queries failed."""
        return any(name in self._failed for name in names)

    def single(self, name: str, uuid: str) -> Amount:
        """Return a single value, which may be missing."""
        if self.failed(name):
            return FAILED_AMOUNT
        rows = self.of(name, uuid)
        return Amount(rows[0].value, 1) if rows else UNKNOWN_AMOUNT

    def summed(self, name: str, uuid: str, expected: int) -> Amount:
        """Return the sum of a value of holders, of ``expected`` ones."""
        asked = _OF_HOLDER.format(name)
        if self.failed(asked, _HOLDERS, _OF_HOLDER.format("slices")):
            return FAILED_AMOUNT
        values = [sample.value for sample in self.of(asked, uuid)]
        return closed(sum(values) if values else None, len(values), expected)


def _gpus(series: _Series, at: float, idle_after: float) -> tuple[Gpu, ...]:
    rows: dict[str, list[Holder]] = defaultdict(list)
    for holder in _holders(series, at, idle_after):
        rows[holder.row.device.uuid].append(holder)
    return tuple(_gpu(series, info, rows[info.text("uuid")]) for info in sorted(series.gpus(), key=_index))


def _gpu(series: _Series, info: Sample, holders: Sequence[Holder]) -> Gpu:
    uuid, sharing = info.text("uuid"), info.text("sharing")
    up, rows = series.of(_UP, uuid), len(holders)
    held = [holder.row for holder in holders if holder.row.slices != 0]
    known = series.single("number of holders", uuid)
    whole = bool(known.known) and len({row.holder for row in held}) >= known.total
    # Without its mode it is unknown whether slices are those of a sharing system.
    units = None if series.failed(_OFFERED, _HELD) or not sharing else _units(series, uuid)
    own = None if units is None or is_system(sharing) else _total(units)
    return Gpu(
        uuid=uuid,
        index=info.text("gpu"),
        model=info.text("model"),
        sharing=sharing,
        up=up[0].value == 1 if up else None,
        conditions=_conditions(series, uuid),
        slices=own or UNKNOWN_SLICES,
        units=units if own is None else (),
        memory_total=series.single("memory", uuid),
        memory_held=series.single("memory held", uuid),
        memory_used=series.single("memory used", uuid),
        compute_held=series.summed("compute_entitled", uuid, max(len(held), int(known.total)))
        if known.known
        else known,
        compute_used=series.summed("compute_used", uuid, rows) + series.single("unattributed compute", uuid),
        holders=None if series.failed(_HOLDERS) or not (holders or whole) else tuple(holders),
        all_holders=whole,
    )


def _conditions(series: _Series, uuid: str) -> tuple[Condition, ...] | None:
    """Return the conditions that a GPU has, in the order of the table; None if none is reported, 0 or 1."""
    if series.failed(_CONDITIONS) or not series.of(_CONDITIONS, uuid):
        return None
    raised = {row.labels.get("condition") for row in series.of(_CONDITIONS, uuid) if row.value == 1}
    return tuple(name for name in TABLE if name in raised)


def _units(series: _Series, uuid: str) -> tuple[Units, ...]:
    """Return the slices or units of a GPU by resource; of some only one amount is reported."""
    held, offered, unhealthy = (
        {row.text("resource"): row.value for row in series.of(name, uuid)}
        for name in (_HELD, _OFFERED, _UNHEALTHY)
    )
    return tuple(
        Units(
            name,
            Amount(held[name], 1) if name in held else UNKNOWN_AMOUNT,
            Amount(offered[name], 1) if name in offered else UNKNOWN_AMOUNT,
            None if series.failed(_UNHEALTHY) else unhealthy.get(name, 0.0),
        )
        for name in sorted({*held, *offered})
    )


def _total(units: Sequence[Units]) -> Units | None:
    """Return the sum of the slices of the vendors' own plug-ins, None if none are reported."""
    if not units:
        return None
    return Units("", total_amount(each.held for each in units), total_amount(each.offered for each in units))


def _holders(series: _Series, at: float, idle_after: float) -> Iterator[Holder]:
    tables = {
        name: {holder_key(sample): sample.value for sample in series.rows(_OF_HOLDER.format(name))}
        for name in _OF_ROW
    }
    computed = {holder_key(sample) for sample in series.rows(_COMPUTED)}
    claims: dict[tuple[str, ...], set[HeldClaim]] = defaultdict(set)
    for sample in series.rows(_CLAIMS):
        claims[holder_key(sample)].add(HeldClaim(*sample.texts(*_CLAIM)))
    healths = {holder_key(sample): sample.text("health") for sample in series.rows(_HEALTH)}
    named = set(map(holder_key, series.rows(_HOLDERS)))
    for key, sample in series.holders().items():
        values = {name: table.get(key) for name, table in tables.items()}
        row = replace(
            _row(sample, values, seen_computing=key in computed or bool(values["used"])),
            claims=tuple(sorted(claims.get(key, ()))),
            health=healths.get(key, ""),
        )
        unknown = series.failed(*_FOR_STATES) or key not in named
        judged = _STATE_UNKNOWN if unknown else judge_holder(row, at, idle_after)
        yield Holder(row=row, judged=judged)


def _row(sample: Sample, values: Mapping[str, float | None], *, seen_computing: bool) -> ContainerRow:
    last_active = values["last_active"]
    return ContainerRow(
        holder=holder_of(sample),
        device=DeviceKey(sample.text("uuid"), sample.text("mig_uuid")),
        resource=sample.text("resource"),
        sharing=sample.text("sharing"),
        isolation=sample.text("isolation"),
        slices=_whole(values["slices"]),
        memory_entitled=_whole(values["memory_entitled"]),
        memory_used=_whole(values["memory_used"]),
        compute_entitled=values["compute_entitled"],
        compute_used=values["compute_used"],
        totals=Totals(first_seen=last_active or 0.0, last_active=last_active, seen_computing=seen_computing),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _index(sample: Sample) -> tuple[float, str]:
    index = sample.text("gpu")
    return (float(index) if index.isdecimal() else float("inf"), sample.text("uuid"))
