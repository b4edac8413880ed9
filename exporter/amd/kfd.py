"""Reads KFD, the kernel driver for compute: its nodes and processes."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.amd.cards import Card, render_minor
from exporter.amd.sysfs_file import Files, properties, to_amount
from exporter.model import total
from exporter.model.bounds import BYTES, PARTS

KFD = Path("class/kfd/kfd")
# Heap types of device memory, public and private; other heaps are caches and so on.
FRAME_BUFFER = frozenset({"1", "2"})
# Each partition but the first is a platform device: amdgpu_xcp_1, or amdgpu_xcp.1 in older kernels.
PLATFORM = Path("devices/platform")
# Four on each compute unit.
SIMDS = PARTS.times(4)
# ``location_id``: bus, device and function. Partitions of a GPU differ in the function, which a whole GPU
# does not use; some kernels have the number of the partition in the highest bits.
DEVICE_MASK, FUNCTION_MASK, PARTITION_SHIFT = 0xFFF8, 0x7, 28


@dataclass(frozen=True, slots=True, kw_only=True)
class KfdNode:
    """A GPU or partition in KFD."""

    gpu_id: int  # id in the files of processes
    location: tuple[int, int]  # PCI domain, and bus and device in one number
    partition: int  # number among the partitions of the GPU, from 0
    # Of the GPU.
    unique_id: int
    render_minor: int | None
    compute_units: int | None
    architecture: str | None
    memory: int | None  # bytes of its own device memory


def _node(files: Files, path: Path) -> KfdNode | None:
    """Return a node; None for one of a processor, which has no id."""
    gpu_id = files.number(path / "gpu_id")
    if not gpu_id:
        return None
    values = {
        name: to_amount(value) for name, value in properties(files.text(path / "properties"), " ").items()
    }
    location = values.get("location_id")
    if location is None:
        return None
    simds, simds_per_unit = (
        files.believed(path / "properties", values.get(name), SIMDS) for name in ("simd_count", "simd_per_cu")
    )
    # 90402 is gfx942 for compilers, 90010 is gfx90a.
    version = values.get("gfx_target_version")
    return KfdNode(
        gpu_id=gpu_id,
        location=(values.get("domain") or 0, location & DEVICE_MASK),
        partition=location >> PARTITION_SHIFT | location & FUNCTION_MASK,
        unique_id=values.get("unique_id") or 0,
        render_minor=values.get("drm_render_minor"),
        compute_units=simds // simds_per_unit if simds and simds_per_unit else None,
        architecture=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None,
        memory=_memory(files, path / "mem_banks"),
    )


def _memory(files: Files, folder: Path) -> int | None:
    """Return the bytes of device memory of a node; None if unknown."""
    banks = [properties(files.text(folder / name / "properties"), " ") for name in files.names(folder)]
    sizes = [to_amount(bank.get("size_in_bytes")) for bank in banks if bank.get("heap_type") in FRAME_BUFFER]
    return files.believed(folder, total(sizes) if sizes else None, BYTES)


def _list_processes(files: Files, root: Path) -> tuple[Path, ...] | None:
    """Return the folder of each process that has KFD open; None if they cannot be listed."""
    failures = files.failures()
    names = files.names(root)
    if files.failures() > failures or not root.is_dir():
        return None
    return tuple(root / name for name in names if name.isdecimal())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kfd:
    """KFD in one sweep."""

    nodes: Mapping[tuple[int, int], tuple[KfdNode, ...]] = field(default_factory=dict)  # by PCI location
    complete: bool = False  # whether all nodes could be read
    processes: tuple[Path, ...] | None = None  # folders of the processes; None if they cannot be listed
    names: Mapping[int, str] = field(default_factory=dict)  # names of platform devices by render node
    machine_pids: bool = False  # whether its pids are those of the exporter

    def of_card(self, card: Card) -> tuple[KfdNode, ...]:
        """Return the nodes of one GPU: one for each partition, none if KFD does not have the GPU.

        Several GPUs can be functions of one device; each then has its own render node and unique id.
        """
        nodes = self.nodes.get(card.location, ())
        own = {node.unique_id for node in nodes if node.render_minor == card.render_minor}
        return tuple(node for node in nodes if node.unique_id in own) if own else nodes


class KfdReader:
    """Reads KFD once for all GPUs of a sweep; the nodes only when the generation of its list changes."""

    def __init__(self, files: Files, sys_root: Path, machine_pids: Callable[[], bool]) -> None:
        self._files = files
        self._sys_root = sys_root
        self._machine_pids = machine_pids
        # False if some nodes could not be read: a container may only see those of its own devices.
        self._complete = True
        self._generation: int | None = None
        self._nodes: Mapping[tuple[int, int], tuple[KfdNode, ...]] = {}
        self._names: Mapping[int, str] = {}

    def read(self) -> Kfd:
        """Return the current state of KFD. Raises CardSlowError."""
        topology = self._sys_root / KFD / "topology"
        generation = self._files.number(topology / "generation_id")
        if generation is None or generation != self._generation:
            failures = self._files.failures()
            self._nodes = self._read_nodes(topology / "nodes")
            # An incomplete list is read again next time.
            self._complete = self._files.failures() == failures
            self._generation = generation if self._complete else None
            self._names = {}
        # The first partition of a GPU is the GPU's own device.
        further = [node for of_gpu in self._nodes.values() for node in of_gpu if node.partition]
        if any(node.render_minor not in self._names for node in further):
            self._names = self._read_names()
        return Kfd(
            nodes=self._nodes,
            complete=self._complete,
            processes=_list_processes(self._files, self._sys_root / KFD / "proc"),
            names=self._names,
            machine_pids=self._machine_pids(),
        )

    def _read_nodes(self, folder: Path) -> Mapping[tuple[int, int], tuple[KfdNode, ...]]:
        """Return the nodes at each PCI location, in the order of partitions."""
        by_location: defaultdict[tuple[int, int], list[KfdNode]] = defaultdict(list)
        for name in self._files.names(folder):
            node = _node(self._files, folder / name)
            if node is not None:
                by_location[node.location].append(node)
        return {
            location: tuple(sorted(nodes, key=lambda node: node.partition))
            for location, nodes in by_location.items()
        }

    def _read_names(self) -> Mapping[int, str]:
        """Return the names of the platform devices with a render node, which only partitions have."""
        folder = self._sys_root / PLATFORM
        names = {render_minor(self._files, folder / name): name for name in self._files.names(folder)}
        return {minor: name for minor, name in names.items() if minor is not None}
