"""What every sharing system has to tell: whose an id is, how a device is shared, what a holder is due."""

from dataclasses import dataclass
from typing import Protocol

from exporter.model import ContainerRef, DeviceSharing, Holding, SliceCount
from exporter.sharing.inventory import Device, Inventory


@dataclass(frozen=True, slots=True)
class Claim:
    """An id that is a system's own: the device that it names, None where that device is not here.

    ``replica``: the id is one of several on the same device.
    """

    device: Device | None = None
    replica: bool = False


class System(Protocol):
    """One way to share GPUs. A device that no id names is told by the system of its ``vendor``."""

    vendor: str

    def claim(self, inventory: Inventory, resource: str, device_id: str) -> Claim | None:
        """Say what an id of the kubelet means, None where it is not this system's."""

    def sharing(
        self, device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
    ) -> DeviceSharing:
        """Tell the mode of a device and what keeps its holders apart."""

    def holding(
        self, device: Device, sharing: DeviceSharing, resource: str, holder: ContainerRef, slices: int
    ) -> Holding:
        """State what a container is entitled to that holds so many ids of a device."""
