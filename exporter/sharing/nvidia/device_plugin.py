"""NVIDIA's device plugin (and GKE's): exclusive GPUs, time-slicing, MPS, MIG, and MIG with time-slicing.

A device id has the device and, if it is shared, a replica. The number of replicas follows from the
allocatable and held ids (``replicas.py``), or from a node label if the kubelet reports no allocatable ids.
``strategy.py`` decides between MPS and time-slicing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from exporter.model import DeviceKey, DeviceSharing, SliceCount
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.system import MEBIBYTE, Claim, Entitled, HeldSlices, Offer, Read, System, words_of
from exporter.sharing.base.view import View
from exporter.sharing.nvidia.replicas import UNKNOWN, Cut, cuts
from exporter.sharing.nvidia.strategy import LABELS, Strategies, Strategy, read_daemons

RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-[^/]+?)(\.shared)?")
MODES: Mapping[Strategy, tuple[str, str]] = {
    "mps": ("mps", "soft"),
    "time-slicing": ("time-slicing", "none"),
    "": ("unknown", ""),
}
"""Mode and isolation of a GPU with replicas."""


class Share(NamedTuple):
    """``slices`` of the ``replicas`` of a device."""

    slices: int
    replicas: int


class Resources:
    """The names of NVIDIA resources: the plugin's own, and those that match an extra pattern."""

    def __init__(self, patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._patterns = (RESOURCES, *patterns)

    def named(self, resource: str) -> bool:
        """Return True if a resource has an NVIDIA name."""
        return any(pattern.fullmatch(resource) for pattern in self._patterns)


class Nvidia(System):
    """NVIDIA's plugin and GKE's. A resource with any other name counts if its ids are UUIDs of devices.

    Plugins can rename their resources; the patterns in the settings match those names.
    """

    name = "nvidia"
    vendor = "nvidia"
    notes = LABELS
    words = words_of("GPU MIG nvidia gi vgpu mps time slicing sharing none")
    read: ClassVar[Read | None] = staticmethod(read_daemons)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._strategies = Strategies(view)
        self._resources = Resources(view.facts.patterns)
        self._cuts: dict[str, Mapping[DeviceKey, Cut]] = {}

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the device of an id in any form of these plugins."""
        named = self._resources.named(resource)
        parsed = parse_device_id(device_id)
        device = self.view.inventory.find(parsed) if parsed is not None and (named or parsed.uuid) else None
        if device is not None and parsed is not None:
            return Claim(device, bool(parsed.replica))
        return Claim() if named else None

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: time-slicing, MPS, MIG, exclusive or none."""
        offer = offer._replace(slices=tuple(self._counted(device, count) for count in offer.slices))
        mode, isolation = self._mode(device, offer)
        exclusive = not offer.replicated and mode != "vgpu" and isolation == "hard"
        return DeviceSharing(sharing=mode, isolation=isolation, exclusive=exclusive, slices=offer.slices)

    def entitlement(self, device: Device, sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        """Return what a container is entitled to: the device, or its replicas' share of it.

        MPS enforces the share; with time-slicing it is notional, because a replica guarantees nothing.
        """
        replicas = 1 if sharing.exclusive else self._replicas(sharing, held.resource)
        if not replicas or replicas < held.slices:
            return Entitled()
        share = Share(held.slices, replicas)
        return Entitled(self._memory(device, sharing, held.resource, share), _compute(device, share))

    def _counted(self, device: Device, count: SliceCount) -> SliceCount:
        """Return the slices that the plugin made of a device, healthy or not."""
        if count.offered is None:
            return count
        cut = self._cuts_of(count.resource).get(device.key, UNKNOWN)
        return count._replace(offered=cut.slices, unhealthy=cut.unhealthy, lost=cut.lost)

    def _cuts_of(self, resource: str) -> Mapping[DeviceKey, Cut]:
        if resource not in self._cuts:
            cuts_by_id = cuts(resource, self.view.allocations, self.view.facts.node)
            devices = ((self.view.inventory.find(name), cut) for name, cut in cuts_by_id.items())
            self._cuts[resource] = {device.key: cut for device, cut in devices if device is not None}
        return self._cuts[resource]

    def _mode(self, device: Device, offer: Offer) -> tuple[str, str]:
        strategies = {self._strategies.of(device, count.resource) for count in offer.slices}
        strategy: Strategy = min(strategies - {""}, default="") if offer.replicated else ""
        if device.mig is not None and strategy != "mps":
            return ("mig-time-slicing", "none") if offer.replicated else ("mig", "hard")
        if offer.slices:
            return MODES[strategy] if offer.replicated else ("exclusive", "hard")
        if device.gpu.virtualization == "vgpu_host":
            return "vgpu", "hard"
        # A GPU with an unknown MIG mode may have MIG devices with holders.
        known = offer.known and device.gpu.up and device.gpu.mig_enabled is not None
        return ("none", "none") if known else ("unknown", "")

    def _replicas(self, sharing: DeviceSharing, resource: str) -> int | None:
        """Return the number of replicas of a shared device."""
        if self.view.allocations.offered is None:
            return self._strategies.replicas(resource)
        return next((count.offered for count in sharing.slices if count.resource == resource), None)

    def _memory(self, device: Device, sharing: DeviceSharing, resource: str, share: Share) -> int | None:
        total = device.memory
        if total is None:
            return None
        if sharing.sharing != "mps":
            return total * share.slices // share.replicas
        # MPS limits are whole MiB. NVIDIA's daemon has one limit for all clients, GKE's plugin one for each
        # container. On a MIG device GKE's is computed from the whole GPU and may exceed the container's part.
        if self._strategies.is_gke(resource):
            return total * share.slices // share.replicas // MEBIBYTE * MEBIBYTE
        return total // share.replicas // MEBIBYTE * MEBIBYTE * share.slices


def _compute(device: Device, share: Share) -> float | None:
    """Return a share of the physical GPU's compute."""
    if device.mig is None:
        return share.slices / share.replicas
    if device.mig.compute_slices is None or not device.gpu.mig_slices:
        return None
    return device.mig.compute_slices * share.slices / (device.gpu.mig_slices * share.replicas)
