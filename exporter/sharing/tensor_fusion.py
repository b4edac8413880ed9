"""TensorFusion: parts of GPUs by annotations that its scheduler writes on worker pods.

A worker is the pod with the GPU: that of the user itself, or one that serves pods of other nodes (clients),
which hold nothing here. The kubelet's ids (``3-1``, ``3-2``, ... of ``tensor-fusion.ai/index_3``) only tell
the plugin which pod asks: their number is a part of that pod's index, and no amount.

Annotations, below ``tensor-fusion.ai/``: ``gpu-ids`` (UUIDs in lower case), ``container-gpus`` (JSON, GPUs by
container), ``partition-uuids`` (``<MIG UUID>:<GPU UUID>``), ``isolation``, and amounts of each GPU:
``vram-request`` and ``-limit`` (quantities), ``compute-percent-request`` and ``-limit``, ``tflops-request``
and ``-limit``. The node does not know how many TFLOPS a GPU has: these are no share of it.

Source: pkg/constants/constants.go, internal/scheduler/gpuresources/gpuresources.go and
pkg/hypervisor/backend/kubernetes of https://github.com/NexusGPU/tensor-fusion, read at 2.17.1.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from exporter.model import ContainerRef, DeviceKey, DeviceSharing, PodName, only
from exporter.model.quantity import whole_quantity
from exporter.sharing.base import Grant, Granted, Offer, System, whole_keys
from exporter.sharing.base.inventory import Device, DeviceId
from exporter.sharing.base.reading import parsed
from exporter.sharing.base.view import View
from exporter.sharing.gpu_fractions import expected
from exporter.sharing.kai import READ_MEMORY

DOMAIN = "tensor-fusion.ai/"
# Also the resource of the first major release.
INDEX = f"{DOMAIN}index"
RESOURCES = re.compile(rf"{re.escape(INDEX)}(?:_[0-9a-f])?")
GPUS, CONTAINER_GPUS = f"{DOMAIN}gpu-ids", f"{DOMAIN}container-gpus"
PARTITIONS, ISOLATION = f"{DOMAIN}partition-uuids", f"{DOMAIN}isolation"
VRAM, PERCENT, TFLOPS = (
    (f"{DOMAIN}{name}-request", f"{DOMAIN}{name}-limit") for name in ("vram", "compute-percent", "tflops")
)
# The scheduler's percentage for a limit in TFLOPS.
HARD_PERCENT = f"{DOMAIN}effective-hard-sm-percent"
# The container that computes for the others of its pod, or for clients.
WORKER = "tensorfusion-worker"
SHARED, PARTITIONED = "shared", "partitioned"
# The label ``isolation`` of TensorFusion's modes: its *hard* is a limiter in the worker's process.
ISOLATIONS: Mapping[str, str] = {"soft": "soft", "hard": "soft", SHARED: "none", PARTITIONED: "hard"}
LONGEST, MOST_GPUS = 1 << 16, 128
T = TypeVar("T")
_PERCENT = re.compile(r"([0-9]{1,6})(\.[0-9]{1,9})?(m?)")


class WorkerGpus(NamedTuple):
    """The GPUs of one holder, as ids of the annotations."""

    holder: ContainerRef
    ids: tuple[str, ...]


def split_ids(text: str) -> tuple[str, ...]:
    """Return the ids in a list with commas, each once and without spaces, at most MOST_GPUS."""
    ids = dict.fromkeys(filter(None, map(str.strip, text[:LONGEST].split(","))))
    return tuple(ids)[:MOST_GPUS]


def by_container(text: str) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each container in ``container-gpus``; raises ValueError."""
    items = parsed(text, dict, LONGEST).items()
    if not all(isinstance(ids, list) and all(isinstance(each, str) for each in ids) for _, ids in items):
        raise ValueError("is not lists of GPUs by container")
    return {name: split_ids(",".join(ids)) for name, ids in items}


def percent(text: str) -> float | None:
    """Return a percentage (``30``, ``12.5``, ``12500m``) as a share up to 1; None for any other text."""
    match = _PERCENT.fullmatch(text)
    if match is None:
        return None
    value = float(match[1] + (match[2] or "")) / (100_000 if match[3] else 100)
    return value if 0 < value <= 1 else None


class TensorFusion(System):
    """Workers with GPUs; the isolation is that of the GPU, on which all workers have the same mode."""

    name = "tensor-fusion"
    ids_are_slices = False
    blind_without_pods = "which GPUs TensorFusion's workers have, and how much of them"
    notes = (whole_keys(GPUS, CONTAINER_GPUS, PARTITIONS, ISOLATION, HARD_PERCENT, *VRAM, *PERCENT, *TFLOPS),)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._isolations: dict[DeviceKey, set[str]] = defaultdict(set)

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True for ids by which the plugin finds a pod."""
        return _is_index(resource)

    def grants(self) -> Granted:
        """Return the GPUs of each worker whose annotations name them; ids of others are unresolved."""
        pods: dict[PodName, list[ContainerRef]] = defaultdict(list)
        for ref, held in sorted(self.view.held.items()):
            if any(map(_is_index, held)):
                pods[ref.pod_name].append(ref)
        granted = Granted()
        for holders in pods.values():
            for worker in self._gpus(holders):
                for device_id in worker.ids:
                    device = self._device(worker.holder, device_id)
                    granted.grants.append(self._grant(worker.holder, device, device_id))
                for ref in holders:
                    granted.settle(ref, filter(_is_index, self.view.held[ref]))
        return granted

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode, with the isolation of the workers on a device; "" if they differ."""
        isolation = only(self._isolations.get(device.key, ())) or ""
        return replace(super().sharing(device, offer), isolation=isolation)

    def _gpus(self, holders: Sequence[ContainerRef]) -> list[WorkerGpus]:
        """Return the GPUs of a pod by container; of the whole pod if its containers share them."""
        asked = self.view.annotations(holders[0])
        by_name: dict[str, tuple[str, ...]] = {}
        partitions = split_ids(asked.get(PARTITIONS, ""))
        if CONTAINER_GPUS in asked and not partitions:
            text = asked[CONTAINER_GPUS]
            by_name = self.read_note(holders[0], CONTAINER_GPUS, text, by_container) or {}
        if named := [
            WorkerGpus(ref, by_name[ref.container]) for ref in holders if by_name.get(ref.container)
        ]:
            return named
        ids = partitions or split_ids(asked.get(GPUS, ""))
        worker = next((ref for ref in holders if ref.container == WORKER), None)
        alone = holders[0] if len(holders) == 1 else holders[0]._replace(container="")
        return [WorkerGpus(worker or alone, ids)] if ids else []

    def _device(self, holder: ContainerRef, device_id: str) -> Device | None:
        device = self.view.inventory.by_uuid(_of_driver(device_id.partition(":")[0]))
        if device is None and not self._parts(device_id):
            self.object_to(holder, GPUS, f"{device_id[:100]!r} is not a GPU of this node")
        return device

    def _parts(self, device_id: str) -> frozenset[DeviceKey]:
        """Return the MIG devices of the GPU that an id names, or that its MIG device belongs to."""
        mig, _, gpu = device_id.partition(":")
        return self.view.inventory.parts_of(DeviceId(uuid=_of_driver(gpu or mig)))

    def _grant(self, holder: ContainerRef, device: Device | None, device_id: str) -> Grant:
        asked = self.view.annotations(holder)
        mode = asked.get(ISOLATION) or "soft"
        if mode not in ISOLATIONS:
            self.object_to(holder, ISOLATION, f"{mode[:100]!r} is not a known mode")
        whole = mode == SHARED or (mode == PARTITIONED and device is not None and device.mig is not None)
        if device is not None:
            self._isolations[device.key].add(ISOLATIONS.get(mode, ""))
        vram = None if whole else self._amount(holder, VRAM, READ_MEMORY)
        compute = None if whole else self._compute(holder)
        if whole and device is not None:
            vram, compute = device.memory, device.compute
        return Grant(
            holder=holder,
            resource=INDEX,
            device=device,
            memory_entitled=vram,
            compute_entitled=compute,
            exclusive=whole,
            may_be=self._parts(device_id),
        )

    def _compute(self, holder: ContainerRef) -> float | None:
        """Return a share of each GPU: its percentage, else that of its TFLOPS by the scheduler."""
        asked = self.view.annotations(holder)
        request, limit = (asked.get(key, "") for key in TFLOPS)
        in_tflops = limit and request in ("", limit) and not any(key in asked for key in PERCENT)
        keys = (HARD_PERCENT,) if in_tflops else PERCENT
        return self._amount(holder, keys, expected(percent, "a percentage of a GPU"))

    def _amount(self, holder: ContainerRef, keys: Sequence[str], read: Callable[[str], T]) -> T | None:
        """Return the first amount that is set; TensorFusion writes 0 for one that is not."""
        asked = self.view.annotations(holder)
        key = next((key for key in keys if whole_quantity(asked.get(key, "0")) != 0), None)
        return None if key is None else self.read_note(holder, key, asked[key], read)


def _of_driver(uuid: str) -> str:
    """Return a UUID in the driver's form: TensorFusion's are in lower case, or have numbers after them."""
    if uuid.startswith("MIG-") and not uuid.startswith("MIG-GPU-"):
        return uuid.partition("/")[0]
    return f"GPU-{uuid[4:]}" if uuid.lower().startswith("gpu-") else uuid


def _is_index(resource: str) -> bool:
    return RESOURCES.fullmatch(resource) is not None
