"""The page of one GPU: its slices and holders, its events, its links, and all its readings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from exporter.formats.wording import UNKNOWN
from exporter.model import GpuRow, Topology
from exporter.web.pages.picture.gpu_rows import gpu_view
from exporter.web.pages.scene import Scene, answers, is_amd, part_name
from exporter.web.pages.views.event_list import event_views
from exporter.web.pages.views.notices import condition_notices
from exporter.web.pages.views.process_table import processes_of_gpu
from exporter.web.pages.views.readings_table import ReadingGroup, gpu_readings, part_readings

LINKS = {
    "X": "the GPU itself",
    "PSB": "both on one board",
    "PIX": "at most one PCIe bridge between them",
    "PXB": "several PCIe bridges, but no host bridge between them",
    "PHB": "a PCIe host bridge, usually the processor, between them",
    "NODE": "host bridges of one NUMA node between them",
    "SYS": "crosses the link between NUMA nodes",
}


@dataclass(frozen=True, slots=True)
class Link:
    """One cell of the matrix; ``title`` explains its word."""

    word: str
    title: str


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One GPU in the matrix."""

    index: int
    uuid: str
    links: tuple[Link, ...]  # to all GPUs in their order
    numa_node: str
    cpus: str


def topology_rows(scene: Scene) -> list[TopologyRow]:
    """Return the matrix; empty if no GPU reports a link."""
    gpus = tuple(gpu for gpu in scene.snapshot.gpus if not gpu.unread)
    topologies = [(gpu.reading and gpu.reading.topology) or Topology() for gpu in gpus]
    if not any(topology.peers or topology.numa_node is not None for topology in topologies):
        return []
    return [_row(gpu, topology, gpus) for gpu, topology in zip(gpus, topologies, strict=True)]


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
    return Link(word or UNKNOWN, LINKS.get(word or "", "not reported by the driver"))


_WATCHED = "None since this exporter started."
_UNWATCHED = "The driver does not report events of this GPU: check the node's kernel log for XIDs."
_UNWATCHED_AMD = "Events of AMD GPUs are not read: check the node's kernel log."
_UNWATCHED_FOREIGN = "This exporter does not read events of this device."


@dataclass(frozen=True, slots=True)
class PartView:
    """The readings of one MIG device, partition or vGPU."""

    name: str
    uuid: str
    groups: list[ReadingGroup]


def gpu_context(scene: Scene, gpu: GpuRow) -> dict[str, Any]:
    """Return the variables of the page's template."""
    uuid = gpu.identity.uuid
    groups = gpu_readings(gpu)
    return {
        "gpu": gpu_view(scene, gpu),
        "health": list(condition_notices(scene, gpu)),
        "processes": processes_of_gpu(scene, gpu),
        "events": event_views(scene, uuid),
        "no_events": _no_events(gpu),
        "topology": () if gpu.unread else topology_rows(scene),
        "groups": groups,
        "missing": [group for group in groups if group.why and answers(gpu)],
        "parts": [*_migs(scene, gpu), *_vgpus(scene, uuid)],
    }


def _no_events(gpu: GpuRow) -> str:
    if gpu.unread:
        return _UNWATCHED_FOREIGN
    unwatched = _UNWATCHED_AMD if is_amd(gpu) else _UNWATCHED
    return _WATCHED if gpu.watched else unwatched


def _migs(scene: Scene, gpu: GpuRow) -> Iterator[PartView]:
    for mig in scene.snapshot.migs:
        if mig.device.uuid == gpu.identity.uuid:
            number = str(mig.reading.gi) if is_amd(gpu) else f"{mig.reading.gi}/{mig.reading.ci}"
            name = f"{part_name(mig.device)} {number} {mig.reading.profile or ''}"
            yield PartView(name, mig.device.mig_uuid, part_readings(mig))


def _vgpus(scene: Scene, uuid: str) -> Iterator[PartView]:
    for row in scene.snapshot.vgpus:
        if row.uuid == uuid:
            name = row.reading.type_name or ""
            yield PartView(f"vGPU {name.removeprefix('NVIDIA ')}", row.reading.uuid, part_readings(row))
