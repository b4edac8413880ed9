"""Device ids in the spellings of the device plugins, made and read for the GPUs of a scenario."""

import re
from collections.abc import Iterator, Sequence

from exporter.demo.scenario.gpus import Gpu, MigInstance
from exporter.demo.scenario.pods import Offer
from exporter.model import DeviceKey

_GKE = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu\d+)?")
_LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)")


def keys(gpus: Sequence[Gpu]) -> Iterator[tuple[DeviceKey, Gpu, MigInstance | None]]:
    """List what a process can run on: whole GPUs without MIG, and MIG instances."""
    for gpu in gpus:
        if gpu.mig is None or not gpu.mig.enabled:
            yield DeviceKey(gpu.uuid), gpu, None
            continue
        for instance in gpu.mig.instances:
            yield DeviceKey(gpu.uuid, instance.uuid), gpu, instance


def resolve(gpus: Sequence[Gpu], device_id: str) -> DeviceKey | None:
    """Return the device that an id of the kubelet means, None where it means none of this node."""
    base = device_id.partition("::")[0]
    for key, gpu, instance in keys(gpus):
        if (
            base == (key.mig_uuid or key.uuid)
            or _is_legacy(base, gpu, instance)
            or _is_gke(base, gpu, instance)
            or (instance is None and any(vgpu.mdev_uuid.lower() == base.lower() for vgpu in gpu.vgpus))
        ):
            return key
    return None


def _is_legacy(base: str, gpu: Gpu, instance: MigInstance | None) -> bool:
    match = _LEGACY_MIG.fullmatch(base)
    return (
        match is not None
        and instance is not None
        and (match[1], int(match[2]), int(match[3])) == (gpu.uuid, instance.gi, instance.ci)
    )


def _is_gke(base: str, gpu: Gpu, instance: MigInstance | None) -> bool:
    match = _GKE.fullmatch(base)
    if match is None or int(match[1]) != gpu.minor:
        return False
    return match[2] == (None if instance is None else str(instance.gi))


def offered(offer: Offer, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    """Yield what a shorthand offers as (resource, id), in the order of the node's devices."""
    for index, gpu in enumerate(gpus):
        if offer.gpus is not None and index not in offer.gpus:
            continue
        for _, _, instance in keys((gpu,)):
            if _is_offered(offer, instance):
                profile = instance.profile.replace("+", ".") if instance else ""
                resource = offer.resource.replace("{profile}", profile)
                yield from ((resource, device_id) for device_id in _spelled(offer, gpu, instance))


def _is_offered(offer: Offer, instance: MigInstance | None) -> bool:
    if instance is None:
        return offer.of == "gpus"
    # A device plugin publishes a compute instance only when it fills its GPU instance.
    return offer.of == "mig" and instance.compute_slices == instance.gi_slices


def _spelled(offer: Offer, gpu: Gpu, instance: MigInstance | None) -> Iterator[str]:
    base = _base_id(offer, gpu, instance)
    separator = "/vgpu" if offer.style == "gke" else "::"
    if not offer.replicas:
        yield base
    for replica in range(offer.replicas):
        yield f"{base}{separator}{replica}"


def _base_id(offer: Offer, gpu: Gpu, instance: MigInstance | None) -> str:
    if offer.style == "gke":
        return f"nvidia{gpu.minor}" + (f"/gi{instance.gi}" if instance else "")
    if instance is None:
        return gpu.uuid
    if offer.style == "legacy-mig":
        return f"MIG-{gpu.uuid}/{instance.gi}/{instance.ci}"
    return instance.uuid
