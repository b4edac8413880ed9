"""What must hold true of the GPUs of a scenario and of how they are cut."""

import re
from itertools import pairwise

from exporter.demo.codec import fail
from exporter.demo.schema_gpu import Gpu, MigInstance

_PCI_BUS_ID = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


def check_gpu(gpu: Gpu, path: str) -> None:
    """Raise ScenarioError with the path of what a board cannot be."""
    if not _PCI_BUS_ID.fullmatch(gpu.pci_bus_id):
        fail(f"{path}.pci_bus_id", f"must look like 00000000:07:00.0, not {gpu.pci_bus_id!r}")
    if gpu.memory_reserved + gpu.overhead > gpu.memory_total:
        fail(f"{path}.memory_total", "must be more than memory_reserved and overhead")
    if not 0 <= gpu.power_idle_mw <= gpu.power_max_mw:
        fail(f"{path}.power_idle_mw", "must lie between 0 and power_max_mw")
    if gpu.power_limit_mw is not None and not gpu.power_idle_mw <= gpu.power_limit_mw <= gpu.power_max_mw:
        fail(f"{path}.power_limit_mw", "must lie between power_idle_mw and power_max_mw")
    if gpu.mig is not None and gpu.mig.enabled:
        check_layout(gpu, gpu.mig.instances, f"{path}.mig.instances")


def check_layout(gpu: Gpu, instances: tuple[MigInstance, ...], path: str) -> None:
    """Raise ScenarioError when the GPU cannot be cut into these instances."""
    if gpu.mig is None:
        fail(path, f"cannot be: {gpu.model} is given without mig")
    first_of: dict[int, MigInstance] = {}
    for place, instance in enumerate(instances):
        if instance.reserved + instance.overhead > instance.memory_bytes:
            fail(f"{path}[{place}].memory_bytes", "must be more than reserved and overhead")
        first = first_of.setdefault(instance.gi, instance)
        if _gpu_instance(first) != _gpu_instance(instance):
            fail(f"{path}[{place}]", f"must have memory and placement in common with all of gi {instance.gi}")
    if len({(instance.gi, instance.ci) for instance in instances}) < len(instances):
        fail(path, "name one compute instance twice (the same gi and ci)")
    _check_room(gpu, list(first_of.values()), gpu.mig.max_slices, path)


def _gpu_instance(instance: MigInstance) -> tuple[int, ...]:
    return instance.memory_bytes, instance.reserved, instance.overhead, instance.start, instance.size


def _check_room(gpu: Gpu, instances: list[MigInstance], max_slices: int, path: str) -> None:
    if sum(instance.gi_slices for instance in instances) > max_slices:
        fail(path, f"take more than the {max_slices} compute slices of the GPU")
    held = sum(instance.memory_bytes for instance in instances)
    if held + gpu.memory_reserved + gpu.overhead > gpu.memory_total:
        fail(path, f"take {held} bytes, more than memory_total leaves beside memory_reserved and overhead")
    for before, after in pairwise(sorted(instances, key=lambda instance: instance.start)):
        if before.start + before.size > after.start:
            fail(path, f"overlap: gi {before.gi} and gi {after.gi} both lie on memory slice {after.start}")
