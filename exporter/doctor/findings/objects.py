"""What can be found of the objects of pods, and of what other programs write down."""

from typing import Final

from exporter.doctor.findings.finding import Finding

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
    "delete this pod, so that it gets a new token; outside a cluster renew the one in --kubeconfig",
)
API_NOT_CONFIGURED: Final = Finding(
    "api-not-configured",
    "degraded",
    _OF_API,
    "give the pod a token (automountServiceAccountToken: true, as deploy/components/kubernetes-api does),"
    " name a file with --kubeconfig, or set --kubernetes-api off",
)
API_UNREACHABLE: Final = Finding(
    "api-unreachable",
    "degraded",
    _OF_API,
    "let the pod reach the API server: its address, DNS and NetworkPolicies; or set --kubernetes-api off",
)
SHARING_BLIND: Final = Finding(
    "sharing-blind",
    "degraded",
    remedy="mount the kubelet's Pods API (Kubernetes 1.37 or later: deploy/components/pods-api), or let the"
    " exporter ask the API server: deploy/components/kubernetes-api",
)
FILES_NOT_HERE: Final = Finding("files-not-here", "absent")
FILES_UNREADABLE: Final = Finding(
    "files-unreadable",
    "degraded",
    "what these files say of limits and use",
    "let the exporter read them; one that is damaged is mended when its container is started anew",
)
FILES_FAIL: Final = Finding(
    "files-fail",
    "degraded",
    "limits and use that sharing systems write down",
    "see whether a file system hangs on the node, and the exporter's log",
)
HOST_DEVICES_FAIL: Final = Finding(
    "host-devices-fail",
    "degraded",
    "which GPU a device for virtual machines is on",
    "see whether /sys can be read, and the exporter's log",
)
JOBS_UNREADABLE: Final = Finding(
    "jobs-unreadable",
    "degraded",
    "which jobs of the batch system run where",
    "mount the directory that --job-mapping-dir names, and let the exporter read the files in it",
)
