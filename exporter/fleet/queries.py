"""The queries for Prometheus, sent separately: one that fails affects only the values that need it.

Those for the whole cluster ask recording rules, and series of which each node has one. Those for the windows
of advice ask for seven days of each holder, in the records of an hour of
``alerts/rules/gpuslice-recording.yaml``.
"""

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from exporter.fleet import Target
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample

TARGET = "cluster, job, instance"
# A target that is gone for longer than this counts as removed.
SEEN = "15m"
# A target that no longer answers is remembered by its values at one of these times ago.
REMEMBERED = ("1h", "3h", "12h", "1d", "3d", "7d")

SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
NODE_INFO = "gpuslice_node_info"
CLOCK = "vector(time())"

NEWEST = f"topk by (cluster, node) (1, {SNAPSHOT})"
"""The target with the newest data of each node."""

KNOWN = f"max by ({TARGET}, node) (last_over_time({NODE_INFO}[{SEEN}]) or last_over_time({SNAPSHOT}[{SEEN}]))"
"""The targets that answer, or did so recently."""

LAST = f"max by ({TARGET}) (last_over_time({SNAPSHOT}[{SEEN}]))"
DOWN = f"max by ({TARGET}) (up == 0)"
"""All targets that cannot be scraped, not only exporters."""

RECORDED = "count(node:gpuslice_exporters:count)"
"""Without a value the recording rules are not loaded, or no exporter answers."""


def of(metric: str, label: str, values: Iterable[str]) -> str:
    """Return a selector of a metric with one of some values of a label."""
    pattern = "|".join(re.escape(value) for value in sorted(set(values)))
    return f"{metric}{{{label}=~{json.dumps(pattern)}}}"


def some(metric: str, label: str, values: Collection[str]) -> str:
    """Return the same, or the metric if there are too many values for a query."""
    return of(metric, label, values) if len(values) <= _MANY else metric


def former(instances: Collection[str]) -> str:
    """Return the nodes that these targets reported at one of the REMEMBERED times."""
    info = some(NODE_INFO, "instance", instances)
    return f"max by ({TARGET}, node) ({' or '.join(f'{info} offset {ago}' for ago in REMEMBERED)})"


# A regular expression of more values is slower than all series.
_MANY = 500
# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE = 4

Figures: TypeAlias = Mapping[Target, float]
Sums: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to queries by name; ``problems`` are the failed queries and their errors."""

    _samples: Mapping[str, Sequence[Sample]]
    problems: dict[str, str]

    def samples(self, name: str) -> Sequence[Sample]:
        """Return an answer, empty if its query failed."""
        return self._samples.get(name, ())

    def figures(self, name: str) -> Figures | None:
        """Return an answer by target, None if its query failed."""
        samples = self._samples.get(name)
        return None if samples is None else {target_of(sample): sample.value for sample in samples}

    def sums(self, name: str, *labels: str) -> Sums | None:
        """Return the sums of an answer by some labels, None if its query failed."""
        samples = self._samples.get(name)
        if samples is None:
            return None
        sums: dict[tuple[str, ...], float] = {}
        for sample in samples:
            key = sample.texts(*labels)
            sums[key] = sums.get(key, 0.0) + sample.value
        return sums


def target_of(sample: Sample) -> Target:
    """Return the target of a sample."""
    return Target(*sample.texts(*Target._fields))


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


DAYS = 7
LABEL_OFF = 'gpuslice_pod_labels{label_gpuslice_exporter_advice="off"}'
PROFILE_VALUES = {"memory_bytes": "memory", "multiprocessors": "multiprocessors", "instances": "instances"}
"""The ends of the series of MIG profiles, and the fields of a profile that they are."""

# The newest record of the week may be so old; a pod that is in it must have its owner and its label.
_NEWEST = "2h"
_THIS_WEEK = f"[{DAYS}d{_NEWEST}]"
# Devices, some moments of the week; what does not answer now has answered within the day.
_MOMENTS, _LATELY = f"[{DAYS}d:6h]", "[1d:6h]"
_DEVICE, _GPU, _POD = "cluster, node, uuid, mig_uuid", "cluster, node, uuid", "cluster, namespace, pod"


def of_namespace(namespace: str) -> str:
    """Return a selector of the holders of a namespace; of all if it is empty."""
    return f"{{namespace={json.dumps(namespace)}}}" if namespace else '{namespace!=""}'


def of_gpus(uuids: Collection[str], namespace: str) -> str:
    """Return a selector of the holders of some GPUs that are in other namespaces."""
    others = f', namespace!="", namespace!={json.dumps(namespace)}}}'
    return of("", "uuid", uuids).replace("}", others)


def running_question(chosen: str) -> str:
    """Return the query for the holders among what a selector chooses that hold a slice now."""
    return f"group by ({_DEVICE}, namespace, pod, container) (gpuslice_container_slices{chosen} > 0)"


def week_question(chosen: str) -> str:
    """Return the query for what a selector chooses of the last week, which is recorded every hour."""
    return f"last_over_time(container:gpuslice_last_week:value{chosen}[{_NEWEST}])"


NAMESPACES_RECORDED = f"group by (namespace) (last_over_time(container:gpuslice_last_week:value[{_NEWEST}]))"
"""The namespaces in the records for advice, with one without a name: that of the records of devices."""


def held_question(namespace: str) -> str:
    """Return the query for whether slices were held in a namespace, or in any, in some moments of a week."""
    slices = f"gpuslice_container_slices{of_namespace(namespace)}"
    return f"group(max_over_time({slices}{_MOMENTS}) > 0 or {slices} > 0)"


def namespace_known(namespace: str) -> str:
    """Return the query for whether a namespace has a holder now, or is one of the cluster.

    The latter needs kube-state-metrics.
    """
    series = ("gpuslice_container_info", "kube_namespace_created", "kube_namespace_status_phase")
    return f"group({' or '.join(f'{name}{of_namespace(namespace)}' for name in series)})"


def advice_questions() -> dict[str, str]:
    """Return the queries for devices of a week, the label that turns advice off, and owners of pods."""
    media = " or ".join(
        f"max_over_time(gpuslice_gpu_{engine}_utilization_ratio{_MOMENTS})"
        for engine in ("encoder", "decoder", "jpeg")
    )
    return {
        "opted_out": f"group by ({_POD}) (last_over_time({LABEL_OFF}{_THIS_WEEK}))",
        "owners": f"group by ({_POD}, owner_kind, owner_name) "
        f"(last_over_time(pod:gpuslice_owner:info1h{_THIS_WEEK}))",
        "deployments": _owners("kube_replicaset_owner", "replicaset", "Deployment"),
        "cron_jobs": _owners("kube_job_owner", "job_name", "CronJob"),
        "memory": f"max by ({_DEVICE}, profile) (last_over_time(gpuslice_gpu_memory_total_bytes{_LATELY})"
        f" or last_over_time(gpuslice_mig_memory_total_bytes{_LATELY}))",
        "week": week_question('{namespace=""}'),
        "media": f"max by ({_GPU}) ({media})",
        "replicas": f"max by ({_GPU}) (last_over_time(gpuslice_gpu_slices{_LATELY}))",
        **{
            value: f"min by (cluster, model, profile) "
            f"(last_over_time(gpuslice_node_mig_profile_{value}{_LATELY}))"
            for value in PROFILE_VALUES
        },
    }


def _owners(series: str, label: str, kind: str) -> str:
    """Return the owners of a kind, and those that were there at one of some times ago."""
    selected = f"{series}{{owner_kind={json.dumps(kind)}}}"
    ever = " or ".join((selected, *(f"{selected} offset {ago}" for ago in REMEMBERED)))
    return f"group by (cluster, namespace, {label}, owner_name) ({ever})"
