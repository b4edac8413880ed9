"""Reading a cluster: all queries at the same time, so that the answers are consistent."""

from collections.abc import Mapping
from typing import NamedTuple

from exporter.concurrency import in_thread
from exporter.fleet import attention, nodes, queries, targets, tenants
from exporter.fleet.cluster_model import Fleet
from exporter.fleet.queries import Answers, Narrow, ask
from exporter.fleet.targets import Targets, narrow_of, read_targets
from exporter.prometheus import Prometheus, PrometheusError

NO_HOURS = Answers({}, {})
_INFO = "names of GPUs"


class Aim(NamedTuple):
    """Parameters: holders idle for ``idle_after`` seconds, and GPU-hours of the last ``window`` seconds."""

    idle_after: float
    window: float


class NoExporterError(Exception):
    """Prometheus answers, but has no series of this exporter."""


async def read_clock(prometheus: Prometheus) -> float:
    """Return the Unix time of Prometheus, at which all other queries are evaluated."""
    answer = await prometheus.query(queries.CLOCK)
    if not answer:
        raise PrometheusError("Prometheus does not return its time")
    return answer[0].value


async def read_targets_at(prometheus: Prometheus, at: float) -> tuple[Targets, Narrow]:
    """Return the nodes, and what sums must leave out.

    Raises PrometheusError if the query fails, and NoExporterError if there are no nodes.
    """
    answers = await ask(prometheus, targets.QUESTIONS, at)
    for name in targets.QUESTIONS:
        if name in answers.problems:
            raise PrometheusError(f"{name}: {answers.problems[name]}")
    scraped = read_targets(answers, at)
    if not scraped.nodes:
        raise NoExporterError("this Prometheus has no series of gpuslice-exporter: does it scrape the nodes?")
    return scraped, narrow_of(answers)


async def read_hours(prometheus: Prometheus, at: float, window: float) -> Answers:
    """Return the answers for GPU-hours, which are expensive for Prometheus."""
    return await ask(prometheus, tenants.hours_questions(window), at)


async def read_fleet(prometheus: Prometheus, aim: Aim, hours: Answers = NO_HOURS) -> Fleet:
    """Return the cluster; ``hours`` are from read_hours, and may be older.

    Raises PrometheusError if nothing can be read, and NoExporterError if there are no nodes. A query
    that fails otherwise is among the problems.
    """
    at = await read_clock(prometheus)
    scraped, narrow = await read_targets_at(prometheus, at)
    questions = (
        nodes.questions(narrow)
        | tenants.questions(narrow)
        | attention.questions(narrow, aim.idle_after)
        | attention.QUESTIONS
    )
    answers = await ask(prometheus, questions, at)
    listed = attention.listed(answers)
    idle = listed or []
    uuids = attention.sick_uuids(answers) | {sample.labels.get("uuid", "") for sample in idle}
    names = {_INFO: queries.of("gpuslice_gpu_info", "uuid", uuids)} if uuids else {}
    details = await ask(prometheus, attention.detail_questions(idle) | names, at)
    gpus, models = _gpu_names(details)

    def put_together() -> Fleet:
        return Fleet(
            at=at,
            window=aim.window,
            nodes=tuple(nodes.read_nodes(answers, scraped)),
            namespaces=tenants.read_namespaces(answers, hours),
            idle=None if listed is None else tuple(attention.read_idle(idle, details, scraped, gpus, at)),
            idle_totals=attention.idle_totals(answers),
            sick=tuple(attention.read_sick(answers, scraped, gpus, models)),
            all_sick=attention.is_whole(answers),
            problems=tuple({**answers.problems, **details.problems, **hours.problems}.items()),
        )

    # For a large cluster this is too much work for the event loop.
    return await in_thread(put_together)


def _gpu_names(details: Answers) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the indexes and the models of GPUs by uuid."""
    infos = [sample.labels for sample in details.samples(_INFO)]
    return (
        {labels["uuid"]: labels.get("gpu", "") for labels in infos},
        {labels["uuid"]: labels.get("model", "") for labels in infos},
    )
