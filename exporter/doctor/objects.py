"""The doctor's checks of what is known of pods beyond their names, and of what is lost without it."""

from collections.abc import Iterator

from exporter.assembly import Evidence
from exporter.model import Snapshot
from exporter.report import Check

OBJECTS_REMEDY = (
    "mount the kubelet's Pods API (Kubernetes 1.37 or later: deploy/components/pods-api), or let the exporter"
    " ask the API server: deploy/components/kubernetes-api"
)
API_REMEDY = "see docs/deploy.md: the objects of pods; or set --kubernetes-api off"


def object_checks(snapshot: Snapshot, evidence: Evidence) -> Iterator[Check]:
    """Judge the source of annotations, the Kubernetes API where it is asked, and systems that need either."""
    yield _objects(evidence)
    if evidence.unfollowed:
        lost = "annotations and labels of this node or of its pods"
        yield Check("Kubernetes API", "degraded", "; ".join(evidence.unfollowed), lost, API_REMEDY)
    for system, lost in sorted(snapshot.node.blind.items()):
        found = "shares GPUs here by annotations of pods, which are not known"
        yield Check(f"sharing by {system}", "degraded", found, lost, OBJECTS_REMEDY)


def _objects(evidence: Evidence) -> Check:
    name = "pod objects"
    pods = (evidence.workloads.pods if evidence.workloads is not None else None) or {}
    bare = sum(pod.details is None for pod in pods.values())
    if not evidence.objects_from:
        return Check(name, "absent", "labels and annotations of pods are not known")
    missing = f", but not of {bare} of {len(pods)} pods" if bare else ""
    return Check(name, "OK", f"labels and annotations from {evidence.objects_from}{missing}")
