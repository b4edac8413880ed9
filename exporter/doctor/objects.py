"""Findings and checks of pod objects, and of the files of other programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from exporter.config.settings import Settings
from exporter.doctor.report import Check, Finding
from exporter.formats.wording import plural
from exporter.model import CollectorHealth, FileProblem, Snapshot
from exporter.model.poll_result import JOBS, SHARING, PollResult

_OF_API: Final = "annotations and labels of this node or of its pods"

POD_OBJECTS_UNKNOWN: Final = Finding("pod-objects-unknown", "absent")
CLIENT_NOT_INSTALLED: Final = Finding(
    "client-not-installed",
    "degraded",
    _OF_API,
    "build the image with EXTRAS=kubernetes (docs/deploy.md: the objects of pods), or set"
    " --kubernetes-api off",
)
API_FORBIDDEN: Final = Finding(
    "api-forbidden",
    "degraded",
    _OF_API,
    "bind the role of deploy/components/kubernetes-api to the service account, or set --kubernetes-api off",
)
API_TOKEN_REFUSED: Final = Finding(
    "api-token-refused",
    "degraded",
    _OF_API,
    "delete this pod to get a new token; outside a cluster renew the token in --kubeconfig",
)
API_NOT_CONFIGURED: Final = Finding(
    "api-not-configured",
    "degraded",
    _OF_API,
    "give the pod a token (automountServiceAccountToken: true, as deploy/components/kubernetes-api does), "
    "set --kubeconfig, or set --kubernetes-api off",
)
API_UNREACHABLE: Final = Finding(
    "api-unreachable",
    "degraded",
    _OF_API,
    "check the pod's way to the API server: address, DNS and NetworkPolicies; or set --kubernetes-api off",
)
PODS_UNREADABLE: Final = Finding(
    "pod-annotations-unreadable",
    "degraded",
    remedy="mount the kubelet's Pods API (Kubernetes 1.37 or later: deploy/components/pods-api), or read "
    "pods from the API server: deploy/components/kubernetes-api",
)
FILES_NOT_HERE: Final = Finding("files-not-here", "absent")
FILES_UNREADABLE: Final = Finding(
    "files-unreadable",
    "degraded",
    "the limits and usage in these files",
    "make the files readable; a damaged file is replaced when its container restarts",
)
FILES_FAIL: Final = Finding(
    "files-fail",
    "degraded",
    "limits and usage that sharing systems keep in files",
    "check for a hung file system on the node, and check the exporter's log",
)
HOST_DEVICES_FAIL: Final = Finding(
    "host-devices-fail",
    "degraded",
    "the GPU of each device for virtual machines",
    "check whether /sys is readable, and check the exporter's log",
)
JOBS_UNREADABLE: Final = Finding(
    "jobs-unreadable",
    "degraded",
    "the batch system's jobs on each device",
    "mount the directory set by --job-mapping-dir, and make its files readable",
)


# Patterns of error messages, the root cause first.
_CAUSES: Final[tuple[tuple[re.Pattern[str], Finding], ...]] = (
    (re.compile(r"client cannot be imported"), CLIENT_NOT_INSTALLED),
    (re.compile(r"answers 401 "), API_TOKEN_REFUSED),
    (re.compile(r"answers 403 "), API_FORBIDDEN),
    (
        re.compile(r"Service (?:host/port|token|certification)|kube-?config|No such file", re.IGNORECASE),
        API_NOT_CONFIGURED,
    ),
)


def object_checks(snapshot: Snapshot, evidence: PollResult) -> Iterator[Check]:
    """Return the checks of pod annotations, of the Kubernetes API, and of the systems that need them."""
    yield _objects(evidence)
    if evidence.unfollowed:
        failures = "; ".join(evidence.unfollowed)
        causes = (cause for pattern, cause in _CAUSES if pattern.search(failures))
        yield next(causes, API_UNREACHABLE).check("Kubernetes API", failures)
    for system, lost in sorted(snapshot.node.blind.items()):
        text = "shares GPUs here through pod annotations, which are not readable"
        yield PODS_UNREADABLE.check(f"sharing by {system}", text, lost=lost)


def _objects(evidence: PollResult) -> Check:
    name = "pod objects"
    pods = (evidence.workloads.pods if evidence.workloads is not None else None) or {}
    bare = sum(pod.details is None for pod in pods.values())
    if not evidence.objects_from:
        return POD_OBJECTS_UNKNOWN.check(name, "pod labels and annotations are not read")
    missing = f", missing for {bare} of {len(pods)} pods" if bare else ""
    return Check(name, "OK", f"labels and annotations from {evidence.objects_from}{missing}")


class _Place(NamedTuple):
    """The files of a sharing system."""

    setting: str
    """Setting of their root directory."""
    component: str
    """Deploy component that mounts it."""
    sharing: frozenset[str]
    """Sharing modes of containers that have such files."""


_PLACES: Final[Mapping[str, _Place]] = {
    "hami": _Place("hami_root", "hami", frozenset({"hami", "volcano-vgpu"})),
    "hami-ascend": _Place("hami_vnpu_root", "hami-vnpu", frozenset({"hami-ascend"})),
    "gpu-manager": _Place("vcuda_root", "gpu-manager", frozenset({"gpu-manager"})),
    "vgpu-manager": _Place("vgpu_manager_root", "vgpu-manager", frozenset({"vgpu-manager"})),
    "runai": _Place("runai_root", "runai", frozenset({"runai"})),
}


def file_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Return the checks of other programs' files; none for files that no program writes here."""
    yield from _sharing(snapshot, health, evidence, settings)
    devices = health.get("host_devices")
    if devices is not None and not devices.success:
        yield HOST_DEVICES_FAIL.check("devices for virtual machines", devices.message)
    if JOBS in health:
        yield _jobs(health[JOBS], evidence)


def _sharing(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    if not health[SHARING].success:
        yield FILES_FAIL.check("files of sharing systems", health[SHARING].message)
        return
    for system, files in sorted(evidence.files.items()):
        name = f"files of {system}"
        if files.problems:
            yield _unreadable(FILES_UNREADABLE, name, files.problems)
        elif files.containers:
            yield Check(name, "OK", plural(len(files.containers), "container"))
        elif system in _PLACES and _is_used(snapshot, _PLACES[system]):
            place = _PLACES[system]
            text = (
                f"{getattr(settings, place.setting)} has none: it is not mounted "
                f"(deploy/components/{place.component}), or no container has used its GPU yet"
            )
            yield FILES_NOT_HERE.check(name, text)


def _is_used(snapshot: Snapshot, place: _Place) -> bool:
    return any(row.sharing in place.sharing and not row.device.mig_uuid for row in snapshot.containers)


def _jobs(health: CollectorHealth, evidence: PollResult) -> Check:
    name = "jobs of a batch system"
    if not health.success or evidence.jobs is None:
        return JOBS_UNREADABLE.check(name, health.message)
    if evidence.jobs.problems:
        return _unreadable(JOBS_UNREADABLE, name, evidence.jobs.problems)
    return Check(name, "OK", f"on {plural(len(evidence.jobs.jobs), 'device')}")


def _unreadable(cause: Finding, name: str, problems: Sequence[FileProblem]) -> Check:
    first = problems[0]
    more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
    return cause.check(name, f"{first.about} is skipped: {first.text}{more}")
