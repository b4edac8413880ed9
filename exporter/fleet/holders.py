"""The holders that are idle: those that an operator talks to first."""

from collections.abc import Iterator, Mapping, Sequence

from exporter.fleet.asking import Answers, target_of
from exporter.fleet.expressions import Narrow, of
from exporter.fleet.model import IdleHolder, IdleTotals
from exporter.fleet.targets import Targets, holder_of
from exporter.prometheus import Sample

LISTED = 50
"""How many are listed in each order."""

_LONGEST, _MEMORY, _COMPUTE = "longest idle", "idle with most memory", "idle with most compute"
_COUNT, _SUM, _COMPUTE_SUM = "number of idle holders", "memory of idle holders", "compute of idle holders"
_CONTAINER = "gpuslice_container_"
DETAILS = ("memory_entitled_bytes", "memory_used_bytes", "compute_entitled_ratio", "info")
"""The families that tell what an idle holder holds."""

_LAST = "last_active_timestamp_seconds"


def questions(narrow: Narrow, idle_after: float) -> dict[str, str]:
    """Ask who has been idle for so many seconds: how many, and the greatest in each order."""
    rows = narrow.idle(idle_after)
    memory, compute = (
        narrow.idle(idle_after, f"{_CONTAINER}{name}")
        for name in ("memory_used_bytes", "compute_entitled_ratio")
    )
    return {
        _COUNT: f"count({rows})",
        _SUM: f"sum({memory})",
        _COMPUTE_SUM: f"sum({compute})",
        _LONGEST: f"bottomk({LISTED}, {rows})",
        _MEMORY: f"topk({LISTED}, {memory})",
        _COMPUTE: f"topk({LISTED}, {compute})",
    }


def found(answers: Answers) -> list[Sample] | None:
    """Give a sample of each holder that is to be listed; None where nobody could be found."""
    lists = (_LONGEST, _MEMORY, _COMPUTE)
    samples = [sample for name in lists for sample in answers.samples(name)]
    if not samples and any(name in answers.problems for name in lists):
        return None
    return list({_identity(sample): sample for sample in samples}.values())


def detail_questions(samples: Sequence[Sample]) -> dict[str, str]:
    """Ask what these hold, and since when they are idle; nothing where there are none."""
    uuids = [sample.labels.get("uuid", "") for sample in samples]
    if not uuids:
        return {}
    return {name: of(f"{_CONTAINER}{name}", "uuid", uuids) for name in (*DETAILS, _LAST)}


def idle_totals(answers: Answers) -> IdleTotals:
    """Add all up, also those that are not listed; a sum over holders of whom none tells it is not known."""
    holders = None if _COUNT in answers.problems else int(_single(answers, _COUNT) or 0)
    nothing = 0.0 if holders == 0 else None
    sums = (_single(answers, name) for name in (_SUM, _COMPUTE_SUM))
    return IdleTotals(holders, *(nothing if value is None else value for value in sums))


def read_idle(
    samples: Sequence[Sample], details: Answers, targets: Targets, gpus: Mapping[str, str], at: float
) -> Iterator[IdleHolder]:
    """Describe idle holders; ``gpus`` are indexes by uuid, ``at`` the Unix time of all answers."""
    tables = {
        name: {_identity(sample): sample for sample in details.samples(name)} for name in (*DETAILS, _LAST)
    }
    for sample in samples:
        scraped, key = targets.of(sample), _identity(sample)
        last = tables[_LAST].get(key)
        if scraped is None:
            continue
        uuid = sample.labels.get("uuid", "")
        info = tables["info"].get(key)
        values = [row.value if (row := tables[name].get(key)) else None for name in DETAILS[:3]]
        yield IdleHolder(
            node=scraped.key,
            holder=holder_of(sample, scraped.own),
            uuid=uuid,
            mig_uuid=sample.labels.get("mig_uuid", ""),
            gpu=gpus.get(uuid, ""),
            resource=info.labels.get("resource", "") if info else "",
            seconds=None if last is None else at - last.value,
            memory_held=values[0],
            memory_used=values[1],
            compute_held=values[2],
        )


def _identity(sample: Sample) -> tuple[str, ...]:
    names = ("namespace", "pod", "container")
    labels = (*names, *(f"exported_{name}" for name in names), "uuid", "mig_uuid")
    return (*target_of(sample), *(sample.labels.get(name, "") for name in labels))


def _single(answers: Answers, name: str) -> float | None:
    """Give the only figure of an answer, None where there is none."""
    return next((sample.value for sample in answers.samples(name)), None)
