"""AMD GPUs in a scenario: what is derived, what an id of the kubelet means, what cannot be."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from exporter.demo.codec import fail
from exporter.demo.derive import make_hex
from exporter.demo.devices import keys
from exporter.demo.schema_amd import AmdGpu, as_gpu
from exporter.demo.schema_gpu import Gpu
from exporter.demo.schema_pods import Offer
from exporter.model import DeviceKey

# Where the GPUs of a board with eight lie; later ones go on from there.
_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")
_ARCHITECTURE = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}")


def complete(scenario: str, amd: AmdGpu, index: int) -> AmdGpu:
    """Fill what an AMD GPU leaves out; ``index`` is its place among them."""
    board, place = divmod(index, len(_BUSES))
    return replace(
        amd,
        count=1,
        unique_id=amd.unique_id or make_hex(scenario, "amd", index)[:16],
        address=amd.address or f"{board:04x}:{_BUSES[place]:02x}:00.0",
        serial=amd.serial or f"6920{int(make_hex(scenario, 'amd serial', index)[:8], 16):010d}",
    )


def gpus_of(amd: Sequence[AmdGpu]) -> tuple[Gpu, ...]:
    """Return all of them as the machine knows them."""
    return tuple(as_gpu(each, index) for index, each in enumerate(amd))


def resolve(gpus: Sequence[Gpu], device_id: str) -> DeviceKey | None:
    """Return the device that an id of AMD's plugin means, None where it means none of these."""
    for key, gpu, instance in keys(gpus):
        if device_id == (gpu.pci_bus_id if instance is None else instance.uuid):
            return key
    return None


def references(amd: Sequence[AmdGpu]) -> Iterator[tuple[str, str]]:
    """Name every device, as (reference, id): ``amd:0`` is the first GPU or its first partition."""
    for index, each in enumerate(amd):
        names = each.names(index)
        yield f"amd:{index}", names[0]
        yield from ((f"amd:{index}/part:{place}", name) for place, name in enumerate(names))


def offered(offer: Offer, amd: Sequence[AmdGpu]) -> Iterator[tuple[str, str]]:
    """Write out an offer of all devices as (resource, id); ``{profile}`` is how the GPU is cut."""
    for index, each in enumerate(amd):
        if offer.of == "amd" and (offer.gpus is None or index in offer.gpus):
            profile = f"{each.mode}_{each.memory_mode}".lower()
            resource = offer.resource.replace("{profile}", profile)
            yield from ((resource, name) for name in each.names(index))


def check_amd(amd: AmdGpu, path: str) -> None:
    """Raise ScenarioError with the path of what an AMD GPU cannot be."""
    for name, pattern in (("address", _ADDRESS), ("unique_id", _UNIQUE_ID), ("architecture", _ARCHITECTURE)):
        if not pattern.fullmatch(getattr(amd, name)):
            fail(f"{path}.{name}", f"must match {pattern.pattern}, not {getattr(amd, name)!r}")
    if amd.overhead > amd.memory_total:
        fail(f"{path}.memory_total", "must be more than overhead")
    if not 0 <= amd.power_idle_mw <= amd.power_max_mw:
        fail(f"{path}.power_idle_mw", "must lie between 0 and power_max_mw")
    if bool(amd.mode) != bool(amd.memory_mode):
        fail(f"{path}.memory_mode", "must be given with mode, and only with it")
    if not 1 <= amd.dies <= 8 or amd.compute_units % amd.partitions:
        fail(f"{path}.dies", "must be 1 to 8, and share out the compute units evenly")
