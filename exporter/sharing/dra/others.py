"""Claims of DRA drivers that are not known here: their devices may be GPUs of this node.

Such a claim is unresolved, under the name of its driver. It makes the devices that it may mean doubtful,
unless its names are those of another kind of device, such as a network card. Names are those of the driver
(``dra.net``), of the device (``cpu-3``), and of its CDI device (``example.com/nic=eth0``, in the form of
https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md).
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from exporter.model import ClaimedDevice, DeviceKey
from exporter.sharing.base import Grant, Granted, System
from exporter.sharing.base.view import View

GPU_WORDS = frozenset({"gpu", "gpus", "vgpu", "mig", "cuda"})
# fmt: off
OTHER_WORDS = frozenset({
    "afxdp", "asic", "audio", "block", "bond", "camera", "codec", "cpu", "cpudev", "cpus", "cpuset", "csi",
    "cxl", "disk", "dpu", "dranet", "dsa", "efa", "ena", "eth", "ethernet", "fpga", "fuse", "gaudi", "hca",
    "hpu", "hugepage", "hugepages", "iaa", "ib", "infiniband", "ipvlan", "kvm", "macvlan", "mem", "memory",
    "mlx", "mrdma", "net", "netdev", "network", "networking", "neuron", "neurons", "nic", "nics", "npu",
    "npus", "numa", "nvme", "ovs", "pmem", "qat", "qatvf", "qpu", "rdma", "roce", "sensor", "serial",
    "sgx", "smartnic", "sound", "sriov", "sriovnetwork", "storage", "tap", "tpm", "tpu", "tpus", "tty",
    "tun", "usb", "vdpa", "virtio", "vlan", "volume", "vpu",
})
# fmt: on
# NVIDIA's driver for compute domains gives out channels between nodes; DraNet gives out network interfaces.
NOT_OF_GPUS = frozenset({"compute-domain.nvidia.com", "dra.net"})
# Makers of accelerators that no reader here lists.
OTHER_MAKERS = re.compile(
    r"(?:.+\.)?(?:intel|google|aws|amazonaws|huawei|furiosa|tenstorrent|rebellions)\.\w+"
)
PCI_ADDRESS = re.compile(
    r"(?<![0-9a-f])([0-9a-f]{4,8})[:-]([0-9a-f]{2})[:-]([0-9a-f]{2})[.-]([0-7])(?![0-9a-f])", re.IGNORECASE
)
WORD = re.compile(r"[a-z]+")


def may_be_of_gpus(claimed: ClaimedDevice) -> bool:
    """Return False if the names of a claimed device are those of another kind of device."""
    if claimed.driver in NOT_OF_GPUS:
        return False
    # Without the top level domain, which may be "net".
    driver = claimed.driver.rpartition(".")[0] or claimed.driver
    cdi_classes = [name.partition("=")[0].rpartition("/")[2] for name in _own_cdi(claimed)]
    for names in (cdi_classes, (driver,), (claimed.device,)):
        words = {word for name in names for word in WORD.findall(name.lower())}
        of_gpus, of_others = bool(words & GPU_WORDS), bool(words & OTHER_WORDS)
        if of_gpus != of_others:
            return of_gpus
    return True


class OtherClaims(System):
    """The claims of all unknown drivers; ``known`` are the names of the others."""

    name = "unknown-dra"
    known: ClassVar[frozenset[str]] = frozenset({""})

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._claims = [
            claimed
            for claimed in view.allocations.claims
            if claimed.driver not in self.known
            and not any(pattern.fullmatch(claimed.driver) for pattern in view.facts.ignored_drivers)
            and may_be_of_gpus(claimed)
        ]

    def grants(self) -> Granted:
        """Return unresolved grants; each share of a device counts once."""
        drivers = frozenset(claimed.driver for claimed in self._claims)
        return Granted(grants=list(self._unresolved()), unknown_drivers=drivers)

    def _unresolved(self) -> Iterator[Grant]:
        counted: set[tuple[str, ...]] = set()
        for claimed in self._claims:
            share = (claimed.driver, claimed.pool, claimed.device, claimed.share_id)
            yield Grant(
                holder=claimed.holder,
                resource=claimed.driver,
                device=None,
                slices=int(share not in counted),
                may_be=self._may_be(claimed),
            )
            counted.add(share)

    def _may_be(self, claimed: ClaimedDevice) -> frozenset[DeviceKey]:
        """Return the devices that a name has the UUID or PCI address of, else all of the driver's maker."""
        inventory = self.view.inventory
        names = (claimed.device, *_own_cdi(claimed))
        by_uuid = frozenset[DeviceKey]().union(*map(inventory.meant_by_uuid, names))
        if by_uuid:
            return by_uuid
        matches = filter(None, map(PCI_ADDRESS.search, names))
        addresses = ["{}:{}:{}.{}".format(*match.groups()) for match in matches]
        if addresses:
            return frozenset().union(*map(inventory.meant_by_bus_id, addresses))
        if OTHER_MAKERS.fullmatch(claimed.driver):
            return frozenset()
        makers = {maker for maker in ("nvidia", "amd") if claimed.driver.endswith(f".{maker}.com")}
        vendors = {device.key: device.gpu.identity.vendor for device in inventory.devices}
        return frozenset(key for key, vendor in vendors.items() if not makers or vendor in makers)


def _own_cdi(claimed: ClaimedDevice) -> list[str]:
    """Return the CDI names of a device; kubelets list those of other devices of the container too."""
    own = f"{claimed.driver}/"
    return [name for name in claimed.cdi if own in name or name.partition("=")[2].endswith(claimed.device)]
