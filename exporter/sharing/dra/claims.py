"""What containers have by resource claims (DRA), whichever driver gives the devices out.

The kubelet names devices as their driver does. A device of which one container has one claim is its own.
Where several containers share a claim, nothing keeps them apart but MPS, and nothing is promised to either:
each is told its equal part. Where a driver lets several claims have shares of one device, what each may take
is stated in the claim only, and is known as far as the driver notes it on the node.

The kubelet tells all devices of a claim for every container that names the claim, even if the container asks
for one request of it. Nor does it tell claims of an administrator, who has devices without holding them: they
are known by the driver's notes, and our own pod's are never counted. Two claims of a whole device are one
more than it can have: which of them is the administrator's is not known then, nor is what is promised.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

from exporter.model import (
    ClaimedDevice,
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DeviceSharing,
    Meter,
)
from exporter.model.sums import total
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Entitled, Grant, Granted, Offer, System, not_counted, words_of
from exporter.sharing.base.view import View
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared

NUMBER = "[0-9]{1,9}"
UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CDI_NAME = re.compile(rf"k8s\.([^/=]+)/[^/=]+=({UID})-(.+)")


class Part(NamedTuple):
    """A device with everything that is claimed of it."""

    device: Device
    claims: list[ClaimedDevice]

    @property
    def holders(self) -> list[ContainerRef]:
        """The containers, sorted."""
        return sorted({claim.holder for claim in self.claims})

    @property
    def in_shares(self) -> bool:
        """Whether the driver gives the device to several claims."""
        return any(claim.share_id for claim in self.claims)

    @property
    def alone(self) -> bool:
        """Whether one container has it all."""
        return len(self.holders) == 1 and not self.in_shares

    def of(self, holder: ContainerRef) -> list[ClaimedDevice]:
        """Return what one container has of it."""
        return [claim for claim in self.claims if claim.holder == holder]

    def sharers(self, claim: ClaimedDevice) -> list[ContainerRef]:
        """Return the containers that have the same share by the same claim."""
        return sorted({other.holder for other in self.claims if _ticket(other) == _ticket(claim)})


class ClaimSystem(System):
    """The devices of one DRA driver; ``names`` matches what it calls them."""

    driver: ClassVar[str] = ""
    words = words_of("gpu mig vfio hami")
    names: ClassVar[re.Pattern[str]]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        files = view.facts.files.get(self.name)
        self._checkpoint = files if isinstance(files, Checkpoint) else Checkpoint()
        self._parts: dict[DeviceKey, Part] = {}

    def find(self, name: str) -> Device | None:
        """Find a device by a name that the driver has for it; None where it is not here, or not told."""
        raise NotImplementedError

    def grants(self) -> Granted:
        """Return what containers have by claims."""
        missing: dict[ContainerRef, set[tuple[str, str]]] = defaultdict(set)
        for claim in dict.fromkeys(self._claims()):
            device = self._device(claim)
            if device is None:
                missing[claim.holder].add((claim.device, claim.share_id))
            else:
                self._parts.setdefault(device.key, Part(device, [])).claims.append(claim)
        held = [self._grant(part, holder) for part in self._parts.values() for holder in part.holders]
        lost = [
            Grant(holder=holder, resource=self.driver, device=None, slices=len(names))
            for holder, names in sorted(missing.items())
        ]
        return Granted(grants=(*held, *lost), unplaced=tuple((key, self.driver) for key in self._untold()))

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return whether a device has one holder. How many shares it could have, nobody tells on the node."""
        part = self._parts.get(device.key)
        counted = not_counted(offer.slices)
        if part is None:
            return DeviceSharing(slices=counted)
        if part.alone:
            return DeviceSharing(sharing=self.mode_alone(device), isolation="hard", slices=counted)
        mode, isolation = ("mps", "soft") if _serves_mps(device) else ("dra", "none")
        return DeviceSharing(sharing=mode, isolation=isolation, slices=counted)

    def mode_alone(self, device: Device) -> str:
        """Return the mode of a device that one container has."""
        return "exclusive" if device.mig is None else "mig"

    def entitled(self, part: Part, holder: ContainerRef) -> Entitled:
        """Return what a container is entitled to."""
        if part.in_shares:
            return self.entitled_by_shares(part, holder)
        claims = {(claim.claim_namespace, claim.claim) for claim in part.claims}
        if len(claims) > 1 and not part.alone:
            return Entitled()
        return _equal_part(Entitled(part.device.memory, part.device.compute), len(part.holders))

    def entitled_by_shares(self, part: Part, holder: ContainerRef) -> Entitled:
        """Add up what the container's shares may take, as far as the driver notes it."""
        shares = [
            _equal_part(self.limits(part, claim), len(part.sharers(claim))) for claim in part.of(holder)
        ]
        return Entitled(total([share.memory for share in shares]), total([share.compute for share in shares]))

    def limits(self, _part: Part, claim: ClaimedDevice) -> Entitled:
        """Return what a claim may take of a device that it shares."""
        noted = self._noted(claim)
        return Entitled(noted.memory, noted.compute) if noted is not None else Entitled()

    def meter(self, _part: Part, _holder: ContainerRef) -> Meter | None:
        """Return what the driver's own meter says of a container."""
        return None

    def exclusive(self, part: Part) -> bool:
        """Whether nobody else can have a part of a device."""
        return part.alone

    def _grant(self, part: Part, holder: ContainerRef) -> Grant:
        entitled = self.entitled(part, holder)
        return Grant(
            holder=holder,
            resource=self.driver,
            device=part.device,
            slices=len({(claim.device, claim.share_id) for claim in part.of(holder)}),
            memory_entitled=entitled.memory,
            compute_entitled=entitled.compute,
            meter=self.meter(part, holder),
            exclusive=self.exclusive(part),
        )

    def _claims(self) -> Iterator[ClaimedDevice]:
        """Yield each share of each claim, named as the notes name it, without what administrators have."""
        for claim in self.view.allocations.claims:
            if claim.driver != self.driver:
                continue
            noted = self._checkpoint.find(claim_uid(claim), claim.device, claim.share_id)
            if not noted:
                yield claim
            yield from (replace(claim, share_id=share.share_id) for share in noted if not share.admin)

    def _untold(self) -> Iterator[DeviceKey]:
        """Yield the devices that are prepared for claims that the kubelet does not tell.

        Before 1.34 it tells none by default, and never those of init containers.
        """
        listed = {
            (claim_uid(claim), claim.device)
            for claim in self.view.listed_claims
            if claim.driver == self.driver
        }
        for (uid, name), shares in self._checkpoint.held().items():
            if (uid, name) in listed or ("", name) in listed:
                continue
            named = self.find(name) if self.names.fullmatch(name) else None
            device = named or self.view.inventory.by_uuid(shares[0].uuid)
            if device is not None:
                yield device.key

    def _noted(self, claim: ClaimedDevice) -> Prepared | None:
        shares = self._checkpoint.find(claim_uid(claim), claim.device, claim.share_id)
        return shares[0] if shares else None

    def _device(self, claim: ClaimedDevice) -> Device | None:
        """Find a device by its name, else by the driver's notes of it."""
        device = None
        if self.names.fullmatch(claim.device):
            device = self.find(claim.device)
        else:
            about = f"{claim.holder.namespace}/{claim.holder.pod}: {claim.device[:100]}"
            self.view.object_to(self.name, "id", about, f"is no device name of {self.driver}")
        noted = self._noted(claim) if device is None else None
        return self.view.inventory.by_uuid(noted.uuid) if noted is not None else device


def claim_uid(claim: ClaimedDevice) -> str:
    """Return the uid of a claim, which its CDI names hold, "" where they do not say one.

    Kubelets list the CDI names of other devices of the container too.
    """
    matches = (match for name in claim.cdi if (match := CDI_NAME.fullmatch(name)))
    uids = {match[2] for match in matches if (match[1], match[3]) == (claim.driver, claim.device)}
    return uids.pop() if len(uids) == 1 else ""


def _ticket(claim: ClaimedDevice) -> tuple[str, str, str]:
    return claim.claim_namespace, claim.claim, claim.share_id


def _equal_part(all_of_it: Entitled, holders: int) -> Entitled:
    memory, compute, _ = all_of_it
    return Entitled(
        None if memory is None else memory // holders, None if compute is None else compute / holders
    )


def _serves_mps(device: Device) -> bool:
    if device.mig is not None:
        return _has_clients(device.mig.processes)
    return _has_clients(device.gpu.processes) or device.gpu.compute_mode == "exclusive_process"


def _has_clients(processes: Iterable[DeviceProcess] | None) -> bool:
    return any("mps" in process.kinds for process in processes or ())
