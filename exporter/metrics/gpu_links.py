"""The rows of a GPU's links: PCIe, NVLink, and where it sits among the others."""

from collections.abc import Iterator

from exporter.metrics.family import (
    AnyFamily,
    Family,
    Labelled,
    LabelledFamily,
    answering,
    each,
    reading,
    word,
)
from exporter.model import GpuRow, Nvlink, PcieLink, Topology

_MEGABYTE = 1_000_000


def _link(row: GpuRow) -> PcieLink:
    found = answering(row)
    return found.pcie_link if found is not None and found.pcie_link is not None else PcieLink()


def _nvlink(row: GpuRow) -> Nvlink:
    found = answering(row)
    return found.nvlink if found is not None and found.nvlink is not None else Nvlink()


def _topology(row: GpuRow) -> Topology:
    found = answering(row)
    return found.topology if found is not None and found.topology is not None else Topology()


def _numa(row: GpuRow) -> Iterator[Labelled]:
    sits = _topology(row)
    if sits.numa_node is not None or sits.cpus:
        yield ("" if sits.numa_node is None else str(sits.numa_node), sits.cpus), 1


def _peers(row: GpuRow) -> Iterator[Labelled]:
    """Write a link as ``nvidia-smi topo -m`` does: NVLinks where there are any, else the way over PCIe."""
    for peer, link in _topology(row).peers.items():
        way = f"NV{link.nvlinks}" if link.nvlinks else link.pcie or ""
        if way:
            yield (peer, way, link.pcie or ""), 1


def _peer_nvlinks(row: GpuRow) -> Iterator[Labelled]:
    for peer, link in _topology(row).peers.items():
        yield (peer,), link.nvlinks


def _nvlink_speed(row: GpuRow) -> int | None:
    speed = _nvlink(row).megabytes_per_second
    return None if speed is None else speed * _MEGABYTE


GPU_LINKS: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_gpu_pcie_link_generation",
        "gauge",
        "gpu",
        "Generation of PCIe that the link runs at now; it falls on an idle GPU.",
        lambda row: _link(row).generation,
        group="pcie",
    ),
    Family(
        "gpuslice_gpu_pcie_link_width",
        "gauge",
        "gpu",
        "Lanes of PCIe that the link runs over now.",
        lambda row: _link(row).width,
        group="pcie",
    ),
    Family(
        "gpuslice_gpu_pcie_link_generation_max",
        "gauge",
        "gpu",
        "Highest generation of PCIe that GPU and slot have in common.",
        lambda row: _link(row).max_generation,
        group="pcie",
    ),
    Family(
        "gpuslice_gpu_pcie_link_width_max",
        "gauge",
        "gpu",
        "Most lanes of PCIe that GPU and slot have in common.",
        lambda row: _link(row).max_width,
        group="pcie",
    ),
    Family(
        "gpuslice_gpu_pcie_replays_total",
        "counter",
        "gpu",
        "Packets that had to be sent again over PCIe.",
        reading(lambda gpu: gpu.pcie_replays),
        group="pcie",
    ),
    LabelledFamily(
        "gpuslice_gpu_pcie_sampled_bytes_per_second",
        "gauge",
        "gpu",
        "PCIe throughput sampled over 20 ms, by direction. Needs --pcie-throughput on.",
        ("direction",),
        each(lambda gpu: {name.removeprefix("pcie_"): rate for name, rate in gpu.pcie_throughput.items()}),
        group="pcie_throughput",
    ),
    Family(
        "gpuslice_gpu_nvlinks",
        "gauge",
        "gpu",
        "NVLinks that the GPU has.",
        lambda row: _nvlink(row).links,
        group="nvlink",
    ),
    Family(
        "gpuslice_gpu_nvlinks_active",
        "gauge",
        "gpu",
        "NVLinks of the GPU that are up.",
        lambda row: _nvlink(row).active,
        group="nvlink",
    ),
    Family(
        "gpuslice_gpu_nvlink_speed_bytes_per_second",
        "gauge",
        "gpu",
        "Speed of one NVLink.",
        _nvlink_speed,
        group="nvlink",
    ),
    LabelledFamily(
        "gpuslice_gpu_fabric_info",
        "info",
        "gpu",
        "How far the GPU has joined the NVSwitch fabric: not_started, in_progress, completed or failed.",
        ("fabric",),
        word(lambda gpu: gpu.fabric),
        group="nvlink",
    ),
    LabelledFamily(
        "gpuslice_gpu_nvlink_errors_total",
        "counter",
        "gpu",
        "Errors of all NVLinks of the GPU: crc_flit, crc_data, replay, recovery.",
        ("error",),
        lambda row: (((error,), count) for error, count in _nvlink(row).errors.items()),
        group="nvlink",
    ),
    LabelledFamily(
        "gpuslice_gpu_numa_info",
        "info",
        "gpu",
        "NUMA node of the GPU, and the processors near it.",
        ("numa_node", "cpus"),
        _numa,
        group="topology",
    ),
    LabelledFamily(
        "gpuslice_gpu_peer_info",
        "info",
        "gpu",
        "How the GPU reaches another: NV and the number of NVLinks, or the way over PCIe (PIX, PXB, PHB, "
        "NODE, SYS), which also stands under pcie.",
        ("peer_uuid", "link", "pcie"),
        _peers,
        group="topology",
        several=True,
    ),
    LabelledFamily(
        "gpuslice_gpu_peer_nvlinks",
        "gauge",
        "gpu",
        "Active NVLinks between the GPU and another, directly or through switches.",
        ("peer_uuid",),
        _peer_nvlinks,
        group="topology",
    ),
)
"""PCIe, NVLink and topology."""
