"""Findings and checks of processes and pod names."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor.gpus import NOT_SUPPORTED
from exporter.doctor.report import Check, Finding
from exporter.formats.wording import plural
from exporter.model import CollectorHealth, ProcessPlace, Snapshot
from exporter.model.poll_result import PollResult

_PER_CONTAINER: Final = "per-container usage on shared devices"

HOST_PID_MISSING: Final = Finding(
    "host-pid-missing",
    "missing",
    _PER_CONTAINER,
    "set hostPID: true in the pod's spec, as deploy/base/daemonset.yaml does",
)
PROC_ROOT_WRONG: Final = Finding(
    "proc-root-wrong",
    "missing",
    _PER_CONTAINER,
    "leave --proc-root at /proc and set hostPID: true: the driver reports pids of this process's own pid "
    "namespace",
)
PROCESSES_HIDDEN: Final = Finding(
    "processes-hidden",
    "degraded",
    _PER_CONTAINER,
    "mount {proc} without hidepid; under systemd, without ProtectProc=invisible and ProcSubset=pid",
)
PROCESS_LISTS_FAIL: Final = Finding(
    "process-lists-fail",
    "degraded",
    _PER_CONTAINER,
    "fix the GPU findings above; in MIG mode use deploy/components/mig-monitor",
)
PROCESS_LISTS_NOT_HERE: Final = Finding("process-lists-not-here", "absent")
PROCESSES_FAIL: Final = Finding(
    "processes-fail", "missing", _PER_CONTAINER, "check the load of the node and the exporter's log"
)
POD_NAMES_MISSING: Final = Finding(
    "pod-names-missing",
    "missing",
    "the container of each process on shared devices",
    "mount the node's /var/log/pods at {logs} (hostPath, read-only), or the directory of {socket}",
)
POD_NAMES_OF_OTHERS: Final = Finding(
    "pod-names-of-others",
    "degraded",
    "the container of each process on shared devices",
    "mount the kubelet's pod log directory of this node (podLogsDir) at {logs}",
)
CONTAINER_IDS_UNKNOWN: Final = Finding(
    "container-ids-unknown",
    "degraded",
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
        reason = snapshot.node.process_view_reason
        cause = PROCESS_LISTS_NOT_HERE if _lists_lacking(snapshot) else PROCESS_LISTS_FAIL
        return cause.check(_PROCESSES, reason)
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
