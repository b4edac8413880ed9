"""KFD, the kernel driver for compute: its nodes, its processes, and what one sweep knows of both."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.amd.cards import Card, render_minor
from exporter.amd.sysfs_file import Files, properties, to_amount
from exporter.model import DeviceProcess
from exporter.model.pid_namespace import counts_machine_pids

KFD = Path("class/kfd/kfd")
# The heaps of a node that are frame buffer, visible to the host or not; others are caches and the like.
FRAME_BUFFER = frozenset({"1", "2"})
# The bits of a location: bus, device and function. The partitions of one GPU are told apart by the function,
# which a GPU itself does not use; some kernels put their number into the highest bits.
DEVICE_MASK, FUNCTION_MASK, PARTITION_SHIFT = 0xFFF8, 0x7, 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Something that computes: its id for processes, where it sits, and how large it is.

    ``location`` is PCI domain, and bus and device; ``partition`` counts those of one GPU from 0, which have
    the GPU's ``unique_id`` in common. ``memory`` is the frame buffer that is its own, in bytes.
    """

    gpu_id: int
    location: tuple[int, int]
    partition: int
    unique_id: int
    render_minor: int | None
    compute_units: int | None
    architecture: str | None
    memory: int | None


class Topology:
    """The nodes by the place of their GPU, read again when KFD says that its list is another one.

    ``complete`` is False when some could not be read: a container may see the nodes of its own devices only.
    """

    def __init__(self, files: Files, sys_root: Path) -> None:
        self._files = files
        self._root = sys_root / KFD / "topology"
        self.complete = True
        self._generation: int | None = None
        self._nodes: Mapping[tuple[int, int], tuple[Node, ...]] = {}

    def read(self) -> Mapping[tuple[int, int], tuple[Node, ...]]:
        """Return the nodes at each place on PCI, in the order of partitions."""
        generation = self._files.number(self._root / "generation_id")
        if generation is None or generation != self._generation:
            failures = self._files.failures()
            self._nodes = self._read()
            # A list with holes is read again next time.
            self.complete = self._files.failures() == failures
            self._generation = generation if self.complete else None
        return self._nodes

    def _read(self) -> Mapping[tuple[int, int], tuple[Node, ...]]:
        found: defaultdict[tuple[int, int], list[Node]] = defaultdict(list)
        folder = self._root / "nodes"
        for name in self._files.names(folder):
            node = _node(self._files, folder / name)
            if node is not None:
                found[node.location].append(node)
        return {
            location: tuple(sorted(nodes, key=lambda node: node.partition))
            for location, nodes in found.items()
        }


def _node(files: Files, path: Path) -> Node | None:
    """Read a node; the processors' own nodes have no id."""
    gpu_id = files.number(path / "gpu_id")
    if not gpu_id:
        return None
    told = {
        name: to_amount(value) for name, value in properties(files.text(path / "properties"), " ").items()
    }
    location = told.get("location_id")
    if location is None:
        return None
    return Node(
        gpu_id=gpu_id,
        location=(told.get("domain") or 0, location & DEVICE_MASK),
        partition=location >> PARTITION_SHIFT | location & FUNCTION_MASK,
        unique_id=told.get("unique_id") or 0,
        render_minor=told.get("drm_render_minor"),
        compute_units=_compute_units(told.get("simd_count"), told.get("simd_per_cu")),
        architecture=_architecture(told.get("gfx_target_version")),
        memory=_memory(files, path / "mem_banks"),
    )


def _compute_units(simds: int | None, simds_per_unit: int | None) -> int | None:
    return simds // simds_per_unit if simds and simds_per_unit else None


def _architecture(version: int | None) -> str | None:
    """Return 90402 in the form of compilers: gfx942; stepping 10 is an a."""
    if not version:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(files: Files, folder: Path) -> int | None:
    banks = [properties(files.text(folder / name / "properties"), " ") for name in files.names(folder)]
    sizes = [to_amount(bank.get("size_in_bytes")) for bank in banks if bank.get("heap_type") in FRAME_BUFFER]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


# A process with several contexts has a folder for each further one in its own.
CONTEXT = "context_"
ALL_UNITS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has of a node: bytes, and compute units that its waves fill at this moment.

    ``memory`` is None where it cannot be believed, ``units`` where the node does not meter that, or did not
    answer.
    """

    pid: int
    memory: int | None
    units: int | None


def list_processes(files: Files, sys_root: Path) -> tuple[Path, ...] | None:
    """Return the folder of each process that has KFD open; None where there is no such list."""
    root = sys_root / KFD / "proc"
    failures = files.failures()
    names = files.names(root)
    if files.failures() > failures or not root.is_dir():
        return None
    return tuple(root / name for name in names if name.isdecimal())


def on_node(
    files: Files, node: Node, processes: Iterable[Path], card_memory: int | None
) -> tuple[Usage, ...] | None:
    """Return what each process has of a node, None when one of them does not tell.

    ``card_memory`` are the bytes of the whole card, where these are known. Every process that has opened KFD
    could use any node: one without memory and queues there does not.
    """
    found: list[Usage] = []
    most = min((size for size in (node.memory, card_memory) if size is not None), default=None)
    for process in processes:
        contexts = [process, *(process / name for name in files.names(process) if name.startswith(CONTEXT))]
        failures = files.failures()
        told = [files.text(each / f"vram_{node.gpu_id}") for each in contexts]
        memory = [to_amount(text) for text in told if text is not None]
        if files.failures() > failures or None in memory:
            return None
        held = sum(filter(None, memory))
        # Nobody has more than there is.
        known = held if most is None or held <= most else None
        if held or _has_queue(files, node, contexts):
            found.append(Usage(pid=int(process.name), memory=known, units=_units(files, node, contexts)))
    return tuple(sorted(found, key=lambda usage: usage.pid))


def as_processes(usages: Iterable[Usage]) -> tuple[DeviceProcess, ...]:
    """Return the list of processes of a device."""
    return tuple(
        DeviceProcess(pid=usage.pid, memory=usage.memory, kinds=frozenset({"compute"})) for usage in usages
    )


def shares(usages: Iterable[Usage], compute_units: int | None) -> Mapping[int, float | None] | None:
    """Return the percent of a physical GPU's compute units that each process fills.

    None where none of them is metered. It is the state of one moment, not a mean.
    """
    units = {usage.pid: usage.units for usage in usages}
    if not compute_units or (units and not any(each is not None for each in units.values())):
        return None
    return {
        pid: None if each is None else min(each * ALL_UNITS / compute_units, float(ALL_UNITS))
        for pid, each in units.items()
    }


def _has_queue(files: Files, node: Node, contexts: Iterable[Path]) -> bool:
    queues = (each / "queues" / name for each in contexts for name in files.names(each / "queues"))
    return any(files.number(queue / "gpuid") == node.gpu_id for queue in queues)


def _units(files: Files, node: Node, contexts: Iterable[Path]) -> int | None:
    told = [files.amount(each / f"stats_{node.gpu_id}/cu_occupancy") for each in contexts]
    known = [units for units in told if units is not None]
    return sum(known) if known else None


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
