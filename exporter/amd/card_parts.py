"""Reads the processes of one card, or its partitions with theirs: by KFD."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exporter.amd.cards import Card
from exporter.amd.gpu_metrics import Metrics
from exporter.amd.kfd import Kfd, KfdNode
from exporter.amd.sysfs_file import CardSlowError, Files, to_amount
from exporter.model import DeviceProcess, Memory, MigReading, total
from exporter.model.bounds import BYTES, PARTS, SAMPLED_PERCENT
from exporter.model.poll_result import OTHER_PIDS

# Folders of the second and further contexts of a process, in its own folder.
CONTEXT = "context_"
WHOLE = "SPX"
NO_LIST = "KFD does not list its processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """Use of a node by a process."""

    pid: int
    memory: int | None  # bytes; None if impossible
    units: int | None  # compute units that its waves occupy at this moment; None if not metered


# The processes that use a node; None if unknown.
Usages = tuple[NodeUsage, ...] | None


def read_parts(files: Files, card: Card, kfd: Kfd, metrics: Metrics) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of GpuReading of a whole GPU's processes, or of its partitions; and what is missing.

    The latter is the reason by group of readings. Raises CardSlowError.
    """
    mode, memory_mode = (
        files.text(card.path / f"current_{kind}_partition") for kind in ("compute", "memory")
    )
    nodes = kfd.of_card(card)
    usages = {node.gpu_id: _usages(files, card, kfd, node) for node in nodes}
    withheld = {} if kfd.machine_pids else {"processes": OTHER_PIDS}
    if not usages or None in usages.values():
        withheld = {"processes": NO_LIST}
    if len(nodes) <= 1 and mode in (None, WHOLE):
        usage = usages[nodes[0].gpu_id] if nodes else None
        return {"mig_enabled": False, **_processes(kfd, usage, _all_units(nodes))}, withheld
    if not nodes:
        return {"mig_enabled": True, "mig": None, "mig_complete": False}, withheld
    profile = f"{mode}_{memory_mode}".lower() if mode and memory_mode else None
    # If nodes are missing, only the table of metrics has the number of partitions.
    slices = len(nodes) if kfd.complete else len(metrics.partitions) or None
    activity = metrics.partition_activity(slices)
    partitions = [_partition(card, kfd, node, usages[node.gpu_id], activity) for node in nodes]
    parts = tuple(replace(partition, profile=profile) for partition in partitions)
    complete = kfd.complete and all(_name(card, kfd, node) is not None for node in nodes)
    return {"mig_enabled": True, "mig_slices": slices, "mig": parts, "mig_complete": complete}, withheld


def _partition(
    card: Card, kfd: Kfd, node: KfdNode, usages: Usages, activity: tuple[int | None, ...]
) -> MigReading:
    """Return one partition without its profile; one without a name, which allocations have, gets a number."""
    return MigReading(
        uuid=_name(card, kfd, node) or f"{card.address}/{node.partition}",
        gi=node.partition,
        ci=0,
        memory=_memory(node, usages),
        compute_slices=1,
        instance_slices=1,
        multiprocessors=node.compute_units,
        render_minor=node.render_minor,
        utilization_percent=activity[node.partition] if node.partition < len(activity) else None,
        **_processes(kfd, usages, _all_units(kfd.of_card(card)) if kfd.complete else None),
    )


def _name(card: Card, kfd: Kfd, node: KfdNode) -> str | None:
    """Return the device plugin's name of a partition, None if unknown: the first has the card's address."""
    minor = node.render_minor
    if minor is None:
        return None
    return card.address if minor == card.render_minor else kfd.names.get(minor)


def _usages(files: Files, card: Card, kfd: Kfd, node: KfdNode) -> Usages:
    """Return the processes that use a node; None if unknown, for example while a read of it hangs."""
    if kfd.processes is None:
        return None
    with contextlib.suppress(CardSlowError), files.about(f"{card.address} processes", files.context.device):
        return on_node(files, node, kfd.processes)
    return None


def _all_units(nodes: tuple[KfdNode, ...]) -> int | None:
    return total([node.compute_units for node in nodes])


def _processes(kfd: Kfd, usages: Usages, units: int | None) -> dict[str, Any]:
    """Return the fields of processes, unknown if the pids are those of another namespace."""
    if usages is None or not kfd.machine_pids:
        return {"processes": None, "process_utilization": None}
    return {"processes": as_processes(usages), "process_utilization": shares(usages, units)}


def _memory(node: KfdNode, usages: Usages) -> Memory | None:
    """Return the memory of a partition; use is the sum over its processes."""
    if node.memory is None or usages is None:
        return None
    used = total([usage.memory for usage in usages])
    if used is None or used > node.memory:
        return None
    return Memory(total=node.memory, used=used, free=node.memory - used)


def on_node(files: Files, node: KfdNode, processes: Iterable[Path]) -> tuple[NodeUsage, ...] | None:
    """Return the processes that use a node, by pid; None if one of them cannot be read.

    ``processes`` are the folders of all processes with KFD open; a process without memory and queues on the
    node does not use it. Raises CardSlowError.
    """
    usages: list[NodeUsage] = []
    for process in processes:
        contexts = [process, *(process / name for name in files.names(process) if name.startswith(CONTEXT))]
        failures = files.failures()
        texts = [files.text(context / f"vram_{node.gpu_id}") for context in contexts]
        sizes = [to_amount(text) for text in texts if text is not None]
        if files.failures() > failures or None in sizes:
            return None
        used = sum(filter(None, sizes))
        if used or _has_queue(files, node, contexts):
            memory = files.believed(process / f"vram_{node.gpu_id}", used, BYTES)
            units = _units(files, node, contexts)
            usages.append(NodeUsage(pid=int(process.name), memory=memory, units=units))
    return tuple(sorted(usages, key=lambda usage: usage.pid))


def as_processes(usages: Iterable[NodeUsage]) -> tuple[DeviceProcess, ...]:
    return tuple(
        DeviceProcess(pid=usage.pid, memory=usage.memory, kinds=frozenset({"compute"})) for usage in usages
    )


def shares(usages: Iterable[NodeUsage], compute_units: int | None) -> Mapping[int, float | None] | None:
    """Return by pid the percent of ``compute_units``, those of the physical GPU, at this moment.

    None if no process is metered.
    """
    units_by_pid = {usage.pid: usage.units for usage in usages}
    if not compute_units or (units_by_pid and all(units is None for units in units_by_pid.values())):
        return None
    percents = {
        pid: None if units is None else units * 100 / compute_units for pid, units in units_by_pid.items()
    }
    return {
        pid: None if percent is None or not SAMPLED_PERCENT.has(percent) else min(percent, 100.0)
        for pid, percent in percents.items()
    }


def _has_queue(files: Files, node: KfdNode, contexts: Iterable[Path]) -> bool:
    queues = (path / "queues" / name for path in contexts for name in files.names(path / "queues"))
    return any(files.number(queue / "gpuid") == node.gpu_id for queue in queues)


def _units(files: Files, node: KfdNode, contexts: Iterable[Path]) -> int | None:
    paths = [context / f"stats_{node.gpu_id}/cu_occupancy" for context in contexts]
    occupancy = [files.number(path, PARTS) for path in paths]
    known = [units for units in occupancy if units is not None]
    return sum(known) if known else None
