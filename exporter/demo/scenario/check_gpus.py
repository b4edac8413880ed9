"""Checks of the NVIDIA GPUs of a scenario and of their MIG layouts."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import get_args

from exporter.demo.nvml import FUNCTIONS
from exporter.demo.nvml.gpu import ENVIRONMENTS, MULTI_GPU_MODES
from exporter.demo.nvml.health import BANKS, CAUSES, LOCATIONS, SCOPES, SEVERITIES
from exporter.demo.nvml.links import FABRIC_PROBLEMS, LEVELS, MISCONFIGURATIONS
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.gpus import Confidential, Gpu, Health, Links, MigInstance, Vgpu
from exporter.demo.scenario.pods import keys
from exporter.documents import Signed, fail
from exporter.model.readings import C2cError, NvlinkError, PacketError

_CPUS = re.compile(r"(?:\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)?")
_FIELD = re.compile(r"field:\d+(?::\d+)?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_PCI_BUS_ID = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


def check_gpus(scenario: Scenario) -> None:
    """Raise DocumentError with the path of the first impossible value of a GPU."""
    uuids = {gpu.uuid for gpu in scenario.gpus}
    mdev_uuids: set[str] = set()
    mode = scenario.node.confidential or Confidential()
    _all_of("node.confidential.environment", (mode.environment,), ENVIRONMENTS)
    _all_of("node.confidential.multi_gpu", (mode.multi_gpu,), MULTI_GPU_MODES)
    for place, gpu in enumerate(scenario.gpus):
        path = f"gpus[{place}]"
        _check_board(gpu, path)
        _check_links(gpu.links, uuids - {gpu.uuid}, f"{path}.links")
        _check_health(gpu.health, f"{path}.health")
        _check_answers(gpu.answers, f"{path}.answers")
        for number, instance in enumerate(gpu.instances):
            _check_answers(instance.answers, f"{path}.mig.instances[{number}].answers")
        for number, vgpu in enumerate(gpu.vgpus):
            _check_vgpu(scenario, gpu, vgpu, mdev_uuids, f"{path}.vgpus[{number}]")


def _check_board(gpu: Gpu, path: str) -> None:
    if not _PCI_BUS_ID.fullmatch(gpu.pci_bus_id):
        fail(f"{path}.pci_bus_id", f"must look like 00000000:07:00.0, not {gpu.pci_bus_id!r}")
    if gpu.memory_reserved + gpu.overhead > gpu.memory_total:
        fail(f"{path}.memory_total", "must be more than memory_reserved and overhead")
    if not 0 <= gpu.power_idle_mw <= gpu.power_max_mw:
        fail(f"{path}.power_idle_mw", "must be between 0 and power_max_mw")
    if gpu.power_limit_mw is not None and not gpu.power_idle_mw <= gpu.power_limit_mw <= gpu.power_max_mw:
        fail(f"{path}.power_limit_mw", "must be between power_idle_mw and power_max_mw")
    if gpu.mig_enabled:
        check_layout(gpu, gpu.instances, f"{path}.mig.instances")
    if gpu.vgpus and gpu.virtualization != "vgpu_host":
        fail(f"{path}.virtualization", f"must be vgpu_host for a GPU with vGPUs, not {gpu.virtualization}")
    expires = gpu.license.expires if gpu.license else ""
    try:
        datetime.fromisoformat(expires or "2000-01-01")
    except ValueError:
        fail(f"{path}.license.expires", f"must look like 2027-01-31T23:59:59, not {expires!r}")


def check_layout(gpu: Gpu, instances: tuple[MigInstance, ...], path: str) -> None:
    """Raise DocumentError if the GPU cannot have these MIG instances."""
    if gpu.mig is None:
        fail(path, f"cannot be: {gpu.model} has no mig")
    first_of: dict[int, MigInstance] = {}
    for place, instance in enumerate(instances):
        if instance.reserved + instance.overhead > instance.memory_bytes:
            fail(f"{path}[{place}].memory_bytes", "must be more than reserved and overhead")
        first = first_of.setdefault(instance.gi, instance)
        if _gpu_instance(first) != _gpu_instance(instance):
            fail(
                f"{path}[{place}]",
                f"must have the same memory and placement as the others of gi {instance.gi}",
            )
    if len({(instance.gi, instance.ci) for instance in instances}) < len(instances):
        fail(path, "name one compute instance twice (the same gi and ci)")
    _check_room(gpu, list(first_of.values()), gpu.mig.max_slices, path)


def _gpu_instance(instance: MigInstance) -> tuple[int, ...]:
    return instance.memory_bytes, instance.reserved, instance.overhead, instance.start, instance.size


def _check_room(gpu: Gpu, instances: list[MigInstance], max_slices: int, path: str) -> None:
    if sum(instance.gi_slices for instance in instances) > max_slices:
        fail(path, f"take more than the {max_slices} compute slices of the GPU")
    taken = sum(instance.memory_bytes for instance in instances)
    if taken + gpu.memory_reserved + gpu.overhead > gpu.memory_total:
        fail(path, f"take {taken} bytes, more than memory_total minus memory_reserved and overhead")
    for first, second in pairwise(sorted(instances, key=lambda instance: instance.start)):
        if first.start + first.size > second.start:
            fail(path, f"overlap: gi {first.gi} and gi {second.gi} both use memory slice {second.start}")


def _check_links(links: Links, others: set[str], path: str) -> None:
    if links.down > links.nvlinks:
        fail(f"{path}.down", f"must be at most nvlinks ({links.nvlinks})")
    _all_of(f"{path}.to", links.to, others)
    _all_of(f"{path}.relations", links.relations, others)
    for word in links.relations.values():
        _all_of(f"{path}.relations", (word,), LEVELS)
    counters = (*get_args(NvlinkError), "recovery_failed", *get_args(PacketError))
    _all_of(f"{path}.errors", links.errors, counters)
    _all_of(f"{path}.c2c_errors", links.c2c_errors, get_args(C2cError))
    problems = {*FABRIC_PROBLEMS, "incorrect_configuration"}
    _all_of(f"{path}.fabric_problems", links.fabric_problems, problems)
    _all_of(f"{path}.misconfiguration", (links.misconfiguration,), MISCONFIGURATIONS[1:])
    if links.cluster and not _UUID.fullmatch(links.cluster):
        fail(f"{path}.cluster", f"must be a UUID, not {links.cluster!r}")
    if links.c2c_down > links.c2c_links:
        fail(f"{path}.c2c_down", f"must be at most c2c_links ({links.c2c_links})")
    ends = sum(links.to.values())
    if ends > links.nvlinks:
        fail(f"{path}.to", f"must be at most {links.nvlinks} links in all, not {ends}")
    if not _CPUS.fullmatch(links.cpus):
        fail(f"{path}.cpus", f"must look like 0-31,64-95, not {links.cpus!r}")


def _check_health(health: Health, path: str) -> None:
    places = {
        f"{severity}/{scope}/{name}" for severity in SEVERITIES for scope in SCOPES for name in LOCATIONS
    }
    _all_of(f"{path}.errors", health.errors, places)
    _all_of(f"{path}.remapped_rows", health.remapped_rows, SEVERITIES)
    _all_of(f"{path}.row_banks", health.row_banks, BANKS)
    _all_of(f"{path}.retired_pages", health.retired_pages, CAUSES)


def _check_answers(answers: Mapping[str, tuple[Signed, ...]], path: str) -> None:
    for call, numbers in answers.items():
        function = FUNCTIONS.get(call.partition(":")[0])
        if _FIELD.fullmatch(call):
            if len(numbers) != 1:
                fail(path, f"{call} must have one number, not {len(numbers)}")
        elif function is None or function.write is None:
            fail(path, f"{call} is not a call of the fake driver that returns numbers")


def _all_of(path: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            fail(path, f"{name} is not one of {', '.join(sorted(known)) or 'none'}")


def _check_vgpu(scenario: Scenario, gpu: Gpu, vgpu: Vgpu, mdev_uuids: set[str], path: str) -> None:
    if not _UUID.fullmatch(vgpu.mdev_uuid):
        fail(f"{path}.mdev_uuid", f"must be a UUID, not {vgpu.mdev_uuid!r}")
    if vgpu.mdev_uuid.lower() in mdev_uuids:
        fail(f"{path}.mdev_uuid", f"is {vgpu.mdev_uuid}, which another vGPU already has")
    mdev_uuids.add(vgpu.mdev_uuid.lower())
    # A vGPU without a process is one with its virtual machine not started.
    devices = {process.device for process in scenario.host_processes if process.pid == vgpu.pid}
    if devices - {key.mig_uuid or key.uuid for key, _, _ in keys((gpu,))}:
        fail(f"{path}.pid", f"host process {vgpu.pid} does not run on this GPU")
