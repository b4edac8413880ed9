"""The pods of the rows, with those of their labels that the settings let through."""

import re
from collections.abc import Iterable, Sequence

from exporter.model import ContainerRow, PodIdentity, PodRow, Workloads


def pod_rows(
    containers: Iterable[ContainerRow], workloads: Workloads, patterns: Sequence[re.Pattern[str]]
) -> tuple[PodRow, ...]:
    """Return a row for each pod of a container row that has a label whose whole name fits a pattern.

    Rows are sorted. A pod whose labels are not known has none.
    """
    if not patterns:
        return ()
    uids = {row.pod_uid for row in containers}
    pods = (pod for uid, pod in (workloads.pods or {}).items() if uid in uids)
    rows = (_row(pod, patterns) for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))
    return tuple(row for row in rows if row.labels)


def _row(pod: PodIdentity, patterns: Sequence[re.Pattern[str]]) -> PodRow:
    labels = pod.details.labels if pod.details is not None else {}
    let_through = (
        (name, value)
        for name, value in sorted(labels.items())
        if any(each.fullmatch(name) for each in patterns)
    )
    return PodRow(namespace=pod.namespace, name=pod.name, uid=pod.uid, labels=tuple(let_through))
