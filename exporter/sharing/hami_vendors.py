"""HAMi's devices of other vendors than NVIDIA, each by the resources and annotations that HAMi has for it.

Memory stands in MiB in every annotation, whatever the units of the resource; cores are percent where nothing
else is said.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.amd import PCI_ADDRESS
from exporter.sharing.hami_ascend import HamiAscend
from exporter.sharing.hami_vendor import HamiVendor, Kind, Told
from exporter.sharing.inventory import Device, pci_address
from exporter.sharing.system import System
from exporter.sharing.view import View


def _key(word: str) -> re.Pattern[str]:
    return re.compile(rf"hami\.io/{word}")


class HamiCambricon(HamiVendor):
    """Cambricon's MLUs, which its driver divides."""

    name = "hami-cambricon"
    maker = "cambricon"
    kinds = (Kind(_key("cambricon-mlu-devices-allocated")),)
    resources = re.compile(r"cambricon\.com/(vmlu|mlu(\..+)?)")
    counting = re.compile(r"cambricon\.com/v?mlu")


class HamiHygon(HamiVendor):
    """Hygon's DCUs."""

    name = "hami-hygon"
    maker = "hygon"
    kinds = (Kind(_key("dcu-devices-allocated")),)
    resources = re.compile(r"hygon\.com/dcu.*")
    counting = own = re.compile(r"hygon\.com/dcunum")
    registers = _key("node-dcu-register")


class HamiIluvatar(HamiVendor):
    """Iluvatar's GPUs. The name of the chip is part of each resource and annotation."""

    name = "hami-iluvatar"
    maker = "iluvatar"
    kinds = (Kind(_key("(?:(?:MR|BI)-[^/]+|iluvatar-vgpu)-devices-allocated")),)
    resources = re.compile(r"iluvatar\.ai/.+")
    counting = own = re.compile(r"iluvatar\.ai/.*vgpu")
    registers = _key("node-(?:MR|BI)-[^/]+-register")


class HamiMthreads(HamiVendor):
    """Moore Threads' GPUs, of which each has 16 cores to give out."""

    name = "hami-mthreads"
    maker = "mthreads"
    kinds = (Kind(_key("mthreads-vgpu-devices-allocated"), full=16),)
    resources = re.compile(r"mthreads\.com/(vgpu|sgpu-.+)")
    counting = re.compile(r"mthreads\.com/vgpu")


class HamiMetax(HamiVendor):
    """MetaX' GPUs, whole or in parts. The memory that is noted of a whole one is a fixed number."""

    name = "hami-metax"
    maker = "metax"
    kinds = (
        Kind(_key("metax-gpu-devices-allocated"), whole=True),
        Kind(_key("metax-sgpu-devices-allocated")),
    )
    resources = re.compile(r"metax-tech\.com/(gpu|sgpu|vcore|vmemory)")
    counting = re.compile(r"metax-tech\.com/s?gpu")


class HamiEnflame(HamiVendor):
    """Enflame's GCUs, whole or in slices after profiles. The amounts noted of a whole one are fixed."""

    name = "hami-enflame"
    maker = "enflame"
    kinds = (
        Kind(_key("enflame-gcu-devices-allocated"), whole=True),
        Kind(_key("enflame-vgpu-devices-allocated")),
    )
    resources = re.compile(r"enflame\.com/.+")
    counting = re.compile(r"enflame\.com/(drs-)?gcu")


class HamiKunlun(HamiVendor):
    """Kunlunxin's XPUs, whole or in parts. The amounts that are noted of a whole one are fixed."""

    name = "hami-kunlun"
    maker = "kunlunxin"
    kinds = (
        Kind(_key("kunlun-allocated"), whole=True),
        Kind(_key("xpu-devices-allocated")),
    )
    resources = re.compile(r"kunlunxin\.com/v?xpu.*")
    counting = re.compile(r"kunlunxin\.com/v?xpu")
    own = re.compile(r"kunlunxin\.com/vxpu")
    registers = _key("node-register-xpu")


class HamiBiren(HamiVendor):
    """Biren's GPUs, of which HAMi notes no amounts."""

    name = "hami-biren"
    maker = "biren"
    kinds = (Kind(_key("Biren-devices-allocated")),)
    resources = counting = re.compile(r"birentech\.com/gpu")
    registers = _key("node-biren-register")


class HamiVastai(HamiVendor):
    """Vastai's accelerators, of which HAMi notes no amounts."""

    name = "hami-vastai"
    maker = "vastai"
    kinds = (Kind(_key("Vastai-devices-allocated")),)
    resources = counting = re.compile(r"vastaitech\.com/va")
    registers = _key("node-va-register")


class HamiNeuron(HamiVendor):
    """AWS' Neuron devices. The cores that a container has of one stand there as the bits of a number.

    How many a device has is told by what the node offers of cores and of devices.
    """

    name = "hami-neuron"
    maker = "aws"
    kinds = (Kind(_key("aws-neuron-devices-allocated")),)
    resources = counting = re.compile(r"aws\.amazon\.com/neuron(core|device)?")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        offered = [each.resource for each in view.allocations.offered or ()]
        devices, cores = (offered.count(f"aws.amazon.com/{each}") for each in ("neuron", "neuroncore"))
        self._each = cores // devices if devices and cores % devices == 0 else 0

    def compute(self, _holder: ContainerRef, told: Told) -> float | None:
        """Count the bits."""
        cores = told.device.cores.bit_count()
        return cores / self._each if 0 < cores <= self._each else None


class HamiAmd(HamiVendor):
    """AMD's GPUs in parts: a library limits the memory, a mask the compute units, whose number is noted."""

    name = "hami-amd"
    isolation = "soft"
    maker = "amd"
    kinds = (Kind(_key("amd-devices-allocated")),)
    resources = re.compile(r"amd\.com/gpu(mem|cores)?")
    counting = re.compile(r"amd\.com/gpu")
    registers = _key("node-amd-register")

    def device(self, told: Told, ids: frozenset[str]) -> Device | None:
        """Find the GPU by its name, or by the PCI address that is the only id of its holder."""
        inventory = self.view.inventory
        named = inventory.by_uuid(told.device.uuid)
        if named is not None:
            return named if named.gpu.identity.vendor == self.maker else None
        addresses = [each for each in ids if PCI_ADDRESS.fullmatch(each)] if len(ids) == 1 else []
        found = (each for each in inventory.devices for address in addresses if self._is_at(each, address))
        return next(found, None)

    def compute(self, _holder: ContainerRef, told: Told) -> float | None:
        """State the compute units as a share of those that the plugin registered."""
        listed = self.registered.get(told.device.uuid)
        known = listed is not None and listed.cores is not None and told.device.cores > 0
        return told.device.cores / listed.cores if known and listed and listed.cores else None

    def _is_at(self, device: Device, address: str) -> bool:
        identity = device.gpu.identity
        whole = device.mig is None and identity.vendor == self.maker
        return whole and pci_address(identity.pci_bus_id) == pci_address(address)


HAMI_VENDORS: tuple[type[System], ...] = (
    HamiAscend,
    HamiCambricon,
    HamiHygon,
    HamiIluvatar,
    HamiMthreads,
    HamiMetax,
    HamiEnflame,
    HamiKunlun,
    HamiBiren,
    HamiVastai,
    HamiNeuron,
    HamiAmd,
)
