"""Reading a cluster: all queries at the same time, so that the answers are consistent."""

from exporter.concurrency import in_thread
from exporter.fleet import attention, nodes, queries, targets, tenants
from exporter.fleet.cluster_model import Fleet
from exporter.fleet.queries import ask
from exporter.fleet.targets import Targets, read_targets
from exporter.prometheus import Prometheus, PrometheusError


class MissingSeriesError(Exception):
    """Prometheus answers, but has no series of this exporter, or none of its recording rules."""


async def read_clock(prometheus: Prometheus) -> float:
    """Return the Unix time of Prometheus, at which all other queries are evaluated."""
    answer = await prometheus.query(queries.CLOCK)
    if not answer:
        raise PrometheusError("Prometheus does not return its time")
    return answer[0].value


async def read_targets_at(prometheus: Prometheus, at: float) -> Targets:
    """Return the nodes.

    Raises PrometheusError if a query fails, and MissingSeriesError if there are no nodes, or no records.
    """
    answers = await ask(prometheus, targets.QUESTIONS, at)
    more = await ask(prometheus, targets.more_questions(answers), at)
    for name, why in (answers.problems | more.problems).items():
        raise PrometheusError(f"{name}: {why}")
    scraped = read_targets(answers, more, at)
    if not scraped.nodes:
        raise MissingSeriesError(
            "this Prometheus has no series of gpuslice-exporter: does it scrape the nodes?"
        )
    if not answers.samples("records") and not all(node.silent for node in scraped.nodes):
        raise MissingSeriesError(
            "this Prometheus has no records of gpuslice-exporter: load alerts/rules/gpuslice-recording.yaml "
            "(see docs/recording-rules.md); new rules have records after a minute"
        )
    return scraped


async def read_fleet(prometheus: Prometheus, window: float) -> Fleet:
    """Return the cluster, with GPU-hours of the last ``window`` seconds.

    Raises PrometheusError if nothing can be read, and MissingSeriesError if there are no nodes or no
    records. A query that fails otherwise is among the problems.
    """
    at = await read_clock(prometheus)
    scraped = await read_targets_at(prometheus, at)
    answers = await ask(prometheus, nodes.QUESTIONS | tenants.questions(window) | attention.QUESTIONS, at)
    details = await ask(prometheus, attention.detail_questions(answers), at)

    def put_together() -> Fleet:
        return Fleet(
            at=at,
            window=window,
            nodes=tuple(nodes.read_nodes(answers, scraped)),
            namespaces=tenants.read_namespaces(answers),
            idle=attention.read_idle(answers, details, scraped),
            idle_totals=attention.idle_totals(answers),
            sick=tuple(attention.read_sick(answers, details, scraped)),
            all_sick=attention.is_whole(answers),
            problems=tuple({**answers.problems, **details.problems}.items()),
        )

    # For a large cluster this is too much work for the event loop.
    return await in_thread(put_together)
