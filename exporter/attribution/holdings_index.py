"""Holdings by device, what of a row follows from them alone, and GPUs that are partitioned."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from exporter.model import ContainerRef, DeviceKey, DeviceSharing, GpuReading, Holding, Holdings
from exporter.model.sums import total


class Entitlement(NamedTuple):
    """What a container has of a device, as a row tells it."""

    resource: str
    sharing: str
    isolation: str
    slices: int | None
    memory: int | None
    compute: float | None


class HoldingsIndex:
    """The holdings of a node by device and container. ``holdings`` are never changed."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings
        self._held: dict[DeviceKey, dict[ContainerRef, list[Holding]]] = {}
        for holding in holdings.holdings:
            of_device = self._held.setdefault(holding.device, defaultdict(list))
            of_device[holding.holder].append(holding)
        self._unresolved_pods = {ref.pod_name for ref in holdings.unresolved_holders}
        self._entitled: dict[tuple[DeviceKey, ContainerRef], tuple[DeviceSharing, Entitlement]] = {}

    def on(self, key: DeviceKey) -> dict[ContainerRef, list[Holding]]:
        """Return the holdings of one device by container."""
        return self._held.get(key, {})

    def entitlement(self, key: DeviceKey, sharing: DeviceSharing, ref: ContainerRef) -> Entitlement:
        """Return what a container has of a device that is shared like this."""
        known = self._entitled.get((key, ref))
        if known is not None and known[0] is sharing:
            return known[1]
        entitlement = self._entitlement(key, sharing, ref)
        if ref in self.on(key):
            # Those who hold nothing come and go.
            self._entitled[key, ref] = sharing, entitlement
        return entitlement

    def _entitlement(self, key: DeviceKey, sharing: DeviceSharing, ref: ContainerRef) -> Entitlement:
        # What counts the slices stands first.
        held = sorted(self.on(key).get(ref, []), key=attrgetter("beside"))
        own = next((holding for holding in held if holding.sharing), sharing)
        return Entitlement(
            resource=",".join(dict.fromkeys(holding.resource for holding in held)),
            sharing=own.sharing,
            isolation=own.isolation,
            slices=self._slices(key, ref, held),
            memory=total([holding.memory_entitled for holding in held]) if held else None,
            compute=total([holding.compute_entitled for holding in held]) if held else None,
        )

    def _slices(self, key: DeviceKey, ref: ContainerRef, held: list[Holding]) -> int | None:
        """Rule 7: 0 slices says that nothing is held here, which must be known, not just unseen.

        What is held in several units counts in the first.

        The kubelet lists neither init nor ephemeral containers: beside a holder of the same pod, a
        container that is not listed may well hold the device. Nothing is known of a pod that is not listed.
        """
        if held:
            return sum(holding.slices for holding in held if not holding.beside)
        listed = self.holdings.listed
        pod_holds = any(other.pod_name == ref.pod_name for other in self.on(key))
        unsure = not self.holdings.known or ref.pod_name in self._unresolved_pods
        unsure = unsure or ref._replace(container="") not in listed
        unsure = unsure or (pod_holds and (not ref.container or ref not in listed))
        unsure = unsure or key in self.holdings.unplaced
        return None if unsure else 0


NOT_KNOWN = HoldingsIndex(Holdings(known=False))


NVIDIA, AMD = "nvidia", "amd"


def cut_mode(gpu: GpuReading, modes: Iterable[str]) -> str:
    """Return the mode of a partitioned GPU: that of its parts if one is shared further."""
    if gpu.identity.vendor == AMD:
        return "amd-partition"
    return "mig-time-slicing" if "mig-time-slicing" in modes else "mig"


def slices_used(gpu: GpuReading) -> int | None:
    """Count the compute slices that GPU instances take; None without MIG or where it cannot be told."""
    if not gpu.mig_enabled or gpu.mig is None or not gpu.mig_complete or not gpu.up:
        return None
    return total(list({mig.gi: mig.instance_slices for mig in gpu.mig}.values()))


def are_all_told(gpu: GpuReading, unresolved: Collection[ContainerRef]) -> bool:
    """Whether no device of a GPU is missing that somebody holds; ``unresolved`` have ids that lead nowhere.

    KFD hides partitions for good from those who may not use them. A MIG device is known from before, but for
    one that was cut while the driver did not tell: its holder is one of those.
    """
    if gpu.identity.vendor == AMD:
        return gpu.mig_complete
    told = gpu.mig_complete and (gpu.mig_enabled is not None or gpu.identity.vendor != NVIDIA)
    return told or not unresolved
