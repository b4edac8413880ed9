"""The doctor's checks of what is known of pods beyond their names, and of what is lost without it."""

import re
from collections.abc import Iterator
from typing import Final

from exporter.assembly import Evidence
from exporter.doctor.findings import Finding
from exporter.doctor.findings import objects as found
from exporter.model import Snapshot
from exporter.report import Check

# What the reasons have in common, the one that explains the others first.
_CAUSES: Final[tuple[tuple[re.Pattern[str], Finding], ...]] = (
    (re.compile(r"client cannot be imported"), found.CLIENT_NOT_INSTALLED),
    (re.compile(r"answers 401 "), found.API_TOKEN_REFUSED),
    (re.compile(r"answers 403 "), found.API_FORBIDDEN),
    (
        re.compile(r"Service (?:host/port|token|certification)|kube-?config|No such file", re.IGNORECASE),
        found.API_NOT_CONFIGURED,
    ),
)


def object_checks(snapshot: Snapshot, evidence: Evidence) -> Iterator[Check]:
    """Judge the source of annotations, the Kubernetes API where it is asked, and systems that need either."""
    yield _objects(evidence)
    if evidence.unfollowed:
        said = "; ".join(evidence.unfollowed)
        causes = (cause for pattern, cause in _CAUSES if pattern.search(said))
        yield next(causes, found.API_UNREACHABLE).check("Kubernetes API", said)
    for system, lost in sorted(snapshot.node.blind.items()):
        text = "shares GPUs here by annotations of pods, which are not known"
        yield found.SHARING_BLIND.check(f"sharing by {system}", text, lost=lost)


def _objects(evidence: Evidence) -> Check:
    name = "pod objects"
    pods = (evidence.workloads.pods if evidence.workloads is not None else None) or {}
    bare = sum(pod.details is None for pod in pods.values())
    if not evidence.objects_from:
        return found.POD_OBJECTS_UNKNOWN.check(name, "labels and annotations of pods are not known")
    missing = f", but not of {bare} of {len(pods)} pods" if bare else ""
    return Check(name, "OK", f"labels and annotations from {evidence.objects_from}{missing}")
