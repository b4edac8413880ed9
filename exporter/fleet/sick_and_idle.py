"""Unhealthy GPUs and idle holders, as lists of the worst."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from exporter.fleet.model import IdleHolder, Node, NodeKey, SickGpu
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers, HolderKey, holder_key, selector
from exporter.fleet.targets import Targets
from exporter.model.conditions import TABLE, Severity
from exporter.model.xids import explain
from exporter.wording import duration

# The maximum number of unhealthy GPUs listed.
SICK_LISTED = 200
_HARMLESS_XIDS = frozenset({"notice", "application"})
_CONDITIONS, _XIDS, _LARGEST = "conditions", "XID errors", "idle holders"
_MODELS, _RESOURCES = "models of GPUs", "slices of idle holders"
_HELD, _USED, _COMPUTE = "memory held", "memory used", "compute held"
# Few GPUs have a series of an XID.
_XIDS_OF_AN_HOUR = (
    "min by (cluster, node, gpu, uuid, xid) (time() - gpuslice_gpu_xid_last_timestamp_seconds) < 3600"
)

QUESTIONS = {
    _CONDITIONS: f"topk({SICK_LISTED}, gpu:gpuslice_raised_condition:bool)",
    _XIDS: f"topk({SICK_LISTED}, {_XIDS_OF_AN_HOUR})",
    _LARGEST: "container:gpuslice_largest_idle_seconds:topk",
}
# Further values of the listed idle holders.
DETAILS = {
    _HELD: "container:gpuslice_held_bytes:max",
    _USED: "container:gpuslice_used_bytes:avg5m",
    _COMPUTE: "container:gpuslice_held_gpus:max",
    _RESOURCES: "gpuslice_container_info",
}

_Reason = tuple[Severity, str]


def _condition(sample: Sample) -> _Reason | None:
    for name, condition in TABLE.items():
        if name == sample.text("condition"):
            return condition.severity, condition.title
    return None  # a newer exporter may have conditions that this program does not know


def _xid(sample: Sample) -> _Reason | None:
    code = sample.text("xid")
    known = explain(int(code)) if code.isdecimal() else None
    if known is None or known.kind in _HARMLESS_XIDS:
        return None
    return "bad", f"XID {known.code} {duration(sample.value)} ago: {known.meaning}"


# Why the GPU of a sample is unhealthy, None if it is not, by query.
_REASONS: Mapping[str, Callable[[Sample], _Reason | None]] = {_CONDITIONS: _condition, _XIDS: _xid}


def detail_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for further values of the idle holders, and for the models of unhealthy GPUs."""
    idle = {sample.text("uuid") for sample in answers.samples(_LARGEST)}
    sick = {sample.text("uuid") for name in _REASONS for sample in answers.samples(name)}
    questions = {}
    if idle:
        questions = {name: selector(family, "uuid", idle) for name, family in DETAILS.items()}
    if sick:
        questions[_MODELS] = selector("gpu:gpuslice_model:info", "uuid", sick)
    return questions


def lists_all_sick(answers: Answers, nodes: Iterable[Node]) -> bool:
    """Return whether all unhealthy GPUs are listed: as many as are counted of each node."""
    for name in _REASONS:
        if name in answers.problems or len(answers.samples(name)) >= SICK_LISTED:
            return False
    raised = answers.sums(_CONDITIONS, "cluster", "node", "uuid") or ()
    sick = Counter((cluster, node) for cluster, node, _ in raised)
    for node in nodes:
        listed = sick[node.target.cluster, node.key.name]
        if node.unhealthy.missing or listed < node.unhealthy.total:
            return False
    return True


def read_sick(answers: Answers, details: Answers, targets: Targets) -> tuple[SickGpu, ...]:
    """Return each unhealthy GPU once, the worst first."""
    models = {sample.text("uuid"): sample.text("model") for sample in details.samples(_MODELS)}
    gpus: dict[tuple[NodeKey, str, str], list[_Reason]] = defaultdict(list)
    for name, reason_of in _REASONS.items():
        for sample in answers.samples(name):
            reason = reason_of(sample)
            if reason is not None:
                gpus[targets.key_of(sample), sample.text("gpu"), sample.text("uuid")].append(reason)
    sick = [
        SickGpu(
            node=node,
            uuid=uuid,
            gpu=gpu,
            model=models.get(uuid, ""),
            severity=min(look for look, _ in reasons),
            reasons=tuple(text for _, text in sorted(dict.fromkeys(reasons), key=lambda reason: reason[0])),
        )
        for (node, gpu, uuid), reasons in gpus.items()
    ]
    return tuple(sorted(sick, key=lambda gpu: (gpu.severity, gpu.node, gpu.gpu, gpu.uuid)))


def read_idle(answers: Answers, details: Answers, targets: Targets) -> tuple[IdleHolder, ...] | None:
    """Return the largest idle holders; None if the query failed."""
    if _LARGEST in answers.problems:
        return None

    def values(name: str) -> dict[HolderKey, float]:
        return {holder_key(sample): sample.value for sample in details.samples(name)}

    held, used, compute = values(_HELD), values(_USED), values(_COMPUTE)
    resources = {holder_key(sample): sample.text("resource") for sample in details.samples(_RESOURCES)}

    def idle(sample: Sample) -> IdleHolder:
        key = holder_key(sample)
        return IdleHolder(
            node=targets.key_of(sample),
            holder=key.holder,
            uuid=key.uuid,
            mig_uuid=key.mig_uuid,
            gpu=sample.text("gpu"),
            resource=resources.get(key, ""),
            seconds=sample.value,
            memory_held=held.get(key),
            memory_used=used.get(key),
            compute_held=compute.get(key),
        )

    return tuple(map(idle, answers.samples(_LARGEST)))
