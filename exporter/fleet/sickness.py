"""The GPUs that somebody should look at, and why."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from exporter.fleet.asking import Answers
from exporter.fleet.model import SickGpu
from exporter.fleet.targets import Scraped, Targets
from exporter.formats_words import duration
from exporter.prometheus import Sample
from exporter.xids import explain

# More than this is no list of GPUs any more.
LISTED = 200
# An XID is told for so long, as on the page of its node.
RECENT_SECONDS = 3600
_GPU = "gpuslice_gpu_"
_HARMLESS = frozenset({"notice", "application"})

_Severity = Literal["bad", "note"]
_Reason = tuple[_Severity, str]


class _Sign(NamedTuple):
    """A sign of sickness: the rows where it is there, and what to say of one."""

    rows: str
    reason: Callable[[Sample], _Reason | None]


def _said(severity: _Severity, text: str) -> Callable[[Sample], _Reason]:
    return lambda _: (severity, text)


def _recovery(sample: Sample) -> _Reason:
    return "bad", f"asks for a recovery: {sample.labels.get('action', '').replace('_', ' ')}"


def _uncorrected(sample: Sample) -> _Reason:
    errors = f"{sample.value:.0f} uncorrected memory error{'' if sample.value == 1 else 's'}"
    return "bad", f"{errors} since the driver was loaded"


def _xid(sample: Sample) -> _Reason | None:
    code = sample.labels.get("xid", "")
    known = explain(int(code)) if code.isdecimal() else None
    if known is None or known.kind in _HARMLESS:
        return None
    return "bad", f"XID {known.code} {duration(sample.value)} ago: {known.meaning}"


_SIGNS = {
    "GPUs that do not answer": _Sign(
        f"({_GPU}up == 0 unless on (cluster, job, instance) gpuslice_nvml_released == 1)",
        _said("bad", "does not answer"),
    ),
    "recovery actions": _Sign(f'{_GPU}recovery_action{{action!="none"}} == 1', _recovery),
    "row remap failures": _Sign(
        f"{_GPU}row_remap_failure == 1",
        _said("bad", "has no spare memory left: the board is to be exchanged"),
    ),
    "uncorrected errors": _Sign(
        f'{_GPU}ecc_errors_total{{severity="uncorrected",scope="volatile"}} > 0', _uncorrected
    ),
    "XID errors": _Sign(f"time() - {_GPU}xid_last_timestamp_seconds < {RECENT_SECONDS}", _xid),
    "row remaps": _Sign(
        f"{_GPU}row_remap_pending == 1", _said("note", "waits for a reset to replace a row of its memory")
    ),
    "retired pages": _Sign(
        f"{_GPU}retired_pages_pending == 1",
        _said("note", "waits for a reboot to retire a page of its memory"),
    ),
    "brakes": _Sign(
        f'{_GPU}clock_event_active{{reason=~"hardware_thermal|power_brake"}} == 1',
        _said("note", "is slowed down by its hardware"),
    ),
}

QUESTIONS = {name: f"topk({LISTED}, {sign.rows})" for name, sign in _SIGNS.items()}


class _Case(NamedTuple):
    scraped: Scraped
    uuid: str


def is_whole(answers: Answers) -> bool:
    """Tell whether every sign was asked for, and none has more GPUs than are listed."""
    return all(name not in answers.problems and len(answers.samples(name)) < LISTED for name in _SIGNS)


def sick_uuids(answers: Answers) -> set[str]:
    """Name the GPUs that have a sign."""
    return {sample.labels.get("uuid", "") for name in _SIGNS for sample in answers.samples(name)}


def read_sick(
    answers: Answers, targets: Targets, gpus: Mapping[str, str], models: Mapping[str, str]
) -> Iterator[SickGpu]:
    """Describe each sick GPU once, those first that cannot be relied on; indexes and models by uuid."""
    cases: dict[_Case, dict[_Reason, None]] = defaultdict(dict)
    for name, sign in _SIGNS.items():
        for sample in answers.samples(name):
            scraped, reason = targets.of(sample), sign.reason(sample)
            if scraped is not None and reason is not None:
                cases[_Case(scraped, sample.labels.get("uuid", ""))][reason] = None
    found = [_sick(case, list(reasons), gpus, models) for case, reasons in cases.items()]
    yield from sorted(found, key=lambda gpu: (gpu.severity, gpu.node, gpu.gpu, gpu.uuid))


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
