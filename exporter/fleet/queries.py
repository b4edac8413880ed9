"""The queries for Prometheus, sent separately: one that fails affects only the values that need it."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from exporter.fleet.cluster_model import Target
from exporter.prometheus import Prometheus, PrometheusError, Sample

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"
# A target that is gone for longer than this counts as removed.
SEEN = "15m"
# A target that no longer answers is remembered by its values at one of these times ago.
REMEMBERED = ("1h", "3h", "12h", "1d", "3d", "7d")

SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
NODE_INFO = "gpuslice_node_info"
CLOCK = "vector(time())"

NEWEST = f"topk by (cluster, node) (1, {SNAPSHOT})"
"""The target with the newest data of each node."""

_OLD = " or ".join(f"{NODE_INFO} offset {ago}" for ago in REMEMBERED)
KNOWN = (
    f"max by ({TARGET}, node) (last_over_time({NODE_INFO}[{SEEN}]) or (({_OLD}) and on ({TARGET}) (up == 0)))"
)
"""The targets that answer, did so recently, or are scraped without success."""

LAST = f"max by ({TARGET}) (last_over_time({SNAPSHOT}[{SEEN}]))"
UP = f"max by ({TARGET}) (up and on ({TARGET}) {KNOWN})"

ALL = f"count({SNAPSHOT})"
"""The number of targets that report nodes; a node may have several."""

FOREIGN = f"(gpuslice_gpu_info unless on ({DEVICE}) gpuslice_gpu_up)"
"""Devices of other vendors, with known holders only: they do not count in sums."""

_CONTAINER = "gpuslice_container_"
ROWS = f"{_CONTAINER}info"
UNHELD = f"({_CONTAINER}slices == 0)"
"""The rows of containers that use a device and hold nothing of it."""

ANY_FOREIGN = f"count({FOREIGN})"

SHARES = {
    f"{quantity}_{what}": expression
    for quantity, unit in (("memory", "bytes"), ("compute", "ratio"))
    for what, expression in (
        ("held", f"{_CONTAINER}{quantity}_entitled_{unit}"),
        ("used", f"{_CONTAINER}{quantity}_used_{unit}"),
        (
            "wasted",
            f"clamp_min({_CONTAINER}{quantity}_entitled_{unit} - {_CONTAINER}{quantity}_used_{unit}, 0)",
        ),
    )
}
"""What containers hold, use and waste, by container; without a row if a part is unknown."""

COUNTED = SHARES | {
    # The same rows, without arithmetic on each of them.
    f"{quantity}_wasted": f"({SHARES[f'{quantity}_held']} and {SHARES[f'{quantity}_used']})"
    for quantity in ("memory", "compute")
}
"""The rows to count for the number of containers with known values."""


class Narrow(NamedTuple):
    """What sums must leave out. Both filters are expensive, and most clusters need neither."""

    unread: bool = True  # there are devices of other vendors
    several: bool = True  # several targets report the same node

    def own(self, rows: str) -> str:
        """Return the expression without devices of other vendors."""
        return f"({rows} unless on ({DEVICE}) {FOREIGN})" if self.unread else f"({rows})"

    def newest(self, rows: str) -> str:
        """Return the expression for the newest target of each node only."""
        return f"({rows} and on ({TARGET}) {NEWEST})" if self.several else f"({rows})"

    def by_namespace(self, function: str, rows: str) -> str:
        """Return a sum or count by namespace of the cluster."""
        return f"{function} by (namespace) ({self.newest(self.own(rows))})"

    def idle(self, idle_after: float, rows: str = "") -> str:
        """Return an expression for holders that have not computed on their device for ``idle_after`` seconds.

        Without ``rows`` its values are the times of their last compute. Holders whose compute is not
        measured are not idle.
        """
        quiet = f"({_CONTAINER}last_active_timestamp_seconds <= (time() - {idle_after:g}))"
        # The state is that of the last poll, however old it is.
        still = f"({_CONTAINER}compute_used_ratio == 0)"
        # The most selective operand comes first, because each "and" costs time by its number of rows.
        idle = f"{rows} and {still} and {quiet}" if rows else f"{quiet} and {still}"
        return self.newest(self.own(f"({idle} unless {UNHELD})"))


def by_target(function: str, rows: str) -> str:
    """Return a sum or count by target."""
    return f"{function} by ({TARGET}) ({rows})"


def by_device(function: str, rows: str) -> str:
    """Return a sum or count by GPU and target."""
    return f"{function} by ({DEVICE}) ({rows})"


def gpu_seconds(what: str, window: float) -> str:
    """Return GPU-seconds ``held``, ``used``, or ``measured`` (held while use is known) by namespace.

    Values of one job are added up, because a replaced pod of the exporter was another target. Values of
    several jobs are the same seconds, reported twice, so the largest counts.
    """
    held, used = (
        f"increase({_CONTAINER}{name}_gpu_seconds_total[{window:.0f}s])" for name in ("entitled", "used")
    )
    rows = {"held": held, "used": used, "measured": f"({held} and {used})"}[what]
    entity = "cluster, namespace, pod, container, uuid, mig_uuid"
    return f"sum by (namespace) (max by ({entity}) (sum by (job, {entity}) ({rows})))"


def of(metric: str, label: str, values: Iterable[str]) -> str:
    """Return a selector of a metric with one of some values of a label."""
    pattern = "|".join(re.escape(value) for value in sorted(set(values)))
    return f"{metric}{{{label}=~{json.dumps(pattern)}}}"


# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE = 4

Figures: TypeAlias = Mapping[Target, float]


class Answers:
    """Answers to queries by name; ``problems`` are the failed queries and their errors."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]], problems: Mapping[str, str]) -> None:
        self._samples = samples
        self.problems = problems

    def samples(self, name: str) -> Sequence[Sample]:
        """Return an answer, empty if its query failed."""
        return self._samples.get(name, ())

    def figures(self, name: str) -> Figures | None:
        """Return an answer by target, None if its query failed."""
        samples = self._samples.get(name)
        return None if samples is None else {target_of(sample): sample.value for sample in samples}


def target_of(sample: Sample) -> Target:
    """Return the target of a sample."""
    return Target(*(sample.labels.get(name, "") for name in Target._fields))


async def ask(prometheus: Prometheus, expressions: Mapping[str, str], at: float) -> Answers:
    """Return the values of expressions at one Unix time."""
    samples: dict[str, list[Sample]] = {}
    problems: dict[str, str] = {}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, expression: str) -> None:
        async with turns:
            try:
                samples[name] = await prometheus.query(expression, at)
            except PrometheusError as error:
                problems[name] = str(error)

    async with asyncio.TaskGroup() as group:
        for name, expression in expressions.items():
            group.create_task(one(name, expression))
    return Answers(samples, problems)
