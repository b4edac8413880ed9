"""Findings and checks of workloads: processes, names and objects of pods, and files of other programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from exporter.config import Settings
from exporter.doctor import Check, Finding, absent, degraded, missing
from exporter.doctor.gpus import NOT_SUPPORTED
from exporter.model import CollectorHealth, Problem, ProcessPlace, Snapshot
from exporter.model.poll_result import JOBS, SHARING, PollResult
from exporter.wording import plural

_PER_CONTAINER: Final = "per-container usage on shared devices"

HOST_PID_MISSING: Final = missing(
    "host-pid-missing",
    _PER_CONTAINER,
    "set hostPID: true in the pod's spec, as deploy/base/daemonset.yaml does",
)
PROC_ROOT_WRONG: Final = missing(
    "proc-root-wrong",
    _PER_CONTAINER,
    "leave --proc-root at /proc and set hostPID: true: the driver reports pids of this process's own pid "
    "namespace",
)
PROCESSES_HIDDEN: Final = degraded(
    "processes-hidden",
    _PER_CONTAINER,
    "mount {proc} without hidepid; under systemd, without ProtectProc=invisible and ProcSubset=pid",
)
PROCESS_LISTS_FAIL: Final = degraded(
    "process-lists-fail",
    _PER_CONTAINER,
    "fix the GPU findings above; in MIG mode use deploy/components/mig-monitor",
)
PROCESS_LISTS_NOT_HERE: Final = absent("process-lists-not-here")
PROCESSES_FAIL: Final = missing(
    "processes-fail", _PER_CONTAINER, "check the load of the node and the exporter's log"
)
POD_NAMES_MISSING: Final = missing(
    "pod-names-missing",
    "the container of each process on shared devices",
    "mount the node's /var/log/pods at {logs} (hostPath, read-only), or the directory of {socket}",
)
POD_NAMES_OF_OTHERS: Final = degraded(
    "pod-names-of-others",
    "the container of each process on shared devices",
    "mount the kubelet's pod log directory of this node (podLogsDir) at {logs}",
)
CONTAINER_IDS_UNKNOWN: Final = degraded(
    "container-ids-unknown",
    "which container of a pod uses a device, if several of its containers hold it",
    "use deploy/components/pods-api (kubelet 1.37 or later), or deploy/components/kubernetes-api "
    "(--kubernetes-api on)",
)


_PROCESSES: Final = "processes"
_NAMES: Final = "pod names"


def workload_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Return the check of processes, then of pod names."""
    yield _process_view(snapshot, health[_PROCESSES], evidence, settings)
    yield _names(snapshot, health["identity"], evidence, settings)


def _process_view(
    snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings
) -> Check:
    message = health.message
    if not health.success:
        if "hostPID: true" in message:
            return HOST_PID_MISSING.check(_PROCESSES, message)
        cause = PROC_ROOT_WRONG if "--proc-root" in message else PROCESSES_FAIL
        return cause.check(_PROCESSES, message)
    if not snapshot.node.process_view:
        cause = PROCESS_LISTS_NOT_HERE if _lists_lacking(snapshot) else PROCESS_LISTS_FAIL
        return cause.check(_PROCESSES, snapshot.node.process_view_reason)
    places = _places(evidence)
    known = [place for place in places if place.known]
    shown = f"{settings.proc_root} shows the node's processes"
    if places and not known:
        text = f"{settings.proc_root} shows none of the {len(places)} processes that use GPUs"
        return PROCESSES_HIDDEN.check(_PROCESSES, text, proc=settings.proc_root)
    if places:
        in_pods = sum(place.pod_uid is not None for place in known)
        shown = f"{shown}; {in_pods} of {len(places)} that use GPUs are in pods"
    return Check(_PROCESSES, "OK", shown)


def _lists_lacking(snapshot: Snapshot) -> bool:
    """Return whether no GPU that answers supports process lists."""
    readings = [row.reading for row in snapshot.gpus if row.reading is not None and row.reading.up]
    return all(NOT_SUPPORTED in reading.withheld.get(_PROCESSES, "") for reading in readings)


def _names(snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings) -> Check:
    logs, socket = settings.pod_log_dir, settings.pods_api_socket
    if not health.success:
        return POD_NAMES_MISSING.check(_NAMES, health.message, logs=logs, socket=socket)
    pods = (evidence.workloads.pods if evidence.workloads is not None else None) or {}
    on_gpus = {place.pod_uid for place in _places(evidence) if place.pod_uid is not None}
    counted = plural(len(pods), "pod")
    if on_gpus and not on_gpus & pods.keys():
        text = f"{counted}, but none of the {plural(len(on_gpus), 'pod')} that use GPUs"
        return POD_NAMES_OF_OTHERS.check(_NAMES, text, logs=logs)
    if not pods or any(pod.container_ids for pod in pods.values()):
        return Check(_NAMES, "OK", f"{counted}, containers by id")
    text = f"{counted} from {logs}, containers by name only"
    merged = {
        (row.holder.namespace, row.holder.pod) for row in snapshot.containers if not row.holder.container
    }
    if not merged:
        return Check(_NAMES, "OK", text)
    more = f" and {len(merged) - 1} more" if len(merged) > 1 else ""
    pods_only = f"the use of {'/'.join(min(merged))}{more} is reported for the pod"
    return CONTAINER_IDS_UNKNOWN.check(_NAMES, f"{text}; {pods_only}")


def _places(evidence: PollResult) -> tuple[ProcessPlace, ...]:
    return tuple(evidence.workloads.places.values()) if evidence.workloads is not None else ()


def _no_objects(code: str, remedy: str) -> Finding:
    return degraded(code, "annotations and labels of this node or of its pods", remedy)


POD_OBJECTS_UNKNOWN: Final = absent("pod-objects-unknown")
CLIENT_NOT_INSTALLED: Final = _no_objects(
    "client-not-installed",
    "build the image with EXTRAS=kubernetes (docs/deploy.md: the objects of pods), or set"
    " --kubernetes-api off",
)
API_FORBIDDEN: Final = _no_objects(
    "api-forbidden",
    "bind the role of deploy/components/kubernetes-api to the service account, or set --kubernetes-api off",
)
API_TOKEN_REFUSED: Final = _no_objects(
    "api-token-refused",
    "delete this pod to get a new token; outside a cluster renew the token in --kubeconfig",
)
API_NOT_CONFIGURED: Final = _no_objects(
    "api-not-configured",
    "give the pod a token (automountServiceAccountToken: true, as deploy/components/kubernetes-api does), "
    "set --kubeconfig, or set --kubernetes-api off",
)
API_UNREACHABLE: Final = _no_objects(
    "api-unreachable",
    "check the pod's way to the API server: address, DNS and NetworkPolicies; or set --kubernetes-api off",
)
PODS_UNREADABLE: Final = degraded(
    "pod-annotations-unreadable",
    remedy="mount the kubelet's Pods API (Kubernetes 1.37 or later: deploy/components/pods-api), or read "
    "pods from the API server: deploy/components/kubernetes-api",
)
FILES_NOT_HERE: Final = absent("files-not-here")
FILES_UNREADABLE: Final = degraded(
    "files-unreadable",
    "the limits and usage in these files",
    "make the files readable; a damaged file is replaced when its container restarts",
)
FILES_FAIL: Final = degraded(
    "files-fail",
    "limits and usage that sharing systems keep in files",
    "check for a hung file system on the node, and check the exporter's log",
)
HOST_DEVICES_FAIL: Final = degraded(
    "host-devices-fail",
    "the GPU of each device for virtual machines",
    "check whether /sys is readable, and check the exporter's log",
)
JOBS_UNREADABLE: Final = degraded(
    "jobs-unreadable",
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
    lacking = f", missing for {bare} of {len(pods)} pods" if bare else ""
    return Check(name, "OK", f"labels and annotations from {evidence.objects_from}{lacking}")


class _SystemFiles(NamedTuple):
    """The files of a sharing system."""

    setting: str  # setting of their root directory
    component: str  # deploy component that mounts it
    sharing: frozenset[str]  # sharing modes of containers that have such files


_SYSTEM_FILES: Final[Mapping[str, _SystemFiles]] = {
    "hami": _SystemFiles("hami_root", "hami", frozenset({"hami", "volcano-vgpu"})),
    "hami-ascend": _SystemFiles("hami_vnpu_root", "hami-vnpu", frozenset({"hami-ascend"})),
    "gpu-manager": _SystemFiles("vcuda_root", "gpu-manager", frozenset({"gpu-manager"})),
    "vgpu-manager": _SystemFiles("vgpu_manager_root", "vgpu-manager", frozenset({"vgpu-manager"})),
    "runai": _SystemFiles("runai_root", "runai", frozenset({"runai"})),
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
        elif (place := _SYSTEM_FILES.get(system)) is not None and any(
            row.sharing in place.sharing and not row.device.mig_uuid for row in snapshot.containers
        ):
            text = (
                f"{getattr(settings, place.setting)} has none: it is not mounted "
                f"(deploy/components/{place.component}), or no container has used its GPU yet"
            )
            yield FILES_NOT_HERE.check(name, text)


def _jobs(health: CollectorHealth, evidence: PollResult) -> Check:
    name = "jobs of a batch system"
    if not health.success or evidence.jobs is None:
        return JOBS_UNREADABLE.check(name, health.message)
    if evidence.jobs.problems:
        return _unreadable(JOBS_UNREADABLE, name, evidence.jobs.problems)
    return Check(name, "OK", f"on {plural(len(evidence.jobs.jobs), 'device')}")


def _unreadable(cause: Finding, name: str, problems: Sequence[Problem]) -> Check:
    first = problems[0]
    more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
    return cause.check(name, f"{first.about} is skipped: {first.text}{more}")
