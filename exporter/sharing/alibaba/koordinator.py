"""Koordinator: parts of GPUs that its scheduler writes into the annotations of pods.

The kubelet knows nothing of them. The scheduler only counts; what keeps the holders of a GPU apart is HAMi's
library, libvgpu, in the pods with a label that asks for it, unless they have a GPU's memory whole. Where
several containers of a pod ask for GPUs and it is not told which has what, the pod as a whole has them.

The scheduler annotates pods that ask for whole GPUs too. Its word counts only where a hook of koordlet's, off
by default, sets the containers' environment by it: else they have what NVIDIA's plugin gave them.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from exporter.model import (
    ContainerRef,
    Meter,
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
    """The pods that nothing keeps apart. ``libvgpu``: whether a class is about those that it does."""

    name = "koordinator"
    isolation = "none"
    cuts = False
    notes = (whole_keys(ALLOCATED, PROVIDER, VENDOR, *LIMITS),)
    words = words_of("gpu minor resources koordinator sh kubernetes io core memory ratio id rdma HAMi nvidia")
    blind_without_pods = "which containers have GPUs by Koordinator"
    libvgpu: ClassVar[bool] = False

    def grants(self) -> Granted:
        """Return what the annotation of each pod says, in place of what the kubelet reports of the pod."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for pod, details, given in self._annotated():
            pod_grants = list(self._of_pod(pod, details, given))
            # Whoever makes a pod may write its annotations: one that names no GPU of this node hides none.
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
        """Whether the node's labels say that Koordinator is at work, and no pod's annotations are known."""
        node = self.view.facts.node
        return not self.view.details_known and node is not None and VENDOR in node.labels

    def _annotated(self) -> Iterator[tuple[PodIdentity, PodDetails, tuple[Given, ...]]]:
        """List the pods that this class is about, with what they were given."""
        for pod in self.view.pods:
            details = pod.details
            asked = details is not None and details.labels.get(PROVIDER) == HAMI_CORE
            if details is None or (self.libvgpu and not asked):
                continue
            given = self._given(pod, details)
            # koordlet gives the library to a pod by the memory of its first GPU alone.
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
        """Name the containers that have what the kubelet's ids say, and not what the annotation does.

        Koordinator's own proxy of pod-resources lists nothing but the GPUs of the annotation, whichever
        container has them. Any other GPU is of a plugin, and so are then all whole GPUs of the pod.
        """
        others = [
            container.name
            for container in details.containers
            if self._has_another(pod, container.name, given)
        ]
        if not others:
            return set()
        text = f"the kubelet gave container {others[0][:100]!r} another GPU"
        self.object_to(pod, ALLOCATED, text)
        if asks_for_parts(details.containers):
            return set(others)
        wanting = {container.name for container in details.containers if WHOLE in container.limits}
        return wanting.union(others) if wanting else {container.name for container in details.containers}

    def _has_another(self, pod: PodIdentity, name: str, given: Sequence[Given]) -> bool:
        """Whether the kubelet gave a container a GPU of this node, or a part of one, that is not given."""
        ids = self.view.held.get(ContainerRef(pod.namespace, pod.name, name), {}).get(WHOLE, ())
        parsed = (parse_device_id(device_id) for device_id in ids)
        devices = [self.view.inventory.find(device_id) for device_id in parsed if device_id is not None]
        return any(
            device is not None and not any(_may_be(gpu, device) for gpu in given) for device in devices
        )

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
            meter=self._meter(holder, device),
            exclusive=(amount.cores, amount.ratio) == (ALL, ALL),
        )

    def _device(self, given: Given) -> Device | None:
        if given.uuid:
            return self.view.inventory.by_uuid(given.uuid)
        node = self.view.facts.node
        vendor = node.labels.get(VENDOR, "nvidia") if node is not None else "nvidia"
        # What Koordinator calls the minor of an NPU is no minor of ours.
        return self.view.inventory.by_minor(given.minor) if vendor == "nvidia" else None

    def _meter(self, holder: ContainerRef, device: Device | None) -> Meter | None:
        """Return what libvgpu counted, where it is in the container."""
        file = self.view.file(CACHE, holder) if self.libvgpu else None
        return meter_of(file, device)


def _may_be(given: Given, device: Device) -> bool:
    """Whether a device is, or is a part of, the GPU that a pod was given; one that is lost has no minor."""
    if given.uuid:
        return device.key.uuid == given.uuid
    return device.gpu.identity.minor in (given.minor, None)


class KoordinatorHamiCore(Koordinator):
    """The pods whose limits HAMi's library enforces."""

    isolation = "soft"
    libvgpu = True
