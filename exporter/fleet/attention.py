"""GPUs and holders that need attention: unhealthy GPUs, and idle holders."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.fleet import IdleHolder, IdleTotals, Node, NodeKey, SickGpu
from exporter.fleet.amounts import total_amount
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers, of
from exporter.fleet.targets import Targets, holder_key, holder_of
from exporter.model.conditions import TABLE, Severity
from exporter.model.xids import explain
from exporter.wording import duration

# The maximum number of unhealthy GPUs listed.
SICK_LISTED = 200
_HARMLESS = frozenset({"notice", "application"})

_Reason = tuple[Severity, str]


class _Sign(NamedTuple):
    """A sign of an unhealthy GPU: the rows that have it, and the reason shown for a row."""

    rows: str
    reason: Callable[[Sample], _Reason | None]


def _condition(sample: Sample) -> _Reason | None:
    # A newer exporter may have conditions that this program does not know.
    rows = (row for name, row in TABLE.items() if name == sample.labels.get("condition"))
    return next(((row.severity, row.title) for row in rows), None)


def _xid(sample: Sample) -> _Reason | None:
    code = sample.text("xid")
    known = explain(int(code)) if code.isdecimal() else None
    if known is None or known.kind in _HARMLESS:
        return None
    return "bad", f"XID {known.code} {duration(sample.value)} ago: {known.meaning}"


_CONDITIONS = "conditions"
# Few GPUs have a series of an XID.
_XIDS = "min by (cluster, node, gpu, uuid, xid) (time() - gpuslice_gpu_xid_last_timestamp_seconds) < 3600"
_SIGNS = {
    _CONDITIONS: _Sign("gpu:gpuslice_raised_condition:bool", _condition),
    "XID errors": _Sign(_XIDS, _xid),
}
_MODELS = "models of GPUs"
_LARGEST = "idle holders"

QUESTIONS = {
    **{name: f"topk({SICK_LISTED}, {sign.rows})" for name, sign in _SIGNS.items()},
    _LARGEST: "container:gpuslice_largest_idle_seconds:topk",
}
"""The queries for the largest lists of unhealthy GPUs and idle holders."""

DETAILS = {
    "memory held": "container:gpuslice_held_bytes:max",
    "memory used": "container:gpuslice_used_bytes:avg5m",
    "compute held": "container:gpuslice_held_gpus:max",
    "slices of idle holders": "gpuslice_container_info",
}
"""What an idle holder holds, by the name of the query."""


class _Case(NamedTuple):
    node: NodeKey
    gpu: str
    uuid: str


def is_whole(answers: Answers, nodes: Iterable[Node]) -> bool:
    """Return whether all unhealthy GPUs are listed: as many as are counted of each node."""
    raised = Counter(key[:2] for key in answers.sums(_CONDITIONS, "cluster", "node", "uuid") or ())
    return all(
        name not in answers.problems and len(answers.samples(name)) < SICK_LISTED for name in _SIGNS
    ) and all(_has_all(node, raised) for node in nodes)


def _has_all(node: Node, raised: Mapping[tuple[str, ...], int]) -> bool:
    place = (node.target.cluster, node.key.name)
    return not node.unhealthy.missing and raised.get(place, 0) >= node.unhealthy.total


def detail_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for what idle holders hold, and for the models of unhealthy GPUs."""
    idle = {sample.text("uuid") for sample in answers.samples(_LARGEST)}
    sick = {sample.text("uuid") for name in _SIGNS for sample in answers.samples(name)}
    questions = {name: of(family, "uuid", idle) for name, family in DETAILS.items()} if idle else {}
    return questions | ({_MODELS: of("gpu:gpuslice_model:info", "uuid", sick)} if sick else {})


def read_sick(answers: Answers, details: Answers, targets: Targets) -> Iterator[SickGpu]:
    """Yield each unhealthy GPU once, the worst first."""
    models = {sample.text("uuid"): sample.text("model") for sample in details.samples(_MODELS)}
    cases: dict[_Case, dict[_Reason, None]] = defaultdict(dict)
    for name, sign in _SIGNS.items():
        for sample in answers.samples(name):
            reason = sign.reason(sample)
            if reason is not None:
                case = _Case(targets.key_of(sample), sample.text("gpu"), sample.text("uuid"))
                cases[case][reason] = None
    sick = [
        SickGpu(
            node=case.node,
            uuid=case.uuid,
            gpu=case.gpu,
            model=models.get(case.uuid, ""),
            severity=min(severity for severity, _ in reasons),
            reasons=tuple(text for _, text in sorted(reasons, key=lambda reason: reason[0])),
        )
        for case, reasons in cases.items()
    ]
    yield from sorted(sick, key=lambda gpu: (gpu.severity, gpu.node, gpu.gpu, gpu.uuid))


def idle_totals(nodes: Iterable[Node]) -> IdleTotals:
    """Return the totals of all idle holders, also of those not listed; None if none is measured."""
    every = list(nodes)
    holders = total_amount(node.idle_holders for node in every)
    compute = total_amount(node.idle_compute for node in every)
    return IdleTotals(
        None if holders.value is None else int(holders.value),
        compute.value,
        complete=not (holders.missing or compute.missing),
    )


def read_idle(answers: Answers, details: Answers, targets: Targets) -> tuple[IdleHolder, ...] | None:
    """Return the largest idle holders; None if the query failed."""
    if _LARGEST in answers.problems:
        return None
    tables = {name: {holder_key(sample): sample for sample in details.samples(name)} for name in DETAILS}
    return tuple(_idle(sample, tables, targets) for sample in answers.samples(_LARGEST))


def _idle(
    sample: Sample, tables: Mapping[str, Mapping[tuple[str, ...], Sample]], targets: Targets
) -> IdleHolder:
    rows = {name: table.get(holder_key(sample)) for name, table in tables.items()}
    held, used, compute = (
        None if row is None else row.value
        for row in (rows["memory held"], rows["memory used"], rows["compute held"])
    )
    info = rows["slices of idle holders"]
    return IdleHolder(
        node=targets.key_of(sample),
        holder=holder_of(sample),
        uuid=sample.text("uuid"),
        mig_uuid=sample.text("mig_uuid"),
        gpu=sample.text("gpu"),
        resource=info.text("resource") if info else "",
        seconds=sample.value,
        memory_held=held,
        memory_used=used,
        compute_held=compute,
    )
