"""What one sweep knows of KFD: the nodes, the processes, and what the partitions are called as devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.hardware.amd.cards import Card, render_minor
from exporter.hardware.amd.files import Files
from exporter.hardware.amd.processes import list_processes
from exporter.hardware.amd.topology import Node, Topology
from exporter.pid_namespace import counts_machine_pids

PARTITION = re.compile(r"amdgpu_xcp_[0-9]{1,9}")
PLATFORM = Path("devices/platform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kfd:
    """KFD as one sweep found it; ``complete``: all of its nodes could be read.

    ``processes`` are the folders of the processes, None where they cannot be listed. ``names`` are those of
    the partitions' own devices by render node. ``machine_pids``: its pids mean the same to us.
    """

    nodes: Mapping[tuple[int, int], tuple[Node, ...]] = field(default_factory=dict)
    complete: bool = False
    processes: tuple[Path, ...] | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    machine_pids: bool = False

    def of_card(self, card: Card) -> tuple[Node, ...]:
        """Return the nodes of one GPU: one, or as many as it is cut into; none where KFD does not know it.

        Of several GPUs that are functions of one device, each has its own render node and unique id.
        """
        nodes = self.nodes.get(card.location, ())
        own = {node.unique_id for node in nodes if node.render_minor == card.render_minor}
        return tuple(node for node in nodes if node.unique_id in own) if own else nodes


class KfdReader:
    """Reads KFD once for all GPUs of a sweep."""

    def __init__(self, files: Files, sys_root: Path, proc_root: Path) -> None:
        self._files = files
        self._sys_root = sys_root
        self._proc_root = proc_root
        self._topology = Topology(files, sys_root)

    def read(self) -> Kfd:
        """Return what KFD says now."""
        nodes = self._topology.read()
        cut = any(node.partition or len(of_gpu) > 1 for of_gpu in nodes.values() for node in of_gpu)
        return Kfd(
            nodes=nodes,
            complete=self._topology.complete,
            processes=list_processes(self._files, self._sys_root),
            names=self._names() if cut else {},
            machine_pids=counts_machine_pids(self._proc_root),
        )

    def _names(self) -> Mapping[int, str]:
        """Map render nodes to partitions. A GPU has devices for more partitions than it is cut into."""
        folder = self._sys_root / PLATFORM
        found = {
            render_minor(self._files, folder / name): name
            for name in self._files.names(folder)
            if PARTITION.fullmatch(name)
        }
        return {minor: name for minor, name in found.items() if minor is not None}
