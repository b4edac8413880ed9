"""HAMi's devices of other makers, each by the resources and annotations that HAMi has for it."""

import re
from typing import ClassVar

from exporter.model import ContainerRef
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, System, whole_keys, words_of
from exporter.sharing.base.view import View
from exporter.sharing.hami.ascend import HamiAscend
from exporter.sharing.hami.vendor_base import WORDS, HamiVendor, Kind, Told
from exporter.sharing.others.amd_plugin import Amd

GPU = "amd.com/gpu"
SLICE = re.compile(r"([^#]{1,64})#[0-9]{1,4}")
SMI = re.compile(
    "([0-9a-f]{2})[0-9a-f]{2}[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{2}([0-9a-f]{2})-([0-9a-f]{12})"
)


class HamiAmd(HamiVendor):
    """AMD's GPUs in parts."""

    name = "hami-amd"
    isolation = "soft"
    maker = "amd"
    kinds = (Kind(re.compile(r"hami\.io/amd-devices-allocated")),)
    resources = re.compile(r"amd\.com/gpu(mem|cores)?")
    counting = own = re.compile(r"amd\.com/gpu")
    registers = re.compile(r"hami\.io/node-amd-register")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._plugin = Amd(view)
        ids = set(view.offered.get(GPU, ()))
        ids |= {
            allocation.device_id for allocation in view.allocations.allocated if allocation.resource == GPU
        }
        matches = map(SLICE.fullmatch, ids)
        self._names = {match[1] for match in matches if match is not None}

    def owns(self, resource: str, device_id: str) -> bool:
        """Whether an id is a slice of a GPU; AMD's plugin gives out whole ones by their names alone."""
        return resource == GPU and SLICE.fullmatch(device_id) is not None

    def is_told(self, ids: frozenset[str]) -> bool:
        """Whether annotations say what a container with these ids has: the plugin is HAMi's."""
        return any(SLICE.fullmatch(device_id) for device_id in ids)

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the GPU that a slice is offered with; the scheduler may have chosen another for its holder."""
        match = SLICE.fullmatch(device_id) if resource == GPU else None
        return Claim(self._named(match[1]), replica=True, nominal=True) if match is not None else None

    def device(self, part: Told) -> Device | None:
        """Find the GPU by what the node says of its name, by the name, or as the only one."""
        uuid = part.device.uuid
        listed, smi = self.registered.get(uuid), SMI.fullmatch(uuid)
        if listed is not None and listed.address:
            return self._named(listed.address)
        gpu = self.view.inventory.by_uuid(f"GPU-{smi[1]}{smi[2]}{smi[3]}" if smi is not None else uuid)
        if gpu is not None:
            return gpu if gpu.gpu.identity.vendor == self.maker else None
        return self._named(next(iter(self._names))) if len(self._names) == 1 else None

    def compute(self, _holder: ContainerRef, part: Told) -> float | None:
        """Return the compute units as a share of those that the plugin registered."""
        listed = self.registered.get(part.device.uuid)
        known = listed is not None and listed.cores is not None and part.device.cores > 0
        return part.device.cores / listed.cores if known and listed and listed.cores else None

    def _named(self, name: str) -> Device | None:
        claim = self._plugin.claim(GPU, name)
        return claim.device if claim is not None else None


METAX_POLICY = "metax-tech.com/sgpu-qos-policy"
NEURON, NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
# The cores of a Neuron device that HAMi gives out, as bits.
GIVEN_OUT = 0b11


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
    """MetaX' GPUs, whole or in parts. The memory that is noted of a whole one is a fixed number.

    Compute is not limited where the policy of the pod is ``best-effort``, unless it has the GPU to itself.
    """

    name = "hami-metax"
    maker = "metax"
    notes = (whole_keys(METAX_POLICY),)
    words = WORDS | words_of("best effort")
    kinds = (
        Kind(_key("metax-gpu-devices-allocated"), whole=True, asked=re.compile(r"metax-tech\.com/gpu")),
        Kind(_key("metax-sgpu-devices-allocated"), asked=re.compile(r"metax-tech\.com/(?!gpu$).+")),
    )
    resources = re.compile(r"metax-tech\.com/(gpu|sgpu|vcore|vmemory)")
    counting = re.compile(r"metax-tech\.com/s?gpu")

    def compute(self, holder: ContainerRef, part: Told) -> float | None:
        """Return the share, if the pod's policy enforces one."""
        share, details = super().compute(holder, part), self.view.details(holder)
        policy = details.annotations.get(METAX_POLICY) if details is not None else None
        return None if policy == "best-effort" and share != 1 else share


class HamiEnflame(HamiVendor):
    """Enflame's GCUs, whole or in slices after profiles. The amounts noted of a whole one are fixed.

    Before HAMi 2.10 slices were not after profiles, and what is noted of their memory is percent.
    """

    name = "hami-enflame"
    maker = "enflame"
    kinds = (
        Kind(_key("enflame-gcu-devices-allocated"), whole=True, asked=re.compile(r"enflame\.com/gcu")),
        Kind(_key("enflame-vgpu-devices-allocated"), asked=re.compile(r"enflame\.com/(?!gcu$).+")),
    )
    resources = re.compile(r"enflame\.com/.+")
    counting = re.compile(r"enflame\.com/((drs|shared)-)?gcu")
    profiled: ClassVar[re.Pattern[str]] = re.compile(r".*-enflame-drs-[0-9]+")

    def memory(self, part: Told) -> int | None:
        """Return the memory of a profile in bytes; how much a percent is, nobody says."""
        return super().memory(part) if self.profiled.fullmatch(part.device.uuid) else None


class HamiKunlun(HamiVendor):
    """Kunlunxin's XPUs, whole or in parts. The amounts that are noted of a whole one are fixed."""

    name = "hami-kunlun"
    maker = "kunlunxin"
    kinds = (
        Kind(_key("kunlun-allocated"), whole=True, asked=re.compile(r"kunlunxin\.com/xpu.*")),
        Kind(_key("xpu-devices-allocated"), asked=re.compile(r"kunlunxin\.com/vxpu.*")),
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

    HAMi gives out the first two of a device, and notes all that there are where it gives several devices.
    How many a device has is told by what the node offers of cores and of devices.
    """

    name = "hami-neuron"
    maker = "aws"
    kinds = (Kind(_key("aws-neuron-devices-allocated")),)
    resources = counting = re.compile(r"aws\.amazon\.com/neuron(core|device)?")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        devices, cores = (len(view.offered.get(resource, ())) for resource in (NEURON, NEURON_CORE))
        self._each = cores // devices if devices and cores % devices == 0 else 0

    def compute(self, holder: ContainerRef, part: Told) -> float | None:
        """Count the bits, of which there are two at most; who asked for whole devices has them whole."""
        if self.exclusive(part, holder):
            return 1.0
        cores = (part.device.cores & GIVEN_OUT).bit_count()
        return cores / self._each if 0 < cores <= self._each else None

    def exclusive(self, _told: Told, holder: ContainerRef) -> bool:
        """Whether the container asked for whole devices."""
        return NEURON_CORE not in self.view.held.get(holder, {})


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
