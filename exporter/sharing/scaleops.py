"""ScaleOps: fractions of GPUs that its capacity pods hold.

The kubelet gives a GPU to a capacity pod, which does not use it. The pods that share it have no device ids;
annotations have their part: ``scaleops.sh/gpu-compute-fraction`` (``0.25``), ``scaleops.sh/gpu-memory``
(``1024``). ScaleOps is closed source. What was read of its documentation does not report how capacity pods
are marked and pods are assigned to them, the unit of a bare number of memory, or what is enforced. So

- a capacity pod is a pod in ScaleOps' own namespace that holds a GPU; no tenant can make one there,
- the GPU of a fraction is known if the capacity pods of the node have one GPU,
- memory is known if it has a suffix, and isolation is unknown.

Source: ScaleOps' documentation, pages fractional-gpu, architecture and (for the namespace) policies of
https://scaleops.glowstick.me/gpu-optimization/overview.
"""

from collections.abc import Iterator

from exporter.model import ContainerRef, PodDetails, PodIdentity, only
from exporter.sharing.base import Grant, Granted, System, whole_keys
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.view import main_containers
from exporter.sharing.kai import READ_FRACTION, READ_MEMORY, RESOURCE

NAMESPACE = "scaleops-system"
COMPUTE, MEMORY = "scaleops.sh/gpu-compute-fraction", "scaleops.sh/gpu-memory"


class ScaleOps(System):
    """Fractions of the GPUs of capacity pods."""

    name = "scaleops"
    isolation = ""
    ids_are_slices = False
    blind_without_pods = "which containers share the GPUs that ScaleOps' capacity pods hold"
    notes = (whole_keys(COMPUTE, MEMORY),)

    def grants(self) -> Granted:
        """Return the fractions; the GPUs of capacity pods count for no other holder."""
        capacity, known = list(self._capacity()), self.view.details_known
        devices = {device.key: device for _, device in capacity if device is not None}
        own = only(devices.values())
        grants = list(self._fractions(own))
        if not known:
            grants += [Grant(ref, RESOURCE, device, for_unknown=True) for ref, device in capacity]
        return Granted(
            grants=grants,
            settled={(ref, RESOURCE) for ref, _ in capacity},
            unplaced=[(key, RESOURCE) for key in devices] if known and grants and own is None else [],
        )

    def blind(self) -> bool:
        """Return True if a capacity pod holds a GPU here for unknown pods."""
        return not self.view.details_known and any(True for _ in self._capacity())

    def _capacity(self) -> Iterator[tuple[ContainerRef, Device | None]]:
        """Yield the GPUs of capacity pods; None for one that is not on this node."""
        for ref, held in sorted(self.view.held.items()):
            ids = held.get(RESOURCE, frozenset()) if ref.namespace == NAMESPACE else ()
            for named in map(parse_device_id, sorted(ids)):
                if named is not None and not named.replica:
                    yield ref, self.view.inventory.find(named)

    def _fractions(self, device: Device | None) -> Iterator[Grant]:
        """Yield the parts of running pods; a pod with a GPU of its own does not share any."""
        with_gpus = {ref.pod_name for ref, held in self.view.held.items() if RESOURCE in held}
        for pod in self.view.pods:
            details = pod.details
            if details is None or details.phase != "Running" or pod.pod_name in with_gpus:
                continue
            if COMPUTE in details.annotations or MEMORY in details.annotations:
                yield self._grant(pod, details, device)

    def _grant(self, pod: PodIdentity, details: PodDetails, device: Device | None) -> Grant:
        names = main_containers(details.containers)
        compute, vram = details.annotations.get(COMPUTE), details.annotations.get(MEMORY)
        part = self.read_note(pod, COMPUTE, compute, READ_FRACTION)
        size = self.read_note(pod, MEMORY, vram, READ_MEMORY)
        return Grant(
            holder=ContainerRef(pod.namespace, pod.name, only(names) or ""),
            # Without a GPU it is no missing device of the plugin.
            resource=COMPUTE if device is None else RESOURCE,
            device=device,
            memory_entitled=None if vram is None or vram.isdecimal() else size,
            compute_entitled=None if part is None else float(part),
            # Tenants write these annotations: without a capacity pod they are about no GPU.
            may_be=frozenset(),
        )
