"""Koordinator: shares of GPUs in the annotations of pods, written by its scheduler.

The kubelet does not know them. Only HAMi's library libvgpu isolates the holders of a GPU, in pods with a
label for it, unless they have a GPU's whole memory. If several containers of a pod request GPUs and their
shares are unknown, the pod as a whole is the holder.

The scheduler annotates pods that request whole GPUs too. That counts only if a hook of koordlet, off by
default, sets the containers' environment accordingly: else they have the devices from NVIDIA's plugin.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from exporter.model import (
    ContainerRef,
    PodDetails,
    PodIdentity,
)
from exporter.sharing.alibaba.koordinator_annotations import (
    ALL,
    LIMITS,
    WHOLE,
    Amount,
    Given,
    asking,
    asks_for_parts,
    parse_allocated,
    split,
)
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.system import Grant, Granted, System, whole_keys, words_of
from exporter.sharing.hami.cache_owners import CACHE, meter_of

RESOURCE = "koordinator.sh/gpu"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PROVIDER, HAMI_CORE = "koordinator.sh/gpu-isolation-provider", "HAMi-core"
VENDOR = "node.koordinator.sh/gpu-vendor"


class Koordinator(System):
    """Pods without isolation."""

    name = "koordinator"
    isolation = "none"
    cuts = False
    notes = (whole_keys(ALLOCATED, PROVIDER, VENDOR, *LIMITS),)
    words = words_of("gpu minor resources koordinator sh kubernetes io core memory ratio id rdma HAMi nvidia")
    blind_without_pods = "which containers have GPUs by Koordinator"
    libvgpu: ClassVar[bool] = False  # whether the class is for pods that libvgpu isolates

    def grants(self) -> Granted:
        """Return the shares in each pod's annotation, which replace the kubelet's ids of the pod."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for pod, details, given in self._annotated():
            pod_grants = list(self._of_pod(pod, details, given))
            # Users can write annotations of their pods: one without a GPU of this node must not hide ids.
            if all(grant.device is None for grant in pod_grants):
                grants += pod_grants
                continue
            by_ids = self._by_ids(pod, details, given)
            if not by_ids or asks_for_parts(details.containers):
                grants += pod_grants
            names = (container.name for container in details.containers if container.name not in by_ids)
            settled |= {(ContainerRef(pod.namespace, pod.name, name), WHOLE) for name in names}
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def blind(self) -> bool:
        """Return True if the node has Koordinator's label, and pod annotations are not readable."""
        return not self.view.details_known and VENDOR in self.view.node_labels

    def _annotated(self) -> Iterator[tuple[PodIdentity, PodDetails, tuple[Given, ...]]]:
        """Yield the pods of this class with their GPUs."""
        for pod in self.view.pods:
            details = pod.details
            asked = details is not None and details.labels.get(PROVIDER) == HAMI_CORE
            if details is None or (self.libvgpu and not asked):
                continue
            given = self._given(pod, details)
            # koordlet decides about the library by the memory of the pod's first GPU alone.
            if self.libvgpu == (asked and (not given or (given[0].amount.ratio or 0) < ALL)):
                yield pod, details, given

    def _given(self, pod: PodIdentity, details: PodDetails) -> tuple[Given, ...]:
        text = details.annotations.get(ALLOCATED, "")
        try:
            return parse_allocated(text) if text else ()
        except ValueError as error:
            self.object_to(pod, ALLOCATED, error)
            return ()

    def _by_ids(self, pod: PodIdentity, details: PodDetails, given: Sequence[Given]) -> set[str]:
        """Return the containers for which the kubelet's ids count, and not the annotation.

        Koordinator's own proxy of pod-resources lists only GPUs of the annotation, under any container.
        Another GPU comes from a plugin, and then all whole GPUs of the pod do.
        """
        names = [container.name for container in details.containers]
        others = [name for name in names if self._has_another(pod, name, given)]
        if not others:
            return set()
        self.object_to(pod, ALLOCATED, f"the kubelet gave container {others[0][:100]!r} another GPU")
        if asks_for_parts(details.containers):
            return set(others)
        wanting = {container.name for container in details.containers if WHOLE in container.limits}
        return wanting.union(others) if wanting else set(names)

    def _has_another(self, pod: PodIdentity, name: str, given: Sequence[Given]) -> bool:
        """Return True if the kubelet gave a container a device that is not of the GPUs in ``given``."""
        ids = self.view.held.get(ContainerRef(pod.namespace, pod.name, name), {}).get(WHOLE, ())
        parsed = (parse_device_id(device_id) for device_id in ids)
        devices = (self.view.inventory.find(device_id) for device_id in parsed if device_id is not None)
        return any(not any(_may_be(gpu, device) for gpu in given) for device in devices if device is not None)

    def _of_pod(self, pod: PodIdentity, details: PodDetails, given: Sequence[Given]) -> Iterator[Grant]:
        containers = asking(details.containers) or details.containers
        parts = split(given[0].amount, containers) if len(given) == 1 < len(containers) else None
        for gpu in given:
            device = self._device(gpu)
            if parts is None:
                name = containers[0].name if len(containers) == 1 else ""
                yield self._grant(ContainerRef(pod.namespace, pod.name, name), device, gpu.amount)
                continue
            for container, amount in zip(containers, parts, strict=True):
                holder = ContainerRef(pod.namespace, pod.name, container.name)
                yield self._grant(holder, device, amount)

    def _grant(self, holder: ContainerRef, device: Device | None, amount: Amount) -> Grant:
        memory = amount.memory
        whole = device.memory if device is not None else None
        if memory is None and amount.ratio is not None and whole is not None:
            memory = whole * amount.ratio // ALL
        return Grant(
            holder=holder,
            resource=RESOURCE,
            device=device,
            memory_entitled=memory,
            compute_entitled=None if amount.cores is None else amount.cores / ALL,
            meter=meter_of(self.view.file(CACHE, holder), device) if self.libvgpu else None,
            exclusive=(amount.cores, amount.ratio) == (ALL, ALL),
        )

    def _device(self, given: Given) -> Device | None:
        if given.uuid:
            return self.view.inventory.by_uuid(given.uuid)
        # Koordinator's minor of an NPU is not the minor of an NVIDIA GPU.
        nvidia = self.view.node_labels.get(VENDOR, "nvidia") == "nvidia"
        return self.view.inventory.by_minor(given.minor) if nvidia else None


def _may_be(given: Given, device: Device) -> bool:
    """Return True if a device may be, or be a part of, the given GPU; a lost GPU has no minor."""
    if given.uuid:
        return device.key.uuid == given.uuid
    return device.gpu.identity.minor in (given.minor, None)


class KoordinatorHamiCore(Koordinator):
    """Pods with limits that HAMi's library enforces."""

    isolation = "soft"
    libvgpu = True
