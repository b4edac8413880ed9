"""The base class of DRA drivers: devices of containers by resource claims.

The kubelet has the driver's device names. A device with one claim by one container is exclusive. Containers
that share a claim are isolated by MPS at most, and are shown equal parts, which nothing guarantees. If a
driver gives shares of a device to several claims, only the claim has their size, which is known if the
driver's checkpoint on the node has it.

The kubelet lists all devices of a claim for every container with the claim, even if the container uses one
request of it (``requests.py``). It does not mark claims with admin access, which do not hold devices: the
checkpoint does, and claims of the exporter's own pod never count. Two claims of a whole device mean that one
has admin access: without a checkpoint it is unknown which, and so are the entitlements.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar, NamedTuple

from exporter.model import (
    ClaimedDevice,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    HeldClaim,
    Meter,
    total,
)
from exporter.model.kubelet import worst_health
from exporter.sharing.base import Entitled, Grant, Granted, Offer, System, not_counted, words_of
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.dra.checkpoint import NVIDIA, Checkpoint, Form, Prepared
from exporter.sharing.dra.requests import has_device, remedy

NUMBER = "[0-9]{1,9}"
UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CDI_NAME = re.compile(rf"k8s\.([^/=]+)/[^/=]+=({UID})-(.+)")
# What follows the claim's uid in a CDI name, by driver, if that is not the name of the device alone: AMD's
# driver adds the number of a partition, vgpu-manager's the request, and the share or a number.
CDI_DEVICES = {
    "gpu.amd.com": "{device}(?:-[0-9]+)?",
    "manager.nvidia.com": "(?:.+-)?{device}(?:-share-{share}|-[0-9]+)?",
}


class ClaimedPart(NamedTuple):
    """A device and all claims of it."""

    device: Device
    claims: list[ClaimedDevice]
    divided: bool  # a share id means a share of the device

    @property
    def holders(self) -> list[ContainerRef]:
        """The containers, sorted."""
        return sorted({claim.holder for claim in self.claims})

    @property
    def in_shares(self) -> bool:
        """Return True if the driver gives shares of the device to several claims."""
        return self.divided and any(claim.share_id for claim in self.claims)

    @property
    def alone(self) -> bool:
        """Return True if one container has the whole device."""
        return len(self.holders) == 1 and not self.in_shares

    def of(self, holder: ContainerRef) -> list[ClaimedDevice]:
        """Return the claims of one container."""
        return [claim for claim in self.claims if claim.holder == holder]

    def may_be_of(self, lost: ClaimedDevice) -> bool:
        """Return True if another container has a share of the device by the claim of a lost device."""
        return any(
            _share_key(claim) == _share_key(lost) and claim.holder != lost.holder for claim in self.claims
        )

    def sharers(self, claim: ClaimedDevice) -> list[ContainerRef]:
        """Return the containers that have the same share by the same claim."""
        return sorted({other.holder for other in self.claims if _share_key(other) == _share_key(claim)})


class ClaimSystem(System):
    """The devices of one DRA driver."""

    driver: ClassVar[str] = ""
    words = words_of("gpu mig vfio hami")
    names: ClassVar[re.Pattern[str]]  # matches the driver's device names
    form: ClassVar[Form] = NVIDIA  # of the driver's checkpoint
    divides: ClassVar[bool] = True  # a share id means a share of a device, not a device of its own

    def __init__(self, view: View) -> None:
        super().__init__(view)
        files = view.files(self.name)
        self._checkpoint = files if isinstance(files, Checkpoint) else Checkpoint()
        self._parts: dict[DeviceKey, ClaimedPart] = {}
        # Shares of devices of which it is unknown which container of their claim has them.
        self._doubted: dict[DeviceKey, set[tuple[str, str, str]]] = {}

    def find(self, name: str) -> Device | None:
        """Return the device with a driver's name; None if it is unknown or not on this node."""
        raise NotImplementedError

    def find_noted(self, noted: Prepared) -> Device | None:
        """Return the device of an entry in the checkpoint."""
        return self.view.inventory.by_uuid(noted.uuid)

    def limited(self, _device: Device) -> bool:
        """Return True if the driver gives shares of a device only, and limits each."""
        return False

    def claim_uid(self, claim: ClaimedDevice) -> str:
        """Return the uid of a claim, "" if it is unknown."""
        return claim_uid(claim)

    def grants(self) -> Granted:
        """Return the grants by claims."""
        lost: list[ClaimedDevice] = []
        unknown: list[tuple[ClaimedDevice, Device | None]] = []
        for claim in dict.fromkeys(self._claims()):
            noted = self._noted(claim)
            shares = len(self._checkpoint.find(self.claim_uid(claim), claim.device, ""))
            has = has_device(self.view, claim, noted.request if noted is not None else "", shares)
            if has is False:
                continue
            device = self._device(claim)
            if has is None:
                unknown.append((claim, device))
            elif device is None:
                lost.append(claim)
            else:
                self._parts.setdefault(device.key, ClaimedPart(device, [], self.divides)).claims.append(claim)
        for claim, device in unknown:
            if device is not None:
                self._doubted.setdefault(device.key, set()).add(_share_key(claim))
        # A container may have the same device as another one of its claim, under a name that means none.
        for part in self._parts.values():
            if doubted := {_share_key(claim) for claim in lost if part.may_be_of(claim)}:
                self._doubted.setdefault(part.device.key, set()).update(doubted)
        held = [self._grant(part, holder) for part in self._parts.values() for holder in part.holders]
        unplaced = [(key, self.driver) for key in self._devices_of_unlisted_claims()]
        missing = [Grant(claim.holder, self.driver, None, may_be=self._may_be(claim)) for claim in lost]
        return Granted(grants=[*held, *missing, *self._of_unknown(unknown)], unplaced=unplaced)

    def _of_unknown(self, unknown: Iterable[tuple[ClaimedDevice, Device | None]]) -> Iterator[Grant]:
        """Yield grants to the containers that may have a device of a claim; each device counts once."""
        counted: set[tuple[str, str, str, str]] = set()
        for claim, device in unknown:
            about = f"{claim.claim_namespace}/{claim.claim}"
            self.view.object_to(self.name, "claim", about, remedy(self.view, claim))
            key = (claim.claim_namespace, claim.claim, claim.device, claim.share_id)
            yield Grant(
                holder=claim.holder,
                resource=self.driver,
                device=device,
                slices=int(key not in counted),
                for_unknown=True,
                may_be=self._may_be(claim),
            )
            counted.add(key)

    def _may_be(self, claim: ClaimedDevice) -> frozenset[DeviceKey] | None:
        """Return the devices that a claim may mean if it is of none for certain; None if it may be any."""
        if self.names.fullmatch(claim.device):
            return self.meant_by_name(claim.device)
        noted = self._noted(claim)
        return self.view.inventory.meant_by_uuid(noted.uuid) if noted is not None and noted.uuid else None

    def meant_by_name(self, _name: str) -> frozenset[DeviceKey] | None:
        """Return the devices that a name without a device may mean; None if it may be any of the maker's."""
        return None

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode by the number of holders; the number of possible shares is unknown on the node."""
        part = self._parts.get(device.key)
        counted = not_counted(offer.slices)
        if self.limited(device):
            return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)
        if device.key in self._doubted:
            return DeviceSharing(sharing="dra", isolation="", slices=counted)
        if part is None:
            return DeviceSharing(slices=counted)
        if part.alone:
            return DeviceSharing(sharing=self.mode_alone(device), isolation="hard", slices=counted)
        serves_mps = device.mig is None and device.gpu.compute_mode == "exclusive_process"
        mode, isolation = ("mps", "soft") if serves_mps or device.has_mps_clients else ("dra", "none")
        return DeviceSharing(sharing=mode, isolation=isolation, slices=counted)

    def mode_alone(self, device: Device) -> str:
        """Return the mode of a device that one container has."""
        return "exclusive" if device.mig is None else "mig"

    def entitled(self, part: ClaimedPart, holder: ContainerRef) -> Entitled:
        """Return what a container is entitled to: the device, an equal part, or the sum of its shares."""
        if part.in_shares or self.limited(part.device):
            return self._entitled_by_shares(part, holder)
        claims = {(claim.claim_namespace, claim.claim) for claim in part.claims}
        if len(claims) > 1 and not part.alone:
            return Entitled()
        return _equal_part(Entitled(part.device.memory, part.device.compute), len(part.holders))

    def _entitled_by_shares(self, part: ClaimedPart, holder: ContainerRef) -> Entitled:
        """Return the sum of a container's shares, as far as the checkpoint has them."""
        shares = [
            _equal_part(self.limits(part, claim), len(part.sharers(claim))) for claim in part.of(holder)
        ]
        return Entitled(total([share.memory for share in shares]), total([share.compute for share in shares]))

    def limits(self, _part: ClaimedPart, claim: ClaimedDevice) -> Entitled:
        """Return the limits of a claim on a shared device."""
        noted = self._noted(claim)
        return Entitled(noted.memory, noted.compute) if noted is not None else Entitled()

    def meter(self, _part: ClaimedPart, _holder: ContainerRef) -> Meter | None:
        """Return the figures of the driver's own meter for a container."""
        return None

    def _exclusive(self, part: ClaimedPart) -> bool:
        """Return True if no other container can have a part of the device."""
        return part.alone and not self.limited(part.device)

    def _grant(self, part: ClaimedPart, holder: ContainerRef) -> Grant:
        unsure = self._may_be_shared(part, holder)
        entitled = Entitled() if unsure else self.entitled(part, holder)
        return Grant(
            holder=holder,
            resource=self.driver,
            device=part.device,
            slices=len({(claim.device, claim.share_id) for claim in part.of(holder)}),
            memory_entitled=entitled.memory,
            compute_entitled=entitled.compute,
            meter=None if unsure else self.meter(part, holder),
            exclusive=self._exclusive(part) and not unsure,
            claims=tuple(sorted({self._held_claim(claim) for claim in part.of(holder)})),
            health=worst_health(
                entry.health
                for entry in self.view.health(holder)
                if any(is_health_of(claim, entry.device_id) for claim in part.of(holder))
            ),
        )

    def _may_be_shared(self, part: ClaimedPart, holder: ContainerRef) -> bool:
        """Return True if it is unknown whether another container has the same device, or the same share."""
        doubted = self._doubted.get(part.device.key, set())
        return bool(doubted) and (
            not part.in_shares or any(_share_key(claim) in doubted for claim in part.of(holder))
        )

    def _held_claim(self, claim: ClaimedDevice) -> HeldClaim:
        noted = self._noted(claim)
        return HeldClaim(
            namespace=claim.claim_namespace,
            name=claim.claim,
            request=noted.request if noted is not None else "",
            driver=claim.driver,
            pool=claim.pool,
            device=claim.device,
        )

    def _claims(self) -> Iterator[ClaimedDevice]:
        """Yield each share of each claim, with the checkpoint's share id, without admin access."""
        for claim in self.view.allocations.claims:
            if claim.driver != self.driver:
                continue
            noted = self._checkpoint.find(self.claim_uid(claim), claim.device, claim.share_id)
            if not noted:
                yield claim
            yield from (replace(claim, share_id=share.share_id) for share in noted if not share.admin)

    def _devices_of_unlisted_claims(self) -> Iterator[DeviceKey]:
        """Yield the devices that are prepared for claims that the kubelet does not list.

        By default kubelets before 1.34 list no claims, and no kubelet lists those of init containers.
        """
        listed = {
            (self.claim_uid(claim), claim.device)
            for claim in self.view.listed_claims
            if claim.driver == self.driver
        }
        for (uid, name), shares in self._checkpoint.held().items():
            if (uid, name) in listed or ("", name) in listed:
                continue
            named = self.find(name) if self.names.fullmatch(name) else None
            for device in (named or self.find_noted(share) for share in shares):
                if device is not None:
                    yield device.key

    def _noted(self, claim: ClaimedDevice) -> Prepared | None:
        shares = self._checkpoint.find(self.claim_uid(claim), claim.device, claim.share_id)
        return shares[0] if shares else None

    def _device(self, claim: ClaimedDevice) -> Device | None:
        """Return the device with the claim's device name, else with the uuid in the checkpoint."""
        device = None
        if self.names.fullmatch(claim.device):
            device = self.find(claim.device)
        else:
            about = f"{claim.holder.namespace}/{claim.holder.pod}: {claim.device[:100]}"
            self.view.object_to(self.name, "id", about, f"is not a device name of {self.driver}")
        noted = self._noted(claim) if device is None else None
        return self.find_noted(noted) if noted is not None else device


def claim_uid(claim: ClaimedDevice) -> str:
    """Return the uid of a claim from its CDI names, "" if they do not have just one.

    Kubelets list the CDI names of the container's other devices too.
    """
    matches = (match for name in claim.cdi if (match := CDI_NAME.fullmatch(name)))
    uids = {match[2] for match in matches if match[1] == claim.driver and _is_device(claim, match[3])}
    return uids.pop() if len(uids) == 1 else ""


def _is_device(claim: ClaimedDevice, name: str) -> bool:
    """Return True if a name in CDI, without the claim's uid, is that of the device."""
    form = CDI_DEVICES.get(claim.driver, "{device}")
    share = re.escape(claim.share_id) or ".+"
    return re.fullmatch(form.format(device=re.escape(claim.device), share=share), name) is not None


def is_health_of(claim: ClaimedDevice, resource_id: str) -> bool:
    """Return whether the status of a pod names this device: by a CDI name, or by driver, pool and device.

    The kubelet writes the first CDI name of a device; the list of a claim also has those of other devices.
    """
    if resource_id in claim.cdi:
        match = CDI_NAME.fullmatch(resource_id)
        return _is_device(claim, match[3] if match is not None else resource_id.partition("=")[2])
    return resource_id == f"{claim.driver}/{claim.pool}/{claim.device}"


_share_key = attrgetter("claim_namespace", "claim", "share_id")


def _equal_part(whole: Entitled, holders: int) -> Entitled:
    memory, compute, _ = whole
    return Entitled(
        None if memory is None else memory // holders, None if compute is None else compute / holders
    )
