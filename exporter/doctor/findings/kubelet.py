"""What can be found of the kubelet's device accounting."""

from typing import Final

from exporter.doctor.findings.finding import Finding

_HOLDERS: Final = "who holds what: holders, slices and entitlements"

KUBELET_SOCKET_ABSENT: Final = Finding(
    "kubelet-socket-absent",
    "missing",
    _HOLDERS,
    "mount the kubelet's directory pod-resources at {directory} (hostPath; the directory, not the socket), or"
    " name another root with --kubelet-root",
)
KUBELET_SOCKET_DENIED: Final = Finding(
    "kubelet-socket-denied",
    "missing",
    _HOLDERS,
    "run as uid 0 (runAsUser: 0; it needs no capability); with uid 0 already, SELinux is in the way"
    " (deploy/components/selinux-spc), or AppArmor",
)
KUBELET_DOWN: Final = Finding(
    "kubelet-down",
    "missing",
    _HOLDERS,
    "start the kubelet (systemctl status kubelet); if it runs, it has left {directory} for another one: mount"
    " that",
)
KUBELET_SLOW: Final = Finding(
    "kubelet-slow",
    "missing",
    _HOLDERS,
    "see the load and the log of the kubelet; restart it if it answers nobody (systemctl restart kubelet)",
)
KUBELET_BUSY: Final = Finding(
    "kubelet-busy",
    "missing",
    _HOLDERS,
    "find who else asks this socket too often: its limit of calls per second is for all clients together",
)
KUBELET_ANSWER_TOO_LARGE: Final = Finding(
    "kubelet-answer-too-large",
    "missing",
    _HOLDERS,
    "look for pods with thousands of devices or claims on this node",
)
KUBELET_NOT_POD_RESOURCES: Final = Finding(
    "kubelet-not-pod-resources",
    "missing",
    _HOLDERS,
    "let --pod-resources-socket name the pod-resources socket of a kubelet (1.13 or later; on by default from"
    " 1.15): another program, or another API, answers at {socket}",
)
KUBELET_STARTING: Final = Finding(
    "kubelet-starting",
    "missing",
    _HOLDERS,
    "wait: it is asked again at once; if it lasts, see the kubelet's log",
)
KUBELET_FILLING: Final = Finding(
    "kubelet-filling",
    "degraded",
    "changes of allocations since the kubelet was started; the last known allocations are kept",
    "wait some seconds; if it lasts, check that the kubelet reaches its API server (journalctl -u kubelet)",
)
KUBELET_FAILS: Final = Finding("kubelet-fails", "missing", _HOLDERS, "see the kubelet's log on the node")
OFFERS_UNKNOWN: Final = Finding(
    "offers-unknown",
    "degraded",
    "how many slices a GPU has, and with it every share of it",
    "a kubelet from 1.23 on; with one, the exporter's log says why it does not tell",
)
SLICES_UNHEALTHY: Final = Finding(
    "slices-unhealthy",
    "degraded",
    "nothing of what is shown; no new pod is given these slices",
    "see the XIDs of the GPU and do what they ask for, then restart the device plugin's pod of this node: it"
    " keeps a device unhealthy until then",
)
RESOURCE_NOT_OFFERED: Final = Finding(
    "resource-not-offered",
    "degraded",
    "into how many slices its devices are cut, and with it every share of them",
    "see whether the device plugin's pod runs on this node, and its log; if the resource has another name"
    " now, start the pods that hold the old one anew",
)
IDS_HIDDEN: Final = Finding(
    "ids-hidden",
    "degraded",
    "the holders of these ids",
    "give this container all GPUs (NVIDIA_VISIBLE_DEVICES=all; AMD: deploy/components/amd); where it has"
    " them, the GPU is lost, or was cut anew under a pod: delete that pod",
)
IDS_UNPLACED: Final = Finding(
    "ids-unplaced",
    "degraded",
    "which GPU the holders of these ids have",
    "see in the pods' annotations whether the sharing system says which GPU it gave them, and mount its files"
    " where it keeps that in files: docs/deploy.md, files of sharing systems",
)
