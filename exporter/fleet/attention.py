"""GPUs and holders that need attention: unhealthy GPUs, and idle holders."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.fleet.cluster_model import IdleHolder, IdleTotals, SickGpu
from exporter.fleet.queries import Answers, Narrow, of
from exporter.fleet.targets import Scraped, Targets, holder_key, holder_of
from exporter.formats.wording import duration
from exporter.model.conditions import TABLE, Look
from exporter.model.xids import explain
from exporter.prometheus import Sample

# The maximum number of unhealthy GPUs listed.
SICK_LISTED = 200
# How long an XID is shown, as on the node page.
RECENT_SECONDS = 3600
_GPU = "gpuslice_gpu_"
_HARMLESS = frozenset({"notice", "application"})

_Reason = tuple[Look, str]


class _Sign(NamedTuple):
    """A sign of an unhealthy GPU: the rows that have it, and the reason shown for one."""

    rows: str
    reason: Callable[[Sample], _Reason | None]


def _condition(sample: Sample) -> _Reason | None:
    # A newer exporter may have conditions that this program does not know.
    rows = (row for name, row in TABLE.items() if name == sample.labels.get("condition"))
    return next(((row.look, row.title) for row in rows), None)


def _xid(sample: Sample) -> _Reason | None:
    code = sample.labels.get("xid", "")
    known = explain(int(code)) if code.isdecimal() else None
    if known is None or known.kind in _HARMLESS:
        return None
    return "bad", f"XID {known.code} {duration(sample.value)} ago: {known.meaning}"


_SIGNS = {
    "conditions": _Sign(f'{_GPU}condition{{condition!="driver_released"}} == 1', _condition),
    "XID errors": _Sign(f"time() - {_GPU}xid_last_timestamp_seconds < {RECENT_SECONDS}", _xid),
}

QUESTIONS = {name: f"topk({SICK_LISTED}, {sign.rows})" for name, sign in _SIGNS.items()}


class _Case(NamedTuple):
    scraped: Scraped
    uuid: str


def is_whole(answers: Answers) -> bool:
    """Return whether every sign was queried, and none has more GPUs than are listed."""
    return all(name not in answers.problems and len(answers.samples(name)) < SICK_LISTED for name in _SIGNS)


def sick_uuids(answers: Answers) -> set[str]:
    """Return the uuids of the GPUs that have a sign."""
    return {sample.labels.get("uuid", "") for name in _SIGNS for sample in answers.samples(name)}


def read_sick(
    answers: Answers, targets: Targets, gpus: Mapping[str, str], models: Mapping[str, str]
) -> Iterator[SickGpu]:
    """Yield each unhealthy GPU once, the worst first; ``gpus`` are indexes and ``models`` models by uuid."""
    cases: dict[_Case, dict[_Reason, None]] = defaultdict(dict)
    for name, sign in _SIGNS.items():
        for sample in answers.samples(name):
            scraped, reason = targets.of(sample), sign.reason(sample)
            if scraped is not None and reason is not None:
                cases[_Case(scraped, sample.labels.get("uuid", ""))][reason] = None
    sick = [_sick(case, list(reasons), gpus, models) for case, reasons in cases.items()]
    yield from sorted(sick, key=lambda gpu: (gpu.severity, gpu.node, gpu.gpu, gpu.uuid))


def _sick(case: _Case, reasons: list[_Reason], gpus: Mapping[str, str], models: Mapping[str, str]) -> SickGpu:
    reasons.sort(key=lambda reason: reason[0])
    return SickGpu(
        node=case.scraped.key,
        uuid=case.uuid,
        gpu=gpus.get(case.uuid, ""),
        model=models.get(case.uuid, ""),
        severity=reasons[0][0],
        reasons=tuple(text for _, text in reasons),
    )


IDLE_LISTED = 50
"""Number of idle holders listed in each order."""

_LONGEST, _MEMORY, _COMPUTE = "longest idle", "idle with most memory", "idle with most compute"
_COUNT, _SUM, _COMPUTE_SUM = "number of idle holders", "memory of idle holders", "compute of idle holders"
_CONTAINER = "gpuslice_container_"
DETAILS = ("memory_entitled_bytes", "memory_used_bytes", "compute_entitled_ratio", "info")
"""The families with what an idle holder holds."""

_LAST = "last_active_timestamp_seconds"


def questions(narrow: Narrow, idle_after: float) -> dict[str, str]:
    """Return the queries for idle holders: their count, and the largest in each order."""
    rows = narrow.idle(idle_after)
    memory, compute = (
        narrow.idle(idle_after, f"{_CONTAINER}{name}")
        for name in ("memory_used_bytes", "compute_entitled_ratio")
    )
    return {
        _COUNT: f"count({rows})",
        _SUM: f"sum({memory})",
        _COMPUTE_SUM: f"sum({compute})",
        _LONGEST: f"bottomk({IDLE_LISTED}, {rows})",
        _MEMORY: f"topk({IDLE_LISTED}, {memory})",
        _COMPUTE: f"topk({IDLE_LISTED}, {compute})",
    }


def listed(answers: Answers) -> list[Sample] | None:
    """Return a sample of each holder to be listed; None if the queries failed."""
    lists = (_LONGEST, _MEMORY, _COMPUTE)
    samples = [sample for name in lists for sample in answers.samples(name)]
    if not samples and any(name in answers.problems for name in lists):
        return None
    return list({holder_key(sample): sample for sample in samples}.values())


def detail_questions(samples: Sequence[Sample]) -> dict[str, str]:
    """Return the queries for what these hold, and since when they are idle; empty if there are none."""
    uuids = [sample.labels.get("uuid", "") for sample in samples]
    if not uuids:
        return {}
    return {name: of(f"{_CONTAINER}{name}", "uuid", uuids) for name in (*DETAILS, _LAST)}


def idle_totals(answers: Answers) -> IdleTotals:
    """Return the totals of all idle holders, also of those not listed; None for a sum without any value."""
    holders = None if _COUNT in answers.problems else int(_single(answers, _COUNT) or 0)
    nothing = 0.0 if holders == 0 else None
    sums = (_single(answers, name) for name in (_SUM, _COMPUTE_SUM))
    return IdleTotals(holders, *(nothing if value is None else value for value in sums))


def read_idle(
    samples: Sequence[Sample], details: Answers, targets: Targets, gpus: Mapping[str, str], at: float
) -> Iterator[IdleHolder]:
    """Yield the idle holders; ``gpus`` are indexes by uuid, ``at`` is the Unix time of all answers."""
    tables = {
        name: {holder_key(sample): sample for sample in details.samples(name)} for name in (*DETAILS, _LAST)
    }
    for sample in samples:
        scraped, key = targets.of(sample), holder_key(sample)
        last = tables[_LAST].get(key)
        if scraped is None:
            continue
        uuid = sample.labels.get("uuid", "")
        info = tables["info"].get(key)
        values = [row.value if (row := tables[name].get(key)) else None for name in DETAILS[:3]]
        yield IdleHolder(
            node=scraped.key,
            holder=holder_of(sample),
            uuid=uuid,
            mig_uuid=sample.labels.get("mig_uuid", ""),
            gpu=gpus.get(uuid, ""),
            resource=info.labels.get("resource", "") if info else "",
            seconds=None if last is None else at - last.value,
            memory_held=values[0],
            memory_used=values[1],
            compute_held=values[2],
        )


def _single(answers: Answers, name: str) -> float | None:
    """Return the only value of an answer, None if there is none."""
    return next((sample.value for sample in answers.samples(name)), None)
