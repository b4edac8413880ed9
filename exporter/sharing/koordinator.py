"""Koordinator: shares of GPUs in the annotations of pods, written by its scheduler.

The kubelet does not know them. Only HAMi's library libvgpu isolates the holders of a GPU, in pods with a
label for it, unless they have a GPU's whole memory. If several containers of a pod request GPUs and their
shares are unknown, the pod as a whole is the holder.

The scheduler annotates pods that request whole GPUs too. That counts only if a hook of koordlet, off by
default, sets the containers' environment accordingly: else they have the devices from NVIDIA's plugin.

The annotation is JSON, ``{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50",...}}]}``. It is for
the whole pod, without the shares of containers. Amounts are Kubernetes quantities, as strings or numbers:
cores and memory ratio in percent of a GPU, memory in bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from exporter.model import ContainerRef, ContainerSpec, DeviceKey, PodDetails, PodIdentity
from exporter.model.quantity import whole_quantity
from exporter.sharing.base import Grant, Granted, System, whole_keys
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.reading import parsed
from exporter.sharing.hami.cache_files import CACHE, meter_of

LONGEST = 1 << 16
# Of Koordinator's resources; the last one is from before it had its own domain.
PREFIXES = ("koordinator.sh/", "kubernetes.io/")
WHOLE = "nvidia.com/gpu"
LIMITS = (
    WHOLE,
    *(f"{prefix}gpu{part}" for prefix in PREFIXES for part in ("", "-core", "-memory", "-memory-ratio")),
)
ALL = 100
MOST = 1 << 62
RESOURCE = "koordinator.sh/gpu"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PROVIDER, HAMI_CORE = "koordinator.sh/gpu-isolation-provider", "HAMi-core"
VENDOR = "node.koordinator.sh/gpu-vendor"


class GpuAmount(NamedTuple):
    """An amount of a GPU; None if not stated."""

    cores: int | None = None  # percent
    memory: int | None = None  # bytes
    ratio: int | None = None  # percent of memory


class AllocatedGpu(NamedTuple):
    """One GPU of a pod."""

    minor: int
    uuid: str  # "" if the annotation has only the minor
    amount: GpuAmount


def parse_allocated(text: str) -> tuple[AllocatedGpu, ...]:
    """Return the GPUs of a pod, () if it has other devices only; raises ValueError."""
    gpus = parsed(text, dict, LONGEST).get("gpu")
    if not isinstance(gpus, list | None):
        raise ValueError("gpu is not a list")  # noqa: TRY004 - one kind of error for a text
    given = tuple(map(_given, gpus or ()))
    if len({gpu.minor for gpu in given}) < len(given):
        raise ValueError("a GPU is listed twice")
    return given


def asking(containers: Sequence[ContainerSpec]) -> list[ContainerSpec]:
    """Return the containers that request a GPU; init containers only if no other container does."""
    requesting = [container for container in containers if _asked(container.limits) != GpuAmount()]
    return [container for container in requesting if not container.init] or requesting


def asks_for_parts(containers: Iterable[ContainerSpec]) -> bool:
    """Return True if a pod requests Koordinator's own resources, and so no whole GPUs of a plugin."""
    own = set(LIMITS) - {WHOLE}
    return any(own & container.limits.keys() for container in containers)


def split(given: GpuAmount, containers: Sequence[ContainerSpec]) -> list[GpuAmount] | None:
    """Return the containers' requested amounts of a pod's only GPU; None if their sum is not ``given``."""
    asked = [_asked(container.limits) for container in containers]
    cores = _sum(amount.cores for amount in asked)
    ratio, memory = _sum(amount.ratio for amount in asked), _sum(amount.memory for amount in asked)
    by_ratio = ratio is not None and ratio == given.ratio
    by_memory = memory is not None and memory == given.memory
    if cores != given.cores or not (by_ratio or by_memory):
        return None
    return [GpuAmount(amount.cores, amount.memory if by_memory else None, amount.ratio) for amount in asked]


def _asked(limits: Mapping[str, int]) -> GpuAmount:
    whole = [limits[name] for name in _named("gpu") if name in limits]
    if not whole and WHOLE in limits:
        whole = [limits[WHOLE] * ALL]
    return _amount_of(limits, whole[0] if whole else None)


def _amount_of(amounts: Mapping[str, int], both: int | None = None) -> GpuAmount:
    """Return the amount by its resources; ``both`` is of cores and memory without resources of their own."""
    return GpuAmount(
        cores=_first(amounts, "gpu-core", both),
        memory=_first(amounts, "gpu-memory", None),
        ratio=_first(amounts, "gpu-memory-ratio", both),
    )


def _first(amounts: Mapping[str, int], name: str, other: int | None) -> int | None:
    return next((amounts[full_name] for full_name in _named(name) if amounts.get(full_name)), other)


def _named(name: str) -> Iterable[str]:
    return (f"{prefix}{name}" for prefix in PREFIXES)


def _sum(parts: Iterator[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _given(item: Any) -> AllocatedGpu:
    minor = item.get("minor") if isinstance(item, dict) else None
    if type(minor) is not int or not 0 <= minor <= 1 << 31:
        raise ValueError(f"has no minor: {str(item)[:100]!r}")
    uuid, resources = item.get("id"), item.get("resources")
    if not isinstance(uuid, str | None) or not isinstance(resources, dict | None):
        raise ValueError(f"id or resources of minor {minor} have the wrong type")  # noqa: TRY004 - as above
    ours = {name: value for name, value in (resources or {}).items() if name.startswith(PREFIXES)}
    amounts = {name: _amount(name, value) for name, value in ours.items()}
    return AllocatedGpu(minor, uuid if uuid and uuid.startswith("GPU-") else "", _amount_of(amounts))


def _amount(name: str, value: Any) -> int:
    amount = whole_quantity(value) if isinstance(value, str) else value
    if type(amount) is not int or not 0 <= amount <= MOST:
        raise ValueError(f"{name[:60]!r} is not a whole number: {str(value)[:60]!r}")
    return amount


class Koordinator(System):
    """Pods without isolation."""

    name = "koordinator"
    isolation = "none"
    ids_are_slices = False
    notes = (whole_keys(ALLOCATED, PROVIDER, VENDOR, *LIMITS),)
    blind_without_pods = "which containers have GPUs by Koordinator"
    libvgpu: ClassVar[bool] = False  # whether the class is for pods that libvgpu isolates

    def grants(self) -> Granted:
        """Return the shares in each pod's annotation, which replace the kubelet's ids of the pod."""
        granted = Granted()
        for pod, details, given in self._annotated():
            pod_grants = list(self._of_pod(pod, details, given))
            # Users can write annotations of their pods: one without a GPU of this node must not hide ids.
            if all(grant.device is None for grant in pod_grants):
                granted.grants += pod_grants
                continue
            by_ids = self._by_ids(pod, details, given)
            if not by_ids or asks_for_parts(details.containers):
                granted.grants += pod_grants
            for container in details.containers:
                if container.name not in by_ids:
                    granted.settle(ContainerRef(pod.namespace, pod.name, container.name), [WHOLE])
        return granted

    def blind(self) -> bool:
        """Return True if the node has Koordinator's label, and pod annotations are not readable."""
        return not self.view.details_known and VENDOR in self.view.node_labels

    def _annotated(self) -> Iterator[tuple[PodIdentity, PodDetails, tuple[AllocatedGpu, ...]]]:
        """Yield the pods of this class with their GPUs."""
        for pod in self.view.pods:
            details = pod.details
            asked = details is not None and details.labels.get(PROVIDER) == HAMI_CORE
            if details is None or (self.libvgpu and not asked):
                continue
            text = details.annotations.get(ALLOCATED) or None
            given = self.read_note(pod, ALLOCATED, text, parse_allocated) or ()
            # koordlet decides about the library by the memory of the pod's first GPU alone.
            isolated = asked and (not given or (given[0].amount.ratio or 0) < ALL)
            if isolated == self.libvgpu:
                yield pod, details, given

    def _by_ids(self, pod: PodIdentity, details: PodDetails, given: Sequence[AllocatedGpu]) -> set[str]:
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

    def _has_another(self, pod: PodIdentity, name: str, given: Sequence[AllocatedGpu]) -> bool:
        """Return True if the kubelet gave a container a device that is not of the GPUs in ``given``."""
        ids = self.view.held.get(ContainerRef(pod.namespace, pod.name, name), {}).get(WHOLE, ())
        devices = (self.view.inventory.find(parse_device_id(device_id)) for device_id in ids)
        return any(not any(_may_be(gpu, device) for gpu in given) for device in devices if device is not None)

    def _of_pod(
        self, pod: PodIdentity, details: PodDetails, given: Sequence[AllocatedGpu]
    ) -> Iterator[Grant]:
        containers = asking(details.containers) or details.containers
        parts = split(given[0].amount, containers) if len(given) == 1 < len(containers) else None
        for gpu in given:
            device, may_be = self._find(gpu)
            if parts is None:
                name = containers[0].name if len(containers) == 1 else ""
                yield self._grant(ContainerRef(pod.namespace, pod.name, name), device, gpu.amount, may_be)
                continue
            for container, amount in zip(containers, parts, strict=True):
                holder = ContainerRef(pod.namespace, pod.name, container.name)
                yield self._grant(holder, device, amount, may_be)

    def _grant(
        self, holder: ContainerRef, device: Device | None, amount: GpuAmount, may_be: frozenset[DeviceKey]
    ) -> Grant:
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
            may_be=may_be,
        )

    def _find(self, given: AllocatedGpu) -> tuple[Device | None, frozenset[DeviceKey]]:
        """Return the GPU with a UUID or minor, and the devices that are meant if no GPU has it."""
        inventory = self.view.inventory
        if given.uuid:
            return inventory.by_uuid(given.uuid), inventory.meant_by_uuid(given.uuid)
        # Koordinator's minor of an NPU is not that of an NVIDIA GPU.
        if self.view.node_labels.get(VENDOR, "nvidia") == "nvidia":
            return inventory.by_minor(given.minor), inventory.meant_by_minor(given.minor)
        return None, frozenset()


def _may_be(given: AllocatedGpu, device: Device) -> bool:
    """Return True if a device may be, or be a part of, the given GPU; a lost GPU has no minor."""
    if given.uuid:
        return device.key.uuid == given.uuid
    return device.gpu.identity.minor in (given.minor, None)


class KoordinatorHamiCore(Koordinator):
    """Pods with limits that HAMi's library enforces, by Koordinator's annotation."""

    isolation = "soft"
    libvgpu = True
