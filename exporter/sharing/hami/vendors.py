"""HAMi's devices of vendors other than NVIDIA: their resources and keys, which ``vendor_system.py`` uses."""

import re
from typing import ClassVar

from exporter.model import ContainerRef
from exporter.sharing.base import Meaning, System, whole_keys
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.hami.ascend import HamiAscend
from exporter.sharing.hami.vendor_system import AnnotatedShare, DeviceKind, HamiVendor
from exporter.sharing.plain_plugins import Amd

GPU = "amd.com/gpu"
SLICE = re.compile(r"([^#]{1,64})#[0-9]{1,4}")
SMI = re.compile(
    "([0-9a-f]{2})[0-9a-f]{2}[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{2}([0-9a-f]{2})-([0-9a-f]{12})"
)


class HamiAmd(HamiVendor):
    """AMD GPUs."""

    name = "hami-amd"
    isolation = "soft"
    maker = "amd"
    kinds = (DeviceKind(re.compile(r"hami\.io/amd-devices-allocated")),)
    resources = re.compile(r"amd\.com/gpu(mem|cores)?")
    own = re.compile(r"amd\.com/gpu")
    counting = own
    registers = re.compile(r"hami\.io/node-amd-register")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._plugin = Amd(view)
        ids = set(view.offered.get(GPU, ()))
        ids |= {device_id for _, resource, device_id in view.allocations.allocated if resource == GPU}
        matches = map(SLICE.fullmatch, ids)
        self._names = {match[1] for match in matches if match is not None}

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is a slice of a GPU; ids of AMD's plugin are names of whole GPUs."""
        return resource == GPU and SLICE.fullmatch(device_id) is not None

    def is_annotated(self, ids: frozenset[str]) -> bool:
        """Return True if the ids are slices, and so of HAMi's plugin."""
        return any(SLICE.fullmatch(device_id) for device_id in ids)

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the GPU on which a slice is allocatable; its holder may have another."""
        match = SLICE.fullmatch(device_id) if resource == GPU else None
        return Meaning(self._named(match[1]), replica=True, nominal=True) if match is not None else None

    def device(self, part: AnnotatedShare) -> Device | None:
        """Return the GPU by its PCI address in the node's annotation, by its name, or as the only one."""
        uuid = part.device.uuid
        listed, smi = self.registered.get(uuid), SMI.fullmatch(uuid)
        if listed is not None and listed.address:
            return self._named(listed.address)
        gpu = self.view.inventory.by_uuid(f"GPU-{smi[1]}{smi[2]}{smi[3]}" if smi is not None else uuid)
        if gpu is not None:
            return gpu if gpu.gpu.identity.vendor == self.maker else None
        return self._named(next(iter(self._names))) if len(self._names) == 1 else None

    def compute(self, _holder: ContainerRef, part: AnnotatedShare) -> float | None:
        """Return the compute units as a share of those in the node's annotation."""
        listed = self.registered.get(part.device.uuid)
        if listed is None or not listed.cores:
            return None
        return part.device.cores / listed.cores or None

    def _named(self, name: str) -> Device | None:
        meaning = self._plugin.meaning(GPU, name)
        return meaning.device if meaning is not None else None


METAX_POLICY = "metax-tech.com/sgpu-qos-policy"
NEURON, NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
# The cores of a Neuron device that HAMi gives out, as bits.
GIVEN_OUT = 0b11


def _key(word: str) -> re.Pattern[str]:
    return re.compile(rf"hami\.io/{word}")


class HamiCambricon(HamiVendor):
    """Cambricon MLUs."""

    name = "hami-cambricon"
    maker = "cambricon"
    kinds = (DeviceKind(_key("cambricon-mlu-devices-allocated")),)
    resources = re.compile(r"cambricon\.com/(vmlu|mlu(\..+)?)")
    counting = re.compile(r"cambricon\.com/v?mlu")


class HamiHygon(HamiVendor):
    """Hygon DCUs."""

    name = "hami-hygon"
    maker = "hygon"
    kinds = (DeviceKind(_key("dcu-devices-allocated")),)
    resources = re.compile(r"hygon\.com/dcu.*")
    own = re.compile(r"hygon\.com/dcunum")
    counting = own
    registers = _key("node-dcu-register")


class HamiIluvatar(HamiVendor):
    """Iluvatar GPUs. Resources and annotations contain the name of the chip."""

    name = "hami-iluvatar"
    maker = "iluvatar"
    kinds = (DeviceKind(_key("(?:(?:MR|BI)-[^/]+|iluvatar-vgpu)-devices-allocated")),)
    resources = re.compile(r"iluvatar\.ai/.+")
    own = re.compile(r"iluvatar\.ai/.*vgpu")
    counting = own
    registers = _key("node-(?:MR|BI)-[^/]+-register")


class HamiMthreads(HamiVendor):
    """Moore Threads GPUs, with 16 cores each."""

    name = "hami-mthreads"
    maker = "mthreads"
    kinds = (DeviceKind(_key("mthreads-vgpu-devices-allocated"), full=16),)
    resources = re.compile(r"mthreads\.com/(vgpu|sgpu-.+)")
    counting = re.compile(r"mthreads\.com/vgpu")


class HamiMetax(HamiVendor):
    """MetaX GPUs, whole or shared. The annotation has a fixed number for the memory of a whole GPU.

    Compute is not limited if the pod's policy is ``best-effort``, unless it has the whole GPU.
    """

    name = "hami-metax"
    maker = "metax"
    notes = (whole_keys(METAX_POLICY),)
    kinds = (
        DeviceKind(_key("metax-gpu-devices-allocated"), whole=True, asked=re.compile(r"metax-tech\.com/gpu")),
        DeviceKind(_key("metax-sgpu-devices-allocated"), asked=re.compile(r"metax-tech\.com/(?!gpu$).+")),
    )
    resources = re.compile(r"metax-tech\.com/(gpu|sgpu|vcore|vmemory)")
    counting = re.compile(r"metax-tech\.com/s?gpu")

    def compute(self, holder: ContainerRef, part: AnnotatedShare) -> float | None:
        """Return the share, if the pod's policy enforces one."""
        share = super().compute(holder, part)
        best_effort = self.view.annotations(holder).get(METAX_POLICY) == "best-effort"
        return None if best_effort and share != 1 else share


class HamiEnflame(HamiVendor):
    """Enflame GCUs, whole or in slices by profile. The amounts of a whole GCU in the annotation are fixed.

    Before HAMi 2.10 slices have no profile, and their memory in the annotation is percent.
    """

    name = "hami-enflame"
    maker = "enflame"
    kinds = (
        DeviceKind(_key("enflame-gcu-devices-allocated"), whole=True, asked=re.compile(r"enflame\.com/gcu")),
        DeviceKind(_key("enflame-vgpu-devices-allocated"), asked=re.compile(r"enflame\.com/(?!gcu$).+")),
    )
    resources = re.compile(r"enflame\.com/.+")
    counting = re.compile(r"enflame\.com/((drs|shared)-)?gcu")
    profiled: ClassVar[re.Pattern[str]] = re.compile(r".*-enflame-drs-[0-9]+")

    def memory(self, part: AnnotatedShare) -> int | None:
        """Return the memory of a profile in bytes, None for percent, because the total is unknown."""
        return super().memory(part) if self.profiled.fullmatch(part.device.uuid) else None


class HamiKunlun(HamiVendor):
    """Kunlunxin XPUs, whole or shared. The amounts of a whole XPU in the annotation are fixed."""

    name = "hami-kunlun"
    maker = "kunlunxin"
    kinds = (
        DeviceKind(_key("kunlun-allocated"), whole=True, asked=re.compile(r"kunlunxin\.com/xpu.*")),
        DeviceKind(_key("xpu-devices-allocated"), asked=re.compile(r"kunlunxin\.com/vxpu.*")),
    )
    resources = re.compile(r"kunlunxin\.com/v?xpu.*")
    counting = re.compile(r"kunlunxin\.com/v?xpu")
    own = re.compile(r"kunlunxin\.com/vxpu")
    registers = _key("node-register-xpu")


class HamiBiren(HamiVendor):
    """Biren GPUs; the annotation has no amounts."""

    name = "hami-biren"
    maker = "biren"
    kinds = (DeviceKind(_key("Biren-devices-allocated")),)
    resources = re.compile(r"birentech\.com/gpu")
    registers = _key("node-biren-register")


class HamiVastai(HamiVendor):
    """Vastai accelerators; the annotation has no amounts."""

    name = "hami-vastai"
    maker = "vastai"
    kinds = (DeviceKind(_key("Vastai-devices-allocated")),)
    resources = re.compile(r"vastaitech\.com/va")
    registers = _key("node-va-register")


class HamiNeuron(HamiVendor):
    """AWS Neuron devices. The annotation has the cores of a container as a bit mask.

    HAMi allocates the first two cores of a device; for several devices the annotation has all cores. The
    number of cores of a device follows from the allocatable cores and devices.
    """

    name = "hami-neuron"
    maker = "aws"
    kinds = (DeviceKind(_key("aws-neuron-devices-allocated")),)
    resources = re.compile(r"aws\.amazon\.com/neuron(core|device)?")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        devices, cores = (len(view.offered.get(resource, ())) for resource in (NEURON, NEURON_CORE))
        self._each = cores // devices if devices and cores % devices == 0 else 0

    def compute(self, holder: ContainerRef, part: AnnotatedShare) -> float | None:
        """Return the share of the device's cores by the bit mask; 1 for whole devices."""
        if self.exclusive(part, holder):
            return 1.0
        cores = (part.device.cores & GIVEN_OUT).bit_count()
        return cores / self._each if 0 < cores <= self._each else None

    def exclusive(self, _part: AnnotatedShare, holder: ContainerRef) -> bool:
        """Return True if the container requested whole devices."""
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
