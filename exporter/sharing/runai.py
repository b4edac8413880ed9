"""run:ai: fractions of GPUs that a reservation pod holds, and MIG devices that it cuts for pods.

Its annotations say what a pod was given. A library in the container may enforce that; whether one does
cannot be seen. A pod on a MIG device owns nothing either, but says which device it has.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from exporter.model import ContainerRef, DeviceSharing, DeviceUse, Meter, PodDetails, PodIdentity, SliceCount
from exporter.sharing.files.runai import read_runai
from exporter.sharing.inventory import Device
from exporter.sharing.reservation import Reservations, Share, detailed, fraction, mebibytes
from exporter.sharing.runai_mig import WORDS, MigDevice, Place, is_mig, mig_device, mig_mapping
from exporter.sharing.system import Grant, Granted, Read, whole_keys

ALLOCATED, ALLOCATED_MEMORY = "runai-allocated-gpus", "runai-allocated-gpu-memory"
ALLOCATIONS = (ALLOCATED, ALLOCATED_MEMORY, "runai-allocated-mig-gpus")
MIG_DEVICE, MIG_MAPPING = "runai-mig-device", "run.ai/mig-mapping"


class Runai(Reservations):
    """The fractions and MIG devices of run:ai."""

    name = "runai"
    isolation = ""
    of_runai = True
    notes = (*Reservations.notes, whole_keys(*ALLOCATIONS, MIG_DEVICE, MIG_MAPPING))
    words = Reservations.words | WORDS
    read: ClassVar[Read | None] = staticmethod(read_runai)

    def grants(self) -> Granted:
        """Add the pods on MIG devices to the fractions."""
        told = super().grants()
        return Granted(grants=(*told.grants, *self._of_mig()), settled=told.settled)

    def sharing(
        self, device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
    ) -> DeviceSharing:
        """Tell MIG devices, which the hardware keeps apart, from fractions."""
        if device.mig is not None:
            return DeviceSharing(sharing="mig", isolation="hard", slices=slices)
        return super().sharing(device, slices, replicated, offered_known)

    def share(self, pod: PodIdentity, details: PodDetails, devices: int) -> Share:
        """Read what a pod was given. Of several GPUs that is not told of each; what it asked for is."""
        told = details.annotations
        memory, part = mebibytes(told.get(ALLOCATED_MEMORY, "")), fraction(told.get(ALLOCATED, ""))
        if devices == 1 and memory is not None and part is not None:
            return Share(memory, part)
        return super().share(pod, details, devices)

    def meter(self, pod: PodIdentity, _holder: ContainerRef, device: Device) -> Meter | None:
        """Return what run:ai measured of the pod, which has its fractions in one container."""
        found = list(self._uses(pod, str(device.gpu.identity.index)))
        if len(found) != 1:
            return None
        return Meter(source=self.name, memory=found[0].memory_used, compute=found[0].compute_used)

    def _uses(self, pod: PodIdentity, index: str) -> Iterator[DeviceUse]:
        files = self.view.facts.files.get(self.name)
        for each in files.containers if files is not None else ():
            if each.pod_uid == pod.uid:
                yield from (use for use in each.devices if use.device == index)

    def _of_mig(self) -> Iterator[Grant]:
        """Give pods their MIG devices; of those that own some, the kubelet tells."""
        for pod, details in detailed(self.view):
            told = self._told(pod, details)
            if told is None:
                continue
            holder, device = self.container(pod, details), self._device(told)
            if any(map(is_mig, self.view.held.get(holder, ()))):
                continue
            yield Grant(
                holder=holder,
                resource=told.resource,
                device=device,
                memory_entitled=device.memory if device is not None else None,
                compute_entitled=device.compute if device is not None else None,
                exclusive=True,
            )

    def _told(self, pod: PodIdentity, details: PodDetails) -> MigDevice | None:
        text = details.annotations.get(MIG_DEVICE, "")
        try:
            return mig_device(text) if text else None
        except ValueError as error:
            self.object_to(pod, MIG_DEVICE, str(error))
            return None

    def _device(self, told: MigDevice) -> Device | None:
        uuid = told.uuid or (self._mapping.get(told.place, "") if told.place is not None else "")
        device = self.view.inventory.by_uuid(uuid)
        return device if device is not None and device.mig is not None else None

    @cached_property
    def _mapping(self) -> dict[Place, str]:
        node = self.view.facts.node
        text = node.annotations.get(MIG_MAPPING, "") if node is not None else ""
        try:
            return mig_mapping(text) if text else {}
        except ValueError as error:
            self.view.object_to(self.name, "node", MIG_MAPPING, str(error))
            return {}
