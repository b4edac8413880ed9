"""The processes of a card, and its partitions where it is cut: those of one GPU that compute on their own."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.amd.cards import Card
from exporter.amd.gpu_metrics import Metrics
from exporter.amd.kfd import Kfd, Node, Usage, as_processes, on_node, shares
from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.model import Memory, MigReading
from exporter.model.pid_namespace import OTHER_PIDS
from exporter.model.sums import total

WHOLE = "SPX"
NO_LIST = "KFD does not say which processes it has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What computes on one card, as fields of its reading, and why some of them are missing."""

    fields: Mapping[str, Any]
    withheld: Mapping[str, str]


def read_parts(files: Files, card: Card, kfd: Kfd, metrics: Metrics, memory: Memory | None) -> Parts:
    """Return the processes of a whole GPU, or the partitions with theirs; ``memory`` is all of the card's."""
    mode, memory_mode = (
        files.text(card.path / f"current_{kind}_partition") for kind in ("compute", "memory")
    )
    nodes = kfd.of_card(card)
    total_memory = memory.total if memory is not None else None
    usages = {node.gpu_id: _usages(files, card, kfd, node, total_memory) for node in nodes}
    withheld = _withheld(kfd, usages)
    if len(nodes) <= 1 and mode in (None, WHOLE):
        usage = usages[nodes[0].gpu_id] if nodes else None
        fields = {"mig_enabled": False, **_processes(kfd, usage, _all_units(nodes))}
        return Parts(fields=fields, withheld=withheld)
    if not nodes:
        return Parts(fields={"mig_enabled": True, "mig": None, "mig_complete": False}, withheld=withheld)
    profile = f"{mode}_{memory_mode}".lower() if mode and memory_mode else None
    cut = _Cut(card=card, kfd=kfd, profile=profile, units=_all_units(nodes) if kfd.complete else None)
    # Of a list with holes, only the table of metrics can tell how long it should be.
    slices = len(nodes) if kfd.complete else len(metrics.partitions) or None
    busy = metrics.busy(slices)
    found = [cut.partition(node, usages[node.gpu_id], busy) for node in nodes]
    named = tuple(each for each in found if each is not None)
    complete = kfd.complete and len(named) == len(nodes)
    fields = {"mig_enabled": True, "mig_slices": slices, "mig": named, "mig_complete": complete}
    return Parts(fields=fields, withheld=withheld)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A card that is cut; ``units`` are all its compute units."""

    card: Card
    kfd: Kfd
    profile: str | None
    units: int | None

    def partition(
        self, node: Node, usages: tuple[Usage, ...] | None, busy: tuple[int | None, ...]
    ) -> MigReading | None:
        """Read one partition; None for one without a name, so that nobody can be said to hold it."""
        name = self._name(node.render_minor)
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
            render_minor=node.render_minor,
            utilization_percent=busy[node.partition] if node.partition < len(busy) else None,
            **_processes(self.kfd, usages, self.units),
        )

    def _name(self, minor: int | None) -> str | None:
        """Name a partition as the device plugin does: one has the card's own device, each other its own."""
        if minor is None:
            return None
        return self.card.address if minor == self.card.render_minor else self.kfd.names.get(minor)


def _usages(
    files: Files, card: Card, kfd: Kfd, node: Node, total_memory: int | None
) -> tuple[Usage, ...] | None:
    """List who uses a node; None where that cannot be told, as while a read of it hangs."""
    if kfd.processes is None:
        return None
    with contextlib.suppress(CardSlowError), files.about(f"{card.address} processes", files.turn.device):
        return on_node(files, node, kfd.processes, total_memory)
    return None


def _all_units(nodes: tuple[Node, ...]) -> int | None:
    units = [node.compute_units for node in nodes if node.compute_units is not None]
    return sum(units) if len(units) == len(nodes) else None


def _withheld(kfd: Kfd, usages: Mapping[int, tuple[Usage, ...] | None]) -> dict[str, str]:
    if not usages or None in usages.values():
        return {"processes": NO_LIST}
    return {} if kfd.machine_pids else {"processes": OTHER_PIDS}


def _processes(kfd: Kfd, usages: tuple[Usage, ...] | None, units: int | None) -> dict[str, Any]:
    """Return the fields of the processes; pids that mean somebody else here are not told."""
    if usages is None or not kfd.machine_pids:
        return {"processes": None, "process_utilization": None}
    return {"processes": as_processes(usages), "process_utilization": shares(usages, units)}


def _memory(node: Node, usages: tuple[Usage, ...] | None) -> Memory | None:
    """Return what KFD gives to the partition and what its processes hold of that."""
    if node.memory is None or usages is None:
        return None
    used = total([usage.memory for usage in usages])
    if used is None or used > node.memory:
        return None
    return Memory(total=node.memory, used=used, free=node.memory - used)
