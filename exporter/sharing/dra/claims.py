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
from typing import ClassVar

from exporter.model import ClaimedDevice, ContainerRef, DeviceKey, DeviceSharing, HeldClaim, Meter, total
from exporter.model.kubelet import worst_health
from exporter.sharing.base import Entitled, Grant, Granted, Offer, System, not_counted
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.dra.cdi import claim_uid, is_health_of
from exporter.sharing.dra.checkpoint import NVIDIA, Checkpoint, Form, Prepared
from exporter.sharing.dra.parts import ClaimedPart, share_key
from exporter.sharing.dra.requests import has_device, remedy

NUMBER = "[0-9]{1,9}"


class ClaimSystem(System):
    """The devices of one DRA driver."""

    driver: ClassVar[str] = ""
    names: ClassVar[re.Pattern[str]]  # matches the driver's device names
    form: ClassVar[Form] = NVIDIA  # of the driver's checkpoint
    partition_mode: ClassVar[str] = "mig"  # the mode of a MIG device or partition that one container has
    divides: ClassVar[bool] = True  # a share id means a share of a device, not a device of its own
    marks_admin: ClassVar[bool] = True  # the checkpoint has which claims have admin access

    def __init__(self, view: View) -> None:
        super().__init__(view)
        files = view.files(self.name)
        self._checkpoint = files if isinstance(files, Checkpoint) else Checkpoint()
        # There is a checkpoint, and it could not be read yet.
        self._unreadable = self.marks_admin and bool(files.problems) and not self._checkpoint.prepared
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

    def offers_unlisted(self) -> bool:
        """Return True if the driver runs here: it has a checkpoint, or a container has a claim of it."""
        files = self.view.files(self.name)
        noted = isinstance(files, Checkpoint) and not files.missing
        return noted or any(claim.driver == self.driver for claim in self.view.listed_claims)

    def grants(self) -> Granted:
        lost: list[ClaimedDevice] = []
        unknown: list[tuple[ClaimedDevice, Device | None]] = []
        for claim in dict.fromkeys(self._claims()):
            noted = self._noted(claim)
            shares = len(self._checkpoint.find(self.claim_uid(claim), claim.device, ""))
            has = has_device(self.view, claim, noted.request if noted is not None else "", shares)
            if has is False:
                continue
            if noted is None and self._unreadable:
                # It may have admin access, and hold nothing.
                has = None
            device = self._device(claim)
            if has is None:
                unknown.append((claim, device))
            elif device is None:
                lost.append(claim)
            else:
                self._parts.setdefault(device.key, ClaimedPart(device, [], self.divides)).claims.append(claim)
        for claim, device in unknown:
            if device is not None:
                self._doubted.setdefault(device.key, set()).add(share_key(claim))
        # A container may have the same device as another one of its claim, under a name that means none.
        for part in self._parts.values():
            if doubted := {share_key(claim) for claim in lost if part.may_be_of(claim)}:
                self._doubted.setdefault(part.device.key, set()).update(doubted)
        held = [self._grant(part, holder) for part in self._parts.values() for holder in part.holders]
        unplaced = [(key, self.driver) for key in self._devices_of_unlisted_claims()]
        # Without a checkpoint it is unknown which of several claims has admin access and holds nothing.
        unplaced += [(key, self.driver) for key, part in self._parts.items() if self._may_monitor(part)]
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

    def _may_monitor(self, part: ClaimedPart) -> bool:
        several = len({(claim.claim_namespace, claim.claim) for claim in part.claims}) > 1
        return several and not part.in_shares and any(self._noted(claim) is None for claim in part.claims)

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
            mode = "exclusive" if device.mig is None else self.partition_mode
            return DeviceSharing(sharing=mode, isolation="hard", slices=counted)
        serves_mps = device.mig is None and device.gpu.compute_mode == "exclusive_process"
        mode, isolation = ("mps", "soft") if serves_mps or device.has_mps_clients else ("dra", "none")
        return DeviceSharing(sharing=mode, isolation=isolation, slices=counted)

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
            exclusive=part.alone and not self.limited(part.device) and not unsure,
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
            not part.in_shares or any(share_key(claim) in doubted for claim in part.of(holder))
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


def _equal_part(whole: Entitled, holders: int) -> Entitled:
    memory, compute, _ = whole
    return Entitled(
        None if memory is None else memory // holders, None if compute is None else compute / holders
    )
