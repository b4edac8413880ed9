"""The GPUs of some nodes and their holders, as ``inspect`` shows them: from the series of these nodes."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from exporter.fleet import amounts
from exporter.fleet.amounts import FAILED_AMOUNT, UNKNOWN_AMOUNT, UNKNOWN_SLICES, Amount, Units
from exporter.fleet.model import Target
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers, HolderKey, holder_key, selector_or_all, target_of
from exporter.model import Condition, ContainerRow, DeviceKey, HeldClaim, Totals
from exporter.model.conditions import TABLE
from exporter.model.states import ACTIVE_SECONDS, Judgement, judge_holder
from exporter.wording import is_system

_UP, _INFO, _CONDITIONS = "GPUs", "names of GPUs", "conditions of GPUs"
_OFFERED, _HELD = "slices offered", "slices held"
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
}
_SLICES, _USED, _LAST_ACTIVE = "slices of holders", "used of holders", "last_active of holders"
_MEMORY_ENTITLED, _MEMORY_USED = "memory_entitled of holders", "memory_used of holders"
_COMPUTE_ENTITLED, _COMPUTE_USED = "compute_entitled of holders", "compute_used of holders"
_OF_HOLDER = {
    _SLICES: "gpuslice_container_slices",
    _MEMORY_ENTITLED: "gpuslice_container_memory_entitled_bytes",
    _MEMORY_USED: "gpuslice_container_memory_used_bytes",
    _COMPUTE_ENTITLED: "gpuslice_container_compute_entitled_ratio",
    _COMPUTE_USED: "gpuslice_container_compute_used_ratio",
    _LAST_ACTIVE: "gpuslice_container_last_active_timestamp_seconds",
    _USED: "gpuslice_container_used_gpu_seconds_total",
}
_HOLDERS = "names of holders"
# Few nodes have these; claims are beyond the default set of series.
_CLAIMS, _HEALTH = "claims of holders", "health of holders' devices"
_CLAIM_LABELS = ("claim_namespace", "claim", "request", "driver", "pool", "device")
# No counter has the compute before the first poll that saw a container.
_COMPUTED = "holders that computed lately"
_STATE_UNKNOWN = Judgement("unknown", "unknown", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container on a device, and its state."""

    gpu: str  # index of the GPU, or its UUID
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
    # None if the query failed, or if it is unknown whether there are any.
    holders: tuple[Holder, ...] | None = ()
    all_holders: bool = True  # if not, there may be more


def gpu_questions(nodes: Collection[str]) -> dict[str, str]:
    """Return the queries for the series of the GPUs and holders of these nodes; none if there are none."""
    if not nodes:
        return {}
    families = {
        **_OF_GPU,
        _HOLDERS: "gpuslice_container_info",
        _CLAIMS: "gpuslice_container_claim_info",
        _HEALTH: "gpuslice_container_device_health_info",
        **_OF_HOLDER,
    }
    questions = {name: selector_or_all(family, "node", nodes) for name, family in families.items()}
    lately = f"{questions[_COMPUTE_USED]}[{ACTIVE_SECONDS:.0f}s]"
    return questions | {_COMPUTED: f"max_over_time({lately}) > 0"}


def read_gpus(answers: Answers, at: float, idle_after: float) -> Mapping[Target, tuple[Gpu, ...]] | None:
    """Return the GPUs of each target by index; ``at`` is the Unix time of the answers.

    None if the list of GPUs could not be queried.
    """
    if _INFO in answers.problems:
        return None
    series: dict[tuple[Target, str], dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for name in (*_OF_GPU, *_OF_HOLDER, _HOLDERS, _CLAIMS, _HEALTH, _COMPUTED):
        for sample in answers.samples(name):
            series[target_of(sample), sample.text("uuid")][name].append(sample)
    gpus: dict[Target, list[Gpu]] = defaultdict(list)
    for (target, _), rows in series.items():
        if not rows.keys().isdisjoint(_OF_GPU):
            gpus[target].append(_GpuSeries(rows, answers.problems).gpu(at, idle_after))
    return {target: tuple(sorted(of_target, key=_order)) for target, of_target in gpus.items()}


def _order(gpu: Gpu) -> tuple[float, str]:
    return float(gpu.index) if gpu.index.isdecimal() else float("inf"), gpu.uuid


class _GpuSeries:
    """The series of one GPU and of the containers on it, by query."""

    def __init__(self, rows: Mapping[str, Sequence[Sample]], failed: Collection[str]) -> None:
        self._by_name = rows
        self._failed_queries = failed

    def gpu(self, at: float, idle_after: float) -> Gpu:
        """Return the GPU."""
        # Names are in the info, if that is not missing.
        info = [sample for name in (*_OF_GPU, _INFO) for sample in self._rows(name)][-1]
        up = self._rows(_UP)
        holders = self._holders(info.text("gpu") or info.text("uuid"), at, idle_after)
        held = [holder.row for holder in holders if holder.row.slices != 0]
        number = self._single("number of holders")
        all_holders = bool(number.known) and len({row.holder for row in held}) >= number.total
        if number.known:
            compute_held = self._sum(_COMPUTE_ENTITLED, max(len(held), int(number.total)))
        else:
            compute_held = number
        slices, units = self._slices(info.text("sharing"))
        return Gpu(
            uuid=info.text("uuid"),
            index=info.text("gpu"),
            model=info.text("model"),
            sharing=info.text("sharing"),
            up=up[0].value == 1 if up else None,
            conditions=self._conditions(),
            slices=slices,
            units=units,
            memory_total=self._single("memory"),
            memory_held=self._single("memory held"),
            memory_used=self._single("memory used"),
            compute_held=compute_held,
            compute_used=self._sum(_COMPUTE_USED, len(holders)) + self._single("unattributed compute"),
            holders=None if self._failed(_HOLDERS) or not (holders or all_holders) else holders,
            all_holders=all_holders,
        )

    def _rows(self, name: str) -> Sequence[Sample]:
        return self._by_name.get(name, ())

    def _failed(self, *names: str) -> bool:
        return any(name in self._failed_queries for name in names)

    def _single(self, name: str) -> Amount:
        """Return a single value, which may be missing."""
        if self._failed(name):
            return FAILED_AMOUNT
        rows = self._rows(name)
        return Amount(rows[0].value, 1) if rows else UNKNOWN_AMOUNT

    def _sum(self, name: str, expected: int) -> Amount:
        """Return the sum of a value of holders, of ``expected`` ones."""
        if self._failed(name, _HOLDERS, _SLICES):
            return FAILED_AMOUNT
        values = [sample.value for sample in self._rows(name)]
        return amounts.closed(sum(values) if values else None, len(values), expected)

    def _conditions(self) -> tuple[Condition, ...] | None:
        """Return the conditions, in the order of the table; None if none is reported, 0 or 1."""
        rows = self._rows(_CONDITIONS)
        if not rows:
            return None
        raised = {row.text("condition") for row in rows if row.value == 1}
        return tuple(name for name in TABLE if name in raised)

    def _slices(self, sharing: str) -> tuple[Units, tuple[Units, ...] | None]:
        """Return the slices of the vendors' own plug-ins, and the units of a sharing system by resource."""
        # Without its mode it is unknown which of them the resources are.
        if not sharing or self._failed(_OFFERED, _HELD):
            return UNKNOWN_SLICES, None
        held, offered = (
            {row.text("resource"): Amount(row.value, 1) for row in self._rows(name)}
            for name in (_HELD, _OFFERED)
        )
        # Of some resources only one amount is reported.
        units = tuple(
            Units(name, held.get(name, UNKNOWN_AMOUNT), offered.get(name, UNKNOWN_AMOUNT))
            for name in sorted({*held, *offered})
        )
        if units and not is_system(sharing):
            return amounts.total_of("", units), ()
        return UNKNOWN_SLICES, units

    def _holders(self, gpu: str, at: float, idle_after: float) -> tuple[Holder, ...]:
        """Return the containers on the GPU."""
        claims: dict[HolderKey, set[HeldClaim]] = defaultdict(set)
        for sample in self._rows(_CLAIMS):
            claims[holder_key(sample)].add(HeldClaim(*sample.texts(*_CLAIM_LABELS)))
        health = {holder_key(sample): sample.text("health") for sample in self._rows(_HEALTH)}
        computed = {holder_key(sample) for sample in self._rows(_COMPUTED)}
        samples: dict[HolderKey, dict[str, Sample]] = defaultdict(dict)
        for name in (*_OF_HOLDER, _HOLDERS):
            for sample in self._rows(name):
                samples[holder_key(sample)][name] = sample
        holders = []
        for key, by_name in samples.items():
            values = {name: by_name[name].value if name in by_name else None for name in _OF_HOLDER}
            # That with the names, if it is not missing.
            info = list(by_name.values())[-1]
            row = ContainerRow(
                holder=key.holder,
                device=DeviceKey(key.uuid, key.mig_uuid),
                resource=info.text("resource"),
                sharing=info.text("sharing"),
                isolation=info.text("isolation"),
                slices=_whole(values[_SLICES]),
                memory_entitled=_whole(values[_MEMORY_ENTITLED]),
                memory_used=_whole(values[_MEMORY_USED]),
                compute_entitled=values[_COMPUTE_ENTITLED],
                compute_used=values[_COMPUTE_USED],
                totals=Totals(
                    first_seen=values[_LAST_ACTIVE] or 0.0,
                    last_active=values[_LAST_ACTIVE],
                    seen_computing=key in computed or bool(values[_USED]),
                ),
                claims=tuple(sorted(claims.get(key, ()))),
                health=health.get(key, ""),
            )
            # The state may depend on any of the values.
            unknown = _HOLDERS not in by_name or self._failed(_COMPUTED, *_OF_HOLDER)
            judged = _STATE_UNKNOWN if unknown else judge_holder(row, at, idle_after)
            holders.append(Holder(gpu=gpu, row=row, judged=judged))
        return tuple(holders)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
