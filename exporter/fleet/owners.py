"""Owners of pods as kube-state-metrics reports them: the workload that is above a replica set or a job."""

import json
import re
from collections.abc import Mapping, Sequence

from exporter.fleet.queries import Answers, earlier

# The controller of cron jobs names a job by its minute.
_SCHEDULED = re.compile(r"(.+)-[0-9]{8}")
# Kinds of owners that are no workload.
_NO_WORKLOADS = frozenset({"", "<none>", "Node"})
_ABOVE = {
    "deployments": ("kube_replicaset_owner", "ReplicaSet", "replicaset", "Deployment"),
    "cron_jobs": ("kube_job_owner", "Job", "job_name", "CronJob"),
}


def owner_questions(moments: Sequence[float] = ()) -> dict[str, str]:
    """Return the queries for what owns replica sets and jobs.

    Also of those that were there at one of some times ago, or at one of these Unix times.
    """
    return {
        name: _owners(series, label, kind_above, moments)
        for name, (series, _, label, kind_above) in _ABOVE.items()
    }


def _owners(series: str, label: str, kind: str, moments: Sequence[float]) -> str:
    selected = f"{series}{{owner_kind={json.dumps(kind)}}}"
    then = "".join(f" or {selected} @ {moment:.0f}" for moment in moments)
    return f"group by (cluster, namespace, {label}, owner_name) ({selected} or {earlier(selected)}{then})"


def owners_above(answers: Answers) -> dict[tuple[str, ...], tuple[str, str]]:
    """Return kind and name of the owner of each replica set and job, by kind, cluster, namespace and name."""
    return {
        (kind, *sample.texts("cluster", "namespace", label)): (kind_above, sample.text("owner_name"))
        for name, (_, kind, label, kind_above) in _ABOVE.items()
        for sample in answers.samples(name)
    }


def workload_of(
    above: Mapping[tuple[str, ...], tuple[str, str]], cluster: str, namespace: str, kind: str, name: str
) -> tuple[str, str] | None:
    """Return kind and name of the workload by a pod's owner; None if a pod with that owner is its own."""
    owner = above.get((kind, cluster, namespace, name))
    if owner is not None:
        return owner
    scheduled = _SCHEDULED.fullmatch(name) if kind == "Job" else None
    if scheduled is not None:
        return "CronJob", scheduled[1]
    return None if kind in _NO_WORKLOADS else (kind, name)
