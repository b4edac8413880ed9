"""Findings and checks of the kubelet's device accounting."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.config import Settings
from exporter.doctor import Check, Finding, degraded, missing
from exporter.model import Allocations, CollectorHealth, SliceCount, Snapshot
from exporter.model.kubelet import is_unhealthy
from exporter.model.poll_result import PollResult
from exporter.wording import contested, plural


def _no_holders(code: str, remedy: str) -> Finding:
    return missing(code, "holders, slices and entitlements", remedy)


KUBELET_SOCKET_ABSENT: Final = _no_holders(
    "kubelet-socket-absent",
    "mount the kubelet's pod-resources directory at {directory} (hostPath; the directory, not the socket), "
    "or set another root with --kubelet-root",
)
KUBELET_SOCKET_DENIED: Final = _no_holders(
    "kubelet-socket-denied",
    "run as uid 0 (runAsUser: 0; no capability is needed); if it already does, SELinux "
    "(deploy/components/selinux-spc) or AppArmor blocks it",
)
KUBELET_DOWN: Final = _no_holders(
    "kubelet-down",
    "start the kubelet (systemctl status kubelet); if it runs, it no longer uses {directory}: mount the "
    "directory that it uses",
)
KUBELET_SLOW: Final = _no_holders(
    "kubelet-slow",
    "check the kubelet's load and log; restart it if it answers no client (systemctl restart kubelet)",
)
KUBELET_BUSY: Final = _no_holders(
    "kubelet-busy",
    "find the client that calls this socket too often: all clients share its limit of calls per second",
)
KUBELET_ANSWER_TOO_LARGE: Final = _no_holders(
    "kubelet-answer-too-large", "look for pods with thousands of devices or claims on this node"
)
KUBELET_NOT_POD_RESOURCES: Final = _no_holders(
    "kubelet-not-pod-resources",
    "set --pod-resources-socket to the pod-resources socket of a kubelet (1.13 or later; on by default from "
    "1.15): another program, or another API, answers at {socket}",
)
KUBELET_STARTING: Final = _no_holders(
    "kubelet-starting", "wait: the exporter retries at once; if it lasts, check the kubelet's log"
)
KUBELET_FILLING: Final = degraded(
    "kubelet-filling",
    "allocation changes since the kubelet started; the last known allocations are kept",
    "wait a few seconds; if it lasts, check that the kubelet reaches its API server (journalctl -u kubelet)",
)
KUBELET_FAILS: Final = _no_holders("kubelet-fails", "check the kubelet's log on the node")
OFFERS_UNKNOWN: Final = degraded(
    "offers-unknown",
    "the number of slices per GPU, and every share of a GPU",
    "upgrade the kubelet to 1.23 or later; if it is, the exporter's log has the kubelet's error",
)
SLICES_UNHEALTHY: Final = degraded(
    "slices-unhealthy",
    "no readings; new pods do not get these slices",
    "check the GPU's XIDs and do what they require, then restart the device plugin's pod on this node: it "
    "reports a device as unhealthy until then",
)
SLICES_UNKNOWN: Final = degraded(
    "slices-unknown",
    "slice counts of these GPUs, and every share",
    "turn --kubernetes-api on, which reports the node's capacity; or see in the device plugin's log which"
    " devices are unhealthy, and restart this exporter if the plugin was configured with fewer replicas",
)
DEVICE_UNHEALTHY: Final = degraded(
    "device-unhealthy",
    "the reliability of these devices, as their device plugin or DRA driver finds; new pods may not get them",
    "do what the GPU's XIDs and conditions require; without any, check the log of the device plugin or DRA "
    "driver of this node, and restart its pod",
)
RESOURCE_NOT_OFFERED: Final = degraded(
    "resource-not-offered",
    "the number of slices per device, and every share of a device",
    "check whether the device plugin's pod runs on this node, and check its log; if the resource was "
    "renamed, restart the pods that hold the old one",
)
DEVICES_CONTESTED: Final = degraded(
    "devices-contested",
    "the entitlements of these containers; nothing isolates them from each other",
    "delete all but one of these pods; if it happens again, two device plugins or schedulers give out the "
    "same GPU, or the kubelet forgot an allocation in a restart: check its log",
)
IDS_HIDDEN: Final = degraded(
    "ids-hidden",
    "the holders of these ids",
    "give this container all GPUs (NVIDIA_VISIBLE_DEVICES=all; AMD: deploy/components/amd); if it has them, "
    "the GPU is lost, or was repartitioned under a pod: delete that pod",
)
IDS_UNPLACED: Final = degraded(
    "ids-unplaced",
    "the GPU of the holders of these ids",
    "check whether the pod annotations of the sharing system name the GPU; if the system keeps that in "
    "files, mount them: docs/deploy.md, files of sharing systems",
)
CLAIMS_UNKNOWN: Final = degraded(
    "claims-unknown",
    "holders, allocated slices and entitlements of the GPUs that these claims may be for",
    "if the devices of {driver} are not GPUs of this node, set --dra-ignore-driver {driver}; if they are, "
    "please open an issue with the output of `gpuslice-exporter record`",
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
    """Return the checks of the socket and, if it answers, of the device ids."""
    yield _allocations(health, evidence, settings)
    if evidence.allocations is not None:
        yield from _offers(evidence.allocations, snapshot)
        yield from _ids(snapshot)
        yield from _unknown_claims(snapshot)
        yield from _contested(snapshot)
    yield from _health(snapshot)


def _health(snapshot: Snapshot) -> Iterator[Check]:
    """Return a check if the status of a pod has an unhealthy device."""
    index = {gpu.identity.uuid: gpu.identity.index for gpu in snapshot.gpus}
    unhealthy = sorted(
        f"GPU {index[row.device.uuid]} of {row.holder.namespace}/{row.holder.pod} is {row.health}"
        for row in snapshot.containers
        if is_unhealthy(row.health) and row.device.uuid in index
    )
    if unhealthy:
        text = f"reported in the status of pods: {', '.join(dict.fromkeys(unhealthy))}"
        yield DEVICE_UNHEALTHY.check("device health", text)


def _allocations(health: CollectorHealth, evidence: PollResult, settings: Settings) -> Check:
    allocations, socket = evidence.allocations, settings.pod_resources_socket
    if not health.success:
        cause = _CAUSES.get(health.reason, KUBELET_FAILS)
        return cause.check(_NAME, health.message, directory=socket.parent, socket=socket)
    if allocations is None:
        return KUBELET_STARTING.check(_NAME, f"{socket}: no device listed since the kubelet started")
    if evidence.unlisted:
        pods = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in evidence.unlisted))
        return KUBELET_FILLING.check(_NAME, f"running pods not listed yet: {pods}")
    text = f"{allocations.api_version}, {plural(len(allocations.allocated), 'device id')} allocated"
    if allocations.offered is None:
        return OFFERS_UNKNOWN.check(_NAME, text)
    text = f"{text}, {len(allocations.offered)} offered"
    if allocations.claims:
        claimed = {(claim.driver, claim.pool, claim.device) for claim in allocations.claims}
        text += f", {plural(len(claimed), 'device')} in resource claims"
        if not (allocations.allocated or allocations.offered):
            text += "; this node has no device plugin, and needs none"
    return Check(_NAME, "OK", text)


def _offers(allocations: Allocations, snapshot: Snapshot) -> Iterator[Check]:
    """Return checks of resources that are held but not offered, or have unhealthy slices."""
    counts = [count for gpu in snapshot.gpus for count in gpu.slices]
    offered = {offer.resource for offer in allocations.offered or ()} - allocations.kept
    held = {held.resource for held in allocations.allocated} & {count.resource for count in counts}
    unoffered = sorted(held - offered) if allocations.offered is not None else []
    if unoffered:
        text = f"pods hold {', '.join(unoffered)}, but the kubelet does not offer it"
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
        yield Check("slices", "OK", "no unhealthy slice on a visible device")


def _uncounted(allocations: Allocations, snapshot: Snapshot) -> set[str]:
    """Return the resources with replicas of a device for which the number of slices is unknown."""
    replicated = {held.resource for held in allocations.allocated if REPLICA in held.device_id}
    replicated |= {offer.resource for offer in allocations.offered or () if REPLICA in offer.device_id}
    return replicated & {count.resource for count in _counts(snapshot) if count.offered is None}


def _counts(snapshot: Snapshot) -> Iterator[SliceCount]:
    """Yield the slice counts of all GPUs and MIG devices."""
    for gpu in snapshot.gpus:
        yield from gpu.slices
    for mig in snapshot.migs:
        yield from mig.slices


def _unknown_claims(snapshot: Snapshot) -> Iterator[Check]:
    """Return a check for each driver with claims that cannot be read."""
    for driver in sorted(snapshot.node.unknown_drivers):
        count = plural(snapshot.node.unresolved[driver], "device")
        text = f"{count} in resource claims of {driver}, which is not known here and may be for GPUs"
        yield CLAIMS_UNKNOWN.check("resource claims", text, driver=driver)


def _ids(snapshot: Snapshot) -> Iterator[Check]:
    """Return checks of allocated ids: those that match no device, and those without a known device."""
    unresolved = {
        name: count
        for name, count in snapshot.node.unresolved.items()
        if name not in snapshot.node.unknown_drivers
    }
    unplaced = {count.resource for count in _counts(snapshot) if count.allocated is None}
    hidden = [f"{count} of {name}" for name, count in unresolved.items() if name not in unplaced]
    nowhere = [f"{count} of {name}" for name, count in unresolved.items() if name in unplaced]
    if hidden:
        text = f"{', '.join(hidden)} match no visible device"
        yield IDS_HIDDEN.check("device ids", text)
    else:
        matching = "all allocated ids that name a device match" if nowhere else "all allocated ids match"
        yield Check("device ids", "OK", f"{matching} a visible device")
    if nowhere:
        text = f"{', '.join(nowhere)}: no source names their GPU"
        yield IDS_UNPLACED.check("ids without a GPU", text)


def _contested(snapshot: Snapshot) -> Iterator[Check]:
    """Return a check if a device that a container should have alone has other holders."""
    held = [f"{device} by {holders}" for device, holders in contested(snapshot)]
    if held:
        yield DEVICES_CONTESTED.check("devices held twice", f"held at once: {'; '.join(held)}")
