"""The doctor's checks of processes and of the pods that they are in."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.assembly import Evidence
from exporter.doctor.findings import workloads as found
from exporter.doctor.gpus import NOT_SUPPORTED
from exporter.formats_words import plural
from exporter.model import CollectorHealth, ProcessPlace, Snapshot
from exporter.report import Check
from exporter.settings import Settings

_PROCESSES: Final = "processes"
_NAMES: Final = "pod names"


def workload_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    """Judge the view of processes, then the names of pods."""
    yield _process_view(snapshot, health[_PROCESSES], evidence, settings)
    yield _names(snapshot, health["identity"], evidence, settings)


def _process_view(
    snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings
) -> Check:
    message = health.message
    if not health.success:
        if "hostPID: true" in message:
            return found.HOST_PID_MISSING.check(_PROCESSES, message)
        cause = found.PROC_ROOT_WRONG if "--proc-root" in message else found.PROCESSES_FAIL
        return cause.check(_PROCESSES, message)
    if not snapshot.node.process_view:
        reason = snapshot.node.process_view_reason
        cause = found.PROCESS_LISTS_NOT_HERE if _lists_lacking(snapshot) else found.PROCESS_LISTS_FAIL
        return cause.check(_PROCESSES, reason)
    places = _places(evidence)
    known = [place for place in places if place.known]
    shown = f"{settings.proc_root} shows the node's processes"
    if places and not known:
        text = f"of {len(places)} processes that use GPUs {settings.proc_root} shows none"
        return found.PROCESSES_HIDDEN.check(_PROCESSES, text, proc=settings.proc_root)
    if places:
        in_pods = sum(place.pod_uid is not None for place in known)
        shown = f"{shown}; of {len(places)} that use GPUs {in_pods} are in pods"
    return Check(_PROCESSES, "OK", shown)


def _lists_lacking(snapshot: Snapshot) -> bool:
    """Whether no GPU that answers has a list of processes to give."""
    readings = [row.reading for row in snapshot.gpus if row.reading is not None and row.reading.up]
    return all(NOT_SUPPORTED in reading.withheld.get(_PROCESSES, "") for reading in readings)


def _names(snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    logs, socket = settings.pod_logs, settings.pods_api_socket
    if not health.success:
        return found.POD_NAMES_MISSING.check(_NAMES, health.message, logs=logs, socket=socket)
    pods = (evidence.workloads.pods if evidence.workloads is not None else None) or {}
    on_gpus = {place.pod_uid for place in _places(evidence) if place.pod_uid is not None}
    counted = plural(len(pods), "pod")
    if on_gpus and not on_gpus & pods.keys():
        text = f"{counted}, and none of the {plural(len(on_gpus), 'pod')} that use GPUs"
        return found.POD_NAMES_OF_OTHERS.check(_NAMES, text, logs=logs)
    if not pods or any(pod.container_ids for pod in pods.values()):
        return Check(_NAMES, "OK", f"{counted}, containers by id")
    text = f"{counted} from {logs}, containers by name only"
    merged = {
        (row.holder.namespace, row.holder.pod) for row in snapshot.containers if not row.holder.container
    }
    if not merged:
        return Check(_NAMES, "OK", text)
    whose = f"the use of {'/'.join(min(merged))}{f' and {len(merged) - 1} more' if len(merged) > 1 else ''}"
    return found.CONTAINER_IDS_UNKNOWN.check(_NAMES, f"{text}; {whose} is told as the pod's")


def _places(evidence: Evidence) -> tuple[ProcessPlace, ...]:
    return tuple(evidence.workloads.places.values()) if evidence.workloads is not None else ()
