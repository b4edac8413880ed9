"""HAMi on NVIDIA GPUs, and 4paradigm's scheduler that it grew out of.

A pod's annotation ``hami.io/vgpu-devices-allocated`` says what each of its containers has; the ancestor's is
``4pd.io/vgpu-ids-new``. Where HAMi cuts GPUs into MIG devices, another annotation says which were made: the
kubelet's ids are slices of the whole GPU there too.
"""

import re
from functools import cached_property
from typing import ClassVar

from exporter.model import ContainerRef, DeviceSharing, PodDetails, PodIdentity, SliceCount
from exporter.sharing.device_id import DeviceId
from exporter.sharing.files.hami_cache import read_hami
from exporter.sharing.hami_base import HAMI_KEYS, LibvgpuSystem
from exporter.sharing.hami_node import Registered, registered
from exporter.sharing.hami_text import HamiDevice, MigAllocation, parse_mig_allocations
from exporter.sharing.inventory import Device
from exporter.sharing.system import Read, whole_keys, words_of
from exporter.sharing.view import View
from exporter.sharing.volcano_vgpu import PREFIX as VOLCANO

MIG_KEY = "hami.io/vgpu-mig-allocations"
REGISTER = re.compile("hami.io/node-nvidia-register")
WORDS = words_of("NVIDIA containerIndex deviceIndex gpuUUID profile placement start size migUUID") | words_of(
    "gpuInstanceID computeInstanceID"
)


class Hami(LibvgpuSystem):
    """HAMi's NVIDIA devices. Its resources may have any name."""

    name = "hami"
    blind_without_pods = "what HAMi's containers are entitled to, and for certain on which GPUs"
    keys = HAMI_KEYS
    notes = (whole_keys(*HAMI_KEYS, MIG_KEY, REGISTER.pattern),)
    words = WORDS
    read: ClassVar[Read | None] = staticmethod(read_hami)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._made: dict[str, dict[tuple[int, int], MigAllocation]] = {}

    def sharing(
        self, device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
    ) -> DeviceSharing:
        """Tell the slices of a GPU by what the node registered, where the kubelet does not tell its offer."""
        told = self._registered.get(device.key.uuid) if device.mig is None and not offered_known else None
        if told is not None and len(slices) == 1:
            slices = (slices[0]._replace(offered=told.slices),)
        return super().sharing(device, slices, replicated, offered_known)

    @cached_property
    def _registered(self) -> dict[str, Registered]:
        node = self.view.facts.node
        found = registered(node, REGISTER)
        text = node.annotations.get(REGISTER.pattern, "") if node is not None else ""
        if text and not found:
            self.view.object_to(self.name, "node", REGISTER.pattern, "is no list of devices")
        return found

    def named(self, resource: str) -> bool:
        """Whether slices of this resource are HAMi's: all that are not Volcano's."""
        return not resource.startswith(VOLCANO)

    def device(self, holder: ContainerRef, place: int, device: HamiDevice) -> Device | None:
        """Find the MIG device that was made for the container, else the device of the annotation."""
        pod = self.view.pod(holder)
        made = self._made_for(pod, pod.details, holder, place) if pod and pod.details else None
        if made is None:
            return super().device(holder, place, device)
        if not made.mig_uuid:
            return None
        inventory = self.view.inventory
        by_place = DeviceId(parent=made.gpu, gi=made.gi, ci=made.ci)
        return inventory.by_uuid(made.mig_uuid) or inventory.find(by_place)

    def _made_for(
        self, pod: PodIdentity, details: PodDetails, holder: ContainerRef, place: int
    ) -> MigAllocation | None:
        if pod.uid not in self._made:
            self._made[pod.uid] = self._read_mig(pod, details.annotations.get(MIG_KEY, ""))
        segment = self._told_of(holder).places.get(holder.container, -1)
        return self._made[pod.uid].get((segment, place))

    def _read_mig(self, pod: PodIdentity, text: str) -> dict[tuple[int, int], MigAllocation]:
        try:
            found = parse_mig_allocations(text) if text else ()
        except ValueError as error:
            self.view.object_to(self.name, "annotation", f"{pod.namespace}/{pod.name}: {MIG_KEY}", str(error))
            found = ()
        return {(each.container, each.device): each for each in found}
