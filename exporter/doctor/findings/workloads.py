"""What can be found of processes and of the names of pods."""

from typing import Final

from exporter.doctor.findings.finding import Finding

_PER_CONTAINER: Final = "per-container use on every shared device"

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
    "leave --proc-root at /proc and set hostPID: true, for the driver counts pids as this process does",
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
    "mend what is said of the GPUs above; in MIG mode deploy/components/mig-monitor",
)
PROCESS_LISTS_NOT_HERE: Final = Finding("process-lists-not-here", "absent")
PROCESSES_FAIL: Final = Finding(
    "processes-fail", "missing", _PER_CONTAINER, "see the load of the node, and the exporter's log"
)
POD_NAMES_MISSING: Final = Finding(
    "pod-names-missing",
    "missing",
    "whose a process is, wherever several containers share a device",
    "mount the node's /var/log/pods at {logs} (hostPath, read-only), or the directory of {socket}",
)
POD_NAMES_OF_OTHERS: Final = Finding(
    "pod-names-of-others",
    "degraded",
    "whose a process is, wherever several containers share a device",
    "mount the directory in which this node's kubelet keeps logs of pods (its podLogsDir) at {logs}",
)
CONTAINER_IDS_UNKNOWN: Final = Finding(
    "container-ids-unknown",
    "degraded",
    "which container of a pod uses a device, where several of the pod hold it",
    "deploy/components/pods-api (a kubelet from 1.37 on), or deploy/components/kubernetes-api"
    " (--kubernetes-api on)",
)
