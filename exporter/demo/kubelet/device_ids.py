"""Device ids in the formats of the device plugins, rendered and parsed for the GPUs of a scenario."""

import re
from collections.abc import Iterator, Sequence
from typing import get_args

from exporter.demo.scenario.gpus import Gpu, MigInstance
from exporter.demo.scenario.pods import Offer, Style
from exporter.model import DeviceKey

_GKE_REPLICA = re.compile(r"(nvidia\d+(?:/gi\d+)?)/vgpu\d+")


def keys(gpus: Sequence[Gpu]) -> Iterator[tuple[DeviceKey, Gpu, MigInstance | None]]:
    """Yield the devices that a process can run on: GPUs without MIG, and MIG instances."""
    for gpu in gpus:
        if gpu.mig_enabled:
            yield from ((DeviceKey(gpu.uuid, mig.uuid), gpu, mig) for mig in gpu.instances)
        else:
            yield DeviceKey(gpu.uuid), gpu, None


def resolve(gpus: Sequence[Gpu], device_id: str) -> DeviceKey | None:
    """Return the device with an id of the kubelet, None if it is not a device of this node."""
    base = device_id.partition("::")[0]
    replica = _GKE_REPLICA.fullmatch(base)
    base = replica[1] if replica else base
    for key, gpu, instance in keys(gpus):
        vgpus = () if instance else gpu.vgpus
        if base in {_base_id(style, gpu, instance) for style in get_args(Style)}:
            return key
        if base.lower() in {vgpu.mdev_uuid.lower() for vgpu in vgpus}:
            return key
    return None


def offered(offer: Offer, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    """Yield the devices of an offer as (resource, id), in the order of the node's devices."""
    for index, gpu in enumerate(gpus):
        if offer.gpus is not None and index not in offer.gpus:
            continue
        for _, _, instance in keys((gpu,)):
            if _is_offered(offer, instance):
                profile = instance.profile.replace("+", ".") if instance else ""
                resource = offer.resource.replace("{profile}", profile)
                base = _base_id(offer.style, gpu, instance)
                separator = "/vgpu" if offer.style == "gke" else "::"
                replicas = [f"{base}{separator}{replica}" for replica in range(offer.replicas)]
                yield from ((resource, device_id) for device_id in replicas or [base])


def _is_offered(offer: Offer, instance: MigInstance | None) -> bool:
    if instance is None:
        return offer.of == "gpus"
    # A device plugin offers a compute instance only if it fills its GPU instance.
    return offer.of == "mig" and instance.compute_slices == instance.gi_slices


def _base_id(style: Style, gpu: Gpu, instance: MigInstance | None) -> str:
    if style == "gke":
        return f"nvidia{gpu.minor}" + (f"/gi{instance.gi}" if instance else "")
    if instance is None:
        return gpu.uuid
    return f"MIG-{gpu.uuid}/{instance.gi}/{instance.ci}" if style == "legacy-mig" else instance.uuid
