"""The doctor's checks of the kubelet's device accounting: whether it tells, and where its ids lead."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from exporter.assembly import Evidence
from exporter.doctor.findings import Finding
from exporter.doctor.findings import kubelet as found
from exporter.formats_words import plural
from exporter.model import Allocations, CollectorHealth, Snapshot
from exporter.report import Check
from exporter.settings import Settings

_NAME: Final = "pod-resources"
_CAUSES: Final[Mapping[str, Finding]] = {
    "absent": found.KUBELET_SOCKET_ABSENT,
    "permission": found.KUBELET_SOCKET_DENIED,
    "unavailable": found.KUBELET_DOWN,
    "deadline": found.KUBELET_SLOW,
    "rate_limited": found.KUBELET_BUSY,
    "too_large": found.KUBELET_ANSWER_TOO_LARGE,
    "unimplemented": found.KUBELET_NOT_POD_RESOURCES,
    "malformed": found.KUBELET_NOT_POD_RESOURCES,
    "not_ready": found.KUBELET_STARTING,
}


def kubelet_checks(
    snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    """Judge the socket and, where it tells, the ids."""
    yield _allocations(health, evidence, settings)
    if evidence.allocations is not None:
        yield from _offers(evidence.allocations, snapshot)
        yield from _ids(snapshot)


def _allocations(health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    allocations, socket = evidence.allocations, settings.pod_resources_socket
    if not health.success:
        cause = _CAUSES.get(health.reason, found.KUBELET_FAILS)
        return cause.check(_NAME, health.message, directory=socket.parent, socket=socket)
    if allocations is None:
        return found.KUBELET_STARTING.check(_NAME, f"{socket}: lists no device since the kubelet has started")
    if evidence.unlisted:
        pods = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in evidence.unlisted))
        return found.KUBELET_FILLING.check(_NAME, f"running pods that are not listed yet: {pods}")
    text = f"{allocations.api_version}, {plural(len(allocations.allocated), 'device id')} allocated"
    if allocations.offered is None:
        return found.OFFERS_UNKNOWN.check(_NAME, text)
    return Check(_NAME, "OK", f"{text}, {len(allocations.offered)} offered")


def _offers(allocations: Allocations, snapshot: Snapshot) -> Iterator[Check]:
    """Judge the resources of visible devices: held and not offered, or offered with unhealthy slices."""
    counts = [count for gpu in snapshot.gpus for count in gpu.slices]
    offered = {each.resource for each in allocations.offered or ()} - allocations.kept
    held = {each.resource for each in allocations.allocated} & {count.resource for count in counts}
    absent = sorted(held - offered) if allocations.offered is not None else []
    if absent:
        text = f"pods hold {', '.join(absent)}, and the kubelet offers none of it"
        yield found.RESOURCE_NOT_OFFERED.check("offered resources", text)
    unhealthy = [
        f"{count.unhealthy} of {count.offered} of {count.resource} on GPU {gpu.identity.index}"
        for gpu in snapshot.gpus
        for count in gpu.slices
        if count.unhealthy
    ]
    if unhealthy:
        yield found.SLICES_UNHEALTHY.check("slices", f"unhealthy: {', '.join(unhealthy)}")
    elif any(count.unhealthy is not None for count in counts):
        yield Check("slices", "OK", "no slice of a visible device is unhealthy")


def _ids(snapshot: Snapshot) -> Iterator[Check]:
    """Tell ids of devices that are not here from those of which nobody says which device they are."""
    unresolved = snapshot.node.unresolved
    slices = (*(gpu.slices for gpu in snapshot.gpus), *(mig.slices for mig in snapshot.migs))
    unplaced = {count.resource for count in chain.from_iterable(slices) if count.allocated is None}
    hidden = [f"{count} of {name}" for name, count in unresolved.items() if name not in unplaced]
    nowhere = [f"{count} of {name}" for name, count in unresolved.items() if name in unplaced]
    if hidden:
        text = f"{', '.join(hidden)} match no visible device"
        yield found.IDS_HIDDEN.check("device ids", text)
    else:
        least = "every allocated id that names a device is of" if nowhere else "every allocated id is"
        yield Check("device ids", "OK", f"{least} a visible device")
    if nowhere:
        text = f"{', '.join(nowhere)}: nobody says which GPU they are of"
        yield found.IDS_UNPLACED.check("ids of no GPU", text)
