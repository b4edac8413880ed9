"""What can be found of the kubelet's device accounting."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor.report import Check, Finding
from exporter.formats.wording import plural
from exporter.model import Allocations, CollectorHealth, Snapshot
from exporter.model.poll_result import PollResult

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
SLICES_UNKNOWN: Final = Finding(
    "slices-unknown",
    "degraded",
    "how many slices these GPUs are cut into, and with it every share of them",
    "turn --kubernetes-api on, which reports the node's capacity; or see in the device plugin's log which"
    " devices are unhealthy, and restart this exporter if the plugin was configured with fewer replicas",
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


_NAME: Final = "pod-resources"
# Between the UUID of a device and the number of a replica of it.
REPLICA = "::"
_CAUSES: Final[Mapping[str, Finding]] = {
    "absent": KUBELET_SOCKET_ABSENT,
    "permission": KUBELET_SOCKET_DENIED,
    "unavailable": KUBELET_DOWN,
    "deadline": KUBELET_SLOW,
    "rate_limited": KUBELET_BUSY,
    "too_large": KUBELET_ANSWER_TOO_LARGE,
    "unimplemented": KUBELET_NOT_POD_RESOURCES,
    "malformed": KUBELET_NOT_POD_RESOURCES,
    "not_ready": KUBELET_STARTING,
}


def kubelet_checks(
    snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Judge the socket and, where it tells, the ids."""
    yield _allocations(health, evidence, settings)
    if evidence.allocations is not None:
        yield from _offers(evidence.allocations, snapshot)
        yield from _ids(snapshot)


def _allocations(health: CollectorHealth, evidence: PollResult, settings: Settings) -> Check:
    allocations, socket = evidence.allocations, settings.pod_resources_socket
    if not health.success:
        cause = _CAUSES.get(health.reason, KUBELET_FAILS)
        return cause.check(_NAME, health.message, directory=socket.parent, socket=socket)
    if allocations is None:
        return KUBELET_STARTING.check(_NAME, f"{socket}: lists no device since the kubelet has started")
    if evidence.unlisted:
        pods = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in evidence.unlisted))
        return KUBELET_FILLING.check(_NAME, f"running pods that are not listed yet: {pods}")
    text = f"{allocations.api_version}, {plural(len(allocations.allocated), 'device id')} allocated"
    if allocations.offered is None:
        return OFFERS_UNKNOWN.check(_NAME, text)
    return Check(_NAME, "OK", f"{text}, {len(allocations.offered)} offered")


def _offers(allocations: Allocations, snapshot: Snapshot) -> Iterator[Check]:
    """Judge the resources of visible devices: held and not offered, or offered with unhealthy slices."""
    counts = [count for gpu in snapshot.gpus for count in gpu.slices]
    offered = {each.resource for each in allocations.offered or ()} - allocations.kept
    held = {each.resource for each in allocations.allocated} & {count.resource for count in counts}
    absent = sorted(held - offered) if allocations.offered is not None else []
    if absent:
        text = f"pods hold {', '.join(absent)}, and the kubelet offers none of it"
        yield RESOURCE_NOT_OFFERED.check("offered resources", text)
    unhealthy = [
        f"{count.unhealthy} of {count.offered} of {count.resource} on GPU {gpu.identity.index}"
        for gpu in snapshot.gpus
        for count in gpu.slices
        if count.unhealthy
    ]
    if unhealthy:
        yield SLICES_UNHEALTHY.check("slices", f"unhealthy: {', '.join(unhealthy)}")
    unknown = _uncounted(allocations, snapshot) & offered
    if unknown:
        yield SLICES_UNKNOWN.check("slices", f"number unknown: {', '.join(sorted(unknown))}")
    if not unhealthy and not unknown and any(count.unhealthy is not None for count in counts):
        yield Check("slices", "OK", "no slice of a visible device is unhealthy")


def _uncounted(allocations: Allocations, snapshot: Snapshot) -> set[str]:
    """Return the resources with replicas of a device for which the number of slices is unknown."""
    replicated = {each.resource for each in allocations.allocated if REPLICA in each.device_id}
    replicated |= {each.resource for each in allocations.offered or () if REPLICA in each.device_id}
    slices = (*(gpu.slices for gpu in snapshot.gpus), *(mig.slices for mig in snapshot.migs))
    counts = chain.from_iterable(slices)
    return replicated & {count.resource for count in counts if count.offered is None}


def _ids(snapshot: Snapshot) -> Iterator[Check]:
    """Tell ids of devices that are not here from those of which nobody says which device they are."""
    unresolved = snapshot.node.unresolved
    slices = (*(gpu.slices for gpu in snapshot.gpus), *(mig.slices for mig in snapshot.migs))
    unplaced = {count.resource for count in chain.from_iterable(slices) if count.allocated is None}
    hidden = [f"{count} of {name}" for name, count in unresolved.items() if name not in unplaced]
    nowhere = [f"{count} of {name}" for name, count in unresolved.items() if name in unplaced]
    if hidden:
        text = f"{', '.join(hidden)} match no visible device"
        yield IDS_HIDDEN.check("device ids", text)
    else:
        least = "every allocated id that names a device is of" if nowhere else "every allocated id is"
        yield Check("device ids", "OK", f"{least} a visible device")
    if nowhere:
        text = f"{', '.join(nowhere)}: nobody says which GPU they are of"
        yield IDS_UNPLACED.check("ids of no GPU", text)
