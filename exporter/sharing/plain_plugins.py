"""Device plugins with ids that name the device, and need nothing else: AMD, Intel, nos, nvshare."""

import re
from collections import Counter
from itertools import chain

from exporter.model import ContainerRef, DeviceKey, DeviceSharing
from exporter.sharing.base import (
    GIBIBYTE,
    Entitled,
    Grant,
    Granted,
    HeldSlices,
    Meaning,
    Offer,
    System,
    not_counted,
    unread_device,
)
from exporter.sharing.base.inventory import REPLICA_MARK, Device
from exporter.sharing.base.view import View

# Other plugins of the same vendor have resources under amd.com too, such as network cards.
AMD = re.compile(r"amd\.com/(?:gpu|[a-z]px_nps[0-9]+)")
PCI_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class Amd(System):
    """AMD's own plugin: whole GPUs, and partitions of MI300 and later GPUs.

    The id of a whole GPU or of the first partition is its PCI address (``0000:19:00.0``), that of further
    partitions their platform device (``amdgpu_xcp_4``, with a dot in older kernels). A device has one holder;
    the hardware isolates compute units and memory of partitions.
    """

    name = "amd"
    vendor = "amd"
    maker = "amd"

    def knows(self, resource: str) -> bool:
        return AMD.fullmatch(resource) is not None

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        if not self.knows(resource):
            return None
        # A PCI address in the form that readings have.
        match = PCI_ADDRESS.fullmatch(device_id)
        bus_id = f"{match[1].upper():0>8}:{match[2].upper()}:{match[3].upper()}.{match[4]}" if match else ""
        for device in self.view.inventory.devices:
            identity, mig = device.gpu.identity, device.mig
            named = identity.pci_bus_id == bus_id if mig is None else _plain(mig.uuid) == _plain(device_id)
            if identity.vendor == self.vendor and named:
                return Meaning(device)
        return Meaning()

    def may_be(self, device_id: str) -> frozenset[DeviceKey] | None:
        """Return the partitions without a name, which an id of no known partition may mean."""
        amd = (device for device in self.view.inventory.devices if device.gpu.identity.vendor == self.vendor)
        nameless = frozenset(device.key for device in amd if "/" in device.key.mig_uuid)
        return super().may_be(device_id) if PCI_ADDRESS.fullmatch(device_id) else nameless

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode of a whole GPU or partition, which have at most one holder."""
        if device.mig is not None or offer.slices:
            mode = "exclusive" if device.mig is None else "amd-partition"
            return DeviceSharing(sharing=mode, isolation="hard", exclusive=True, slices=offer.slices)
        if offer.known and device.gpu.up:
            return DeviceSharing(sharing="none", isolation="none")
        return DeviceSharing()

    def entitlement(self, device: Device, _sharing: DeviceSharing, _held: HeldSlices) -> Entitled:
        """Return the memory of the device, and its share of the GPU's compute units."""
        return Entitled(device.memory, device.compute)


def _plain(name: str) -> str:
    return name.replace(".", "_")


INTEL = re.compile(r"gpu\.intel\.com/(?:i915|xe|dxg)")
INTEL_MONITORING = re.compile(r"gpu\.intel\.com/(?:(?:i915|xe)_)?monitoring")
INTEL_ID = re.compile(r"card(0|[1-9][0-9]{0,5})-[0-9]{1,6}")


class Intel(System):
    """Intel's own plugin: whole GPUs, or GPUs shared by several containers without limits.

    An id is the DRM card of the GPU and a number (``card0-3``). No driver reads these GPUs: only their
    holders are known. The monitoring resource gives access to every GPU and is not a holding.
    """

    name = "intel"
    vendor = "intel"
    maker = "intel"
    isolation = "none"
    own = INTEL

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = Counter(
            (resource, int(match[1]))
            for resource, ids in view.offered.items()
            if self.knows(resource)
            for device_id in ids
            if (match := INTEL_ID.fullmatch(device_id))
        )

    def grants(self) -> Granted:
        granted = Granted()
        for holder, by_resource in self.view.held.items():
            for resource, ids in by_resource.items():
                if INTEL.fullmatch(resource):
                    granted.grants += self._of_holder(holder, resource, ids)
                if INTEL.fullmatch(resource) or INTEL_MONITORING.fullmatch(resource):
                    granted.settle(holder, [resource])
        return granted

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        match = INTEL_ID.fullmatch(device_id) if self.knows(resource) else None
        return Meaning(_card(int(match[1])), replica=True) if match is not None else None

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: exclusive for a card with one slice."""
        if [count.offered for count in offer.slices] == [1]:
            return DeviceSharing(sharing="exclusive", isolation="hard", exclusive=True, slices=offer.slices)
        return super().sharing(device, offer)

    def _of_holder(self, holder: ContainerRef, resource: str, ids: frozenset[str]) -> list[Grant]:
        slices_by_card = Counter(self._number(holder, resource, device_id) for device_id in sorted(ids))
        return [
            Grant(
                holder=holder,
                resource=resource,
                device=None if card is None else _card(card),
                slices=held,
                compute_entitled=1.0 if card is not None and self._offered[resource, card] == 1 else None,
            )
            for card, held in slices_by_card.items()
        ]

    def _number(self, holder: ContainerRef, resource: str, device_id: str) -> int | None:
        if (match := INTEL_ID.fullmatch(device_id)) is not None:
            return int(match[1])
        about = f"{holder.namespace}/{holder.pod}: {resource}"
        self.view.object_to(self.name, "id", about, f"{device_id[:60]!r} does not name a card")
        return None


def _card(number: int) -> Device:
    return unread_device("intel", f"card{number}", "Intel GPU", number)


_NOS_ID = re.compile(r"(GPU-[^:]{1,80})::([1-9][0-9]{0,5})::[0-9]{1,9}")


class Nos(System):
    """nos of nebuly: slices of GPU memory by MPS, with its fork of NVIDIA's device plugin.

    An id is ``<UUID of the GPU>::<GB>::<n>``. The plugin limits each process to ``<GB>G`` of memory, which
    MPS reads as GiB. Its partitioner counts a GB for every 1000 MiB, so that the slices of a GPU may exceed
    its memory. Compute is not limited. MIG devices that nos makes belong to NVIDIA's plugin.
    """

    name = "nos"
    isolation = "soft"

    def owns(self, _resource: str, device_id: str) -> bool:
        """Return True if an id has three parts, which only ids of this plugin have."""
        return device_id.startswith("GPU-") and device_id.count(REPLICA_MARK) == 2

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        if not self.owns(resource, device_id):
            return None
        match = _NOS_ID.fullmatch(device_id)
        if match is None:
            self.view.object_to(self.name, "id", resource, f"{device_id[:100]!r} is not UUID::GB::number")
            return Meaning()
        return Meaning(self.view.inventory.by_uuid(match[1]), replica=True)

    def entitlement(self, device: Device, _sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        matches = map(_NOS_ID.fullmatch, self.view.held[held.holder][held.resource])
        sizes = (int(match[2]) for match in matches if match and match[1] == device.key.uuid)
        return Entitled(sum(sizes) * GIBIBYTE)


_NVSHARE_ID = re.compile(r"(GPU-[^/:]{1,64})__[0-9]{1,9}")
NVSHARE_PLUGIN = "nvshare-device-plugin"


class Nvshare(System):
    """nvshare: containers take turns on a whole GPU, each with the full memory.

    An id is the UUID of the GPU and a number. Holders have no limits, and so no entitlement. The plugin
    itself gets the GPU from NVIDIA's plugin, to share it: it is not a holder.
    """

    name = "nvshare"
    isolation = "none"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        held = (device_id for _, _, device_id in view.allocations.allocated)
        offered = (device_id for _, device_id in view.allocations.offered or ())
        # Filtered first, because other plugins have tens of thousands of ids.
        own = (device_id for device_id in chain(held, offered) if "__" in device_id)
        self._shared = {match[1] for device_id in own if (match := _NVSHARE_ID.fullmatch(device_id))}

    def owns(self, _resource: str, device_id: str) -> bool:
        return _NVSHARE_ID.fullmatch(device_id) is not None

    def grants(self) -> Granted:
        """Settle the ids that the plugin holds for others."""
        return Granted(settled=self._of_plugin())

    def meaning(self, _resource: str, device_id: str) -> Meaning | None:
        """Return the GPU of an id, also of an id of NVIDIA's plugin for a GPU that nvshare shares."""
        if (match := _NVSHARE_ID.fullmatch(device_id)) is not None:
            return Meaning(self.view.inventory.by_uuid(match[1]), replica=True)
        if not self._shared or (uuid := _uuid(device_id)) not in self._shared:
            return None
        return Meaning(self.view.inventory.by_uuid(uuid))

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; slices of the resource that the plugin itself holds are not counted."""
        counted = not_counted(offer.slices, {resource for _, resource in self._of_plugin()})
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)

    def _of_plugin(self) -> set[tuple[ContainerRef, str]]:
        return {
            (holder, resource)
            for holder, by_resource in self.view.held.items()
            for resource, ids in by_resource.items()
            if holder.container == NVSHARE_PLUGIN and self._shared.issuperset(map(_uuid, ids))
        }


def _uuid(device_id: str) -> str:
    """Return the UUID in an id of NVIDIA's plugin, "" for an id with more parts, of another plugin."""
    uuid, _, replica = device_id.partition(REPLICA_MARK)
    return "" if REPLICA_MARK in replica else uuid
