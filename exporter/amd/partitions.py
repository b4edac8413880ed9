"""Reads the processes of a card, or its partitions with theirs."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.amd.cards import Card
from exporter.amd.gpu_metrics import Metrics
from exporter.amd.kfd import Kfd, KfdNode, NodeUsage, as_processes, on_node, shares
from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.model import Memory, MigReading
from exporter.model.pid_namespace import OTHER_PIDS
from exporter.model.sums import total

WHOLE = "SPX"
NO_LIST = "KFD does not list its processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardParts:
    """The processes or partitions of one card."""

    # Fields of GpuReading.
    fields: Mapping[str, Any]
    # By group of readings, why some of them are missing.
    withheld: Mapping[str, str]


def read_parts(files: Files, card: Card, kfd: Kfd, metrics: Metrics, memory: Memory | None) -> CardParts:
    """Return the processes of a whole GPU, or its partitions; ``memory`` is that of the whole card.

    Raises CardSlowError.
    """
    mode, memory_mode = (
        files.text(card.path / f"current_{kind}_partition") for kind in ("compute", "memory")
    )
    nodes = kfd.of_card(card)
    total_memory = memory.total if memory is not None else None
    usages = {node.gpu_id: _usages(files, card, kfd, node, total_memory) for node in nodes}
    withheld = {} if kfd.machine_pids else {"processes": OTHER_PIDS}
    if not usages or None in usages.values():
        withheld = {"processes": NO_LIST}
    if len(nodes) <= 1 and mode in (None, WHOLE):
        usage = usages[nodes[0].gpu_id] if nodes else None
        fields = {"mig_enabled": False, **_processes(kfd, usage, _all_units(nodes))}
        return CardParts(fields=fields, withheld=withheld)
    if not nodes:
        return CardParts(fields={"mig_enabled": True, "mig": None, "mig_complete": False}, withheld=withheld)
    profile = f"{mode}_{memory_mode}".lower() if mode and memory_mode else None
    units = _all_units(nodes) if kfd.complete else None
    partitioned = _PartitionedCard(card=card, kfd=kfd, profile=profile, units=units)
    # If nodes are missing, only the table of metrics has the number of partitions.
    slices = len(nodes) if kfd.complete else len(metrics.partitions) or None
    activity = metrics.partition_activity(slices)
    partitions = [partitioned.partition(node, usages[node.gpu_id], activity) for node in nodes]
    named = tuple(partition for partition in partitions if partition is not None)
    complete = kfd.complete and len(named) == len(nodes)
    fields = {"mig_enabled": True, "mig_slices": slices, "mig": named, "mig_complete": complete}
    return CardParts(fields=fields, withheld=withheld)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionedCard:
    card: Card
    kfd: Kfd
    profile: str | None
    # All compute units of the card.
    units: int | None

    def partition(
        self, node: KfdNode, usages: tuple[NodeUsage, ...] | None, activity: tuple[int | None, ...]
    ) -> MigReading | None:
        """Return one partition; None without a name, as allocations cannot be mapped to it."""
        # The device plugin names the first one by the card's address, which has the card's render node.
        minor = node.render_minor
        if minor is None:
            return None
        name = self.card.address if minor == self.card.render_minor else self.kfd.names.get(minor)
        if name is None:
            return None
        return MigReading(
            uuid=name,
            gi=node.partition,
            ci=0,
            profile=self.profile,
            memory=_memory(node, usages),
            compute_slices=1,
            instance_slices=1,
            multiprocessors=node.compute_units,
            render_minor=minor,
            utilization_percent=activity[node.partition] if node.partition < len(activity) else None,
            **_processes(self.kfd, usages, self.units),
        )


def _usages(
    files: Files, card: Card, kfd: Kfd, node: KfdNode, total_memory: int | None
) -> tuple[NodeUsage, ...] | None:
    """Return the processes that use a node; None if unknown, for example while a read of it hangs."""
    if kfd.processes is None:
        return None
    with contextlib.suppress(CardSlowError), files.about(f"{card.address} processes", files.context.device):
        return on_node(files, node, kfd.processes, total_memory)
    return None


def _all_units(nodes: tuple[KfdNode, ...]) -> int | None:
    return total([node.compute_units for node in nodes])


def _processes(kfd: Kfd, usages: tuple[NodeUsage, ...] | None, units: int | None) -> dict[str, Any]:
    """Return the fields of processes, unknown if the pids are those of another namespace."""
    if usages is None or not kfd.machine_pids:
        return {"processes": None, "process_utilization": None}
    return {"processes": as_processes(usages), "process_utilization": shares(usages, units)}


def _memory(node: KfdNode, usages: tuple[NodeUsage, ...] | None) -> Memory | None:
    """Return the memory of a partition; use is the sum over its processes."""
    if node.memory is None or usages is None:
        return None
    used = total([usage.memory for usage in usages])
    if used is None or used > node.memory:
        return None
    return Memory(total=node.memory, used=used, free=node.memory - used)
