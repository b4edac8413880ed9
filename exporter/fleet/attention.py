"""GPUs and holders that need attention: unhealthy GPUs, and idle holders."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from exporter.fleet import IdleHolder, IdleTotals, NodeKey, SickGpu
from exporter.fleet.queries import Answers, of
from exporter.fleet.targets import Targets, holder_key, holder_of
from exporter.formats.wording import duration
from exporter.model.conditions import TABLE, Look
from exporter.model.xids import explain
from exporter.prometheus import Sample

# The maximum number of unhealthy GPUs listed.
SICK_LISTED = 200
_HARMLESS = frozenset({"notice", "application"})

_Reason = tuple[Look, str]


class _Sign(NamedTuple):
    """A sign of an unhealthy GPU: the record that has it, and the reason shown for a row."""

    record: str
    reason: Callable[[Sample], _Reason | None]


def _condition(sample: Sample) -> _Reason | None:
    # A newer exporter may have conditions that this program does not know.
    rows = (row for name, row in TABLE.items() if name == sample.labels.get("condition"))
    return next(((row.look, row.title) for row in rows), None)


def _xid(sample: Sample) -> _Reason | None:
    code = sample.text("xid")
    known = explain(int(code)) if code.isdecimal() else None
    if known is None or known.kind in _HARMLESS:
        return None
    return "bad", f"XID {known.code} {duration(sample.value)} ago: {known.meaning}"


_SIGNS = {
    "conditions": _Sign("gpu:gpuslice_raised_condition:bool", _condition),
    "XID errors": _Sign("gpu:gpuslice_recent_xid_seconds:min", _xid),
}
_UNHEALTHY = "unhealthy GPUs"
_MODELS = "models of GPUs"
_COUNT, _COMPUTE, _LARGEST = "number of idle holders", "compute of idle holders", "idle holders"

QUESTIONS = {
    **{name: f"topk({SICK_LISTED}, {sign.record})" for name, sign in _SIGNS.items()},
    _UNHEALTHY: "sum(node:gpuslice_unhealthy_gpus:sum)",
    _COUNT: "sum(node:gpuslice_idle_holders:sum)",
    _COMPUTE: "sum(node:gpuslice_idle_gpus:sum)",
    _LARGEST: "container:gpuslice_largest_idle_seconds:topk",
}
"""The queries for unhealthy GPUs and idle holders: their totals, and the largest."""

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


def is_whole(answers: Answers) -> bool:
    """Return whether every sign was queried, none has more GPUs than are listed, and none is missed."""
    unhealthy = _single(answers, _UNHEALTHY)
    raised = len({sample.text("uuid") for sample in answers.samples("conditions")})
    return (
        all(name not in answers.problems and len(answers.samples(name)) < SICK_LISTED for name in _SIGNS)
        and unhealthy is not None
        # The rules of both are evaluated at different times.
        and bool(raised) >= bool(unhealthy)
    )


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
            severity=min(look for look, _ in reasons),
            reasons=tuple(text for _, text in sorted(reasons, key=lambda reason: reason[0])),
        )
        for case, reasons in cases.items()
    ]
    yield from sorted(sick, key=lambda gpu: (gpu.severity, gpu.node, gpu.gpu, gpu.uuid))


def idle_totals(answers: Answers) -> IdleTotals:
    """Return the totals of all idle holders, also of those not listed; None where none is measured."""
    holders = _single(answers, _COUNT)
    return IdleTotals(None if holders is None else int(holders), _single(answers, _COMPUTE))


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


def _single(answers: Answers, name: str) -> float | None:
    """Return the only value of an answer, None if there is none."""
    return next((sample.value for sample in answers.samples(name)), None)
