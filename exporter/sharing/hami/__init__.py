"""HAMi, 4paradigm's scheduler, and Volcano's vGPU.

The systems for NVIDIA GPUs are here, based on ``libvgpu.py``; ``vendors.py`` and ``ascend.py`` have those for
other vendors, based on ``vendor_system.py``. ``annotations.py`` parses the annotations of pods and nodes,
except those of Volcano's nodes (``VolcanoVgpu`` below) and templates of Ascend (``ascend.py``).
``cache.py`` decodes the files of libvgpu; ``cache_files.py`` finds them, and the container of each. HAMi's
DRA driver has no annotations: it is in ``sharing/dra/__init__.py``.

On NVIDIA GPUs a pod's annotation ``hami.io/vgpu-devices-allocated``, with 4paradigm ``4pd.io/vgpu-ids-new``,
has the shares of each container. If HAMi creates MIG devices, another annotation has them; the kubelet's ids
are slices of the whole GPU then too.
"""

import re
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from exporter.model import ContainerRef, DeviceSharing, SliceCount
from exporter.sharing.base import MEBIBYTE, Offer, Read, only_size, whole_keys
from exporter.sharing.base.inventory import Device, DeviceId
from exporter.sharing.hami.annotations import (
    HamiDevice,
    MigAllocation,
    Registered,
    cordoned,
    parse_mig_allocations,
    registered,
)
from exporter.sharing.hami.cache_files import read_hami
from exporter.sharing.hami.libvgpu import HAMI_KEYS, VOLCANO_KEYS, LibvgpuSystem

VOLCANO_PREFIX = "volcano.sh/"
VOLCANO_REGISTER = "volcano.sh/node-vgpu-register"
NUMBER = re.compile(r"[0-9]{1,10}")
# The field of a GPU's record with its memory.
MEMORY = 2
MIG_KEY = "hami.io/vgpu-mig-allocations"
HAMI_REGISTER = re.compile("hami.io/node-nvidia-register")
# Of a node: GPUs that get no new containers. Those that run there keep their shares.
CORDON = "hami.io/device-cordon"


class VolcanoVgpu(LibvgpuSystem):
    """Volcano's vGPU."""

    name = "volcano-vgpu"
    blind_without_pods = "what the containers of Volcano are entitled to, and for certain on which GPUs"
    keys = VOLCANO_KEYS
    notes = (whole_keys(*VOLCANO_KEYS, VOLCANO_REGISTER),)
    lenient = True

    def knows(self, resource: str) -> bool:
        return resource.startswith(VOLCANO_PREFIX)

    def memory(self, device: HamiDevice) -> int | None:
        """Return the limit in bytes; None if there is none, or if the size of a unit is unknown."""
        unit = self._unit(device.uuid)
        return device.memory * unit * MEBIBYTE or None if unit is not None else None

    def _unit(self, uuid: str) -> int | None:
        """Return the MiB of a memory unit: 1 unless the node's annotation implies another size."""
        gpu, units = self.view.inventory.by_uuid(uuid), self._registered_units(uuid)
        if units is None or gpu is None or gpu.gpu.memory is None:
            return 1
        # The plugin rounds down, so that several unit sizes may give the same number.
        return only_size(gpu.gpu.memory.total // MEBIBYTE, units)

    def _registered_units(self, uuid: str) -> int | None:
        """Return the memory of a GPU in the node's annotation, in units."""
        text = self.view.node_annotations.get(VOLCANO_REGISTER, "")
        records = (record.split(",") for record in text.split(":"))
        fields = next((record for record in records if record[0] == uuid), None)
        if fields is None:
            return None
        units = int(fields[MEMORY]) if len(fields) > MEMORY and NUMBER.fullmatch(fields[MEMORY]) else 0
        if not units:
            self.view.object_to(self.name, "node", f"{VOLCANO_REGISTER}: {uuid}", "has no memory size")
        return units or None


class Hami(LibvgpuSystem):
    """HAMi on NVIDIA GPUs. Its resources may have any name."""

    name = "hami"
    blind_without_pods = "what HAMi's containers are entitled to, and for certain on which GPUs"
    keys = HAMI_KEYS
    notes = (whole_keys(*HAMI_KEYS, MIG_KEY, HAMI_REGISTER.pattern, CORDON),)
    read: ClassVar[Read | None] = staticmethod(read_hami)

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; slices are those in the node's annotation if the kubelet reports none."""
        gpu = self._registered.get(device.key.uuid) if device.mig is None and not offer.known else None
        if gpu is not None and len(offer.slices) == 1:
            offer = offer._replace(slices=(offer.slices[0]._replace(offered=gpu.slices),))
        sharing = super().sharing(device, offer)
        return replace(sharing, slices=tuple(self._with_cordoned(device, count) for count in sharing.slices))

    def _with_cordoned(self, device: Device, count: SliceCount) -> SliceCount:
        if self.view.facts.node is None:
            return count
        return count._replace(cordoned=count.offered if device.key.uuid in self._cordoned else 0)

    @cached_property
    def _cordoned(self) -> frozenset[str]:
        uuids = cordoned(self.view.node_annotations.get(CORDON, ""))
        for uuid in sorted(uuids - self.view.inventory.gpu_uuids):
            self.view.object_to(self.name, "node", f"{CORDON}: {uuid[:100]}", "is not a GPU of this node")
        return uuids

    @cached_property
    def _registered(self) -> dict[str, Registered]:
        devices = registered(self.view.facts.node, HAMI_REGISTER)
        if self.view.node_annotations.get(HAMI_REGISTER.pattern) and not devices:
            self.view.object_to(self.name, "node", HAMI_REGISTER.pattern, "is not a list of devices")
        return devices

    def knows(self, resource: str) -> bool:
        return not resource.startswith(VOLCANO_PREFIX)

    def device(self, holder: ContainerRef, position: int, device: HamiDevice) -> Device | None:
        """Return the MIG device that was created for the container, else the device of the annotation."""
        allocation = self._mig_allocation(holder, position)
        if allocation is None:
            return super().device(holder, position, device)
        if not allocation.mig_uuid:
            return None
        inventory = self.view.inventory
        by_place = DeviceId(parent=allocation.gpu, gi=allocation.gi, ci=allocation.ci)
        return inventory.by_uuid(allocation.mig_uuid) or inventory.find(by_place)

    def _mig_allocation(self, holder: ContainerRef, position: int) -> MigAllocation | None:
        text = self.view.annotations(holder).get(MIG_KEY) or None
        allocations = self.read_note(holder, MIG_KEY, text, parse_mig_allocations) or ()
        wanted = self._annotation(holder).segments.get(holder.container, -1), position
        return next((mig for mig in allocations if (mig.container, mig.device) == wanted), None)
