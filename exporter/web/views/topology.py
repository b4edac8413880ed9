"""How the GPUs of the node reach each other, as the matrix that ``nvidia-smi topo -m`` shows."""

from dataclasses import dataclass

from exporter.formats_words import UNKNOWN
from exporter.model import GpuRow, Topology
from exporter.web.views.scene import Scene

LINKS = {
    "X": "the GPU itself",
    "PSB": "both are on one board",
    "PIX": "at most one PCIe bridge between them",
    "PXB": "several PCIe bridges, but no host bridge between them",
    "PHB": "a PCIe host bridge, usually the processor, between them",
    "NODE": "host bridges of one NUMA node between them",
    "SYS": "the link between NUMA nodes is on the way",
}


@dataclass(frozen=True, slots=True)
class Link:
    """One cell of the matrix; ``title`` says what its word means."""

    word: str
    title: str


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One GPU with its links to all GPUs, in their order, and where it sits."""

    index: int
    uuid: str
    links: tuple[Link, ...]
    numa_node: str
    cpus: str


def topology_rows(scene: Scene) -> list[TopologyRow]:
    """Make the matrix; empty where no GPU tells of another."""
    gpus = tuple(gpu for gpu in scene.snapshot.gpus if not gpu.foreign)
    told = [_topology(gpu) for gpu in gpus]
    if not any(topology.peers or topology.numa_node is not None for topology in told):
        return []
    return [_row(gpu, topology, gpus) for gpu, topology in zip(gpus, told, strict=True)]


def _topology(gpu: GpuRow) -> Topology:
    reading = gpu.reading
    return reading.topology if reading is not None and reading.topology is not None else Topology()


def _row(gpu: GpuRow, topology: Topology, gpus: tuple[GpuRow, ...]) -> TopologyRow:
    return TopologyRow(
        index=gpu.identity.index,
        uuid=gpu.identity.uuid,
        links=tuple(_link(gpu, topology, other) for other in gpus),
        numa_node=UNKNOWN if topology.numa_node is None else str(topology.numa_node),
        cpus=topology.cpus or UNKNOWN,
    )


def _link(gpu: GpuRow, topology: Topology, other: GpuRow) -> Link:
    if other is gpu:
        return Link("X", LINKS["X"])
    link = topology.peers.get(other.identity.uuid)
    if link is not None and link.nvlinks:
        return Link(f"NV{link.nvlinks}", f"{link.nvlinks} NVLinks, directly or through switches")
    word = link.pcie if link is not None else None
    return Link(word or UNKNOWN, LINKS.get(word or "", "the driver does not tell"))
