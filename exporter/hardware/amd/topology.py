"""KFD's list of what computes: one node for a whole GPU, one for each partition of a GPU that is cut."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.hardware.amd.files import Files, properties, to_amount

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
    """Spell 90402 as compilers do: gfx942; stepping 10 is an a."""
    if not version:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(files: Files, folder: Path) -> int | None:
    banks = [properties(files.text(folder / name / "properties"), " ") for name in files.names(folder)]
    sizes = [to_amount(bank.get("size_in_bytes")) for bank in banks if bank.get("heap_type") in FRAME_BUFFER]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
