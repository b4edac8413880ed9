"""Rows of a GPU's links: PCIe, NVLink, and topology."""

from collections.abc import Iterator

from exporter.metrics.family import READING, AnyFamily, keyed, word
from exporter.model import Nvlink, Topology

_MEGABYTE = 1_000_000

_PCIE = READING.grouped("pcie")
_PCIE_LINK = _PCIE.standard.of(lambda gpu: gpu.pcie_link)
_NVLINK = READING.of(lambda gpu: gpu.nvlink, "nvlink")
_TOPOLOGY = READING.standard.of(lambda gpu: gpu.topology, "topology")


def _speed(nvlink: Nvlink) -> int | None:
    speed = nvlink.megabytes_per_second
    return None if speed is None else speed * _MEGABYTE


def _numa(topology: Topology) -> tuple[str, ...] | None:
    node = "" if topology.numa_node is None else str(topology.numa_node)
    return (node, topology.cpus) if node or topology.cpus else None


def _peers(topology: Topology) -> Iterator[tuple[str, ...]]:
    """Yield each peer with its link as in ``nvidia-smi topo -m``: the NVLinks, else the PCIe path."""
    for peer, link in topology.peers.items():
        path = f"NV{link.nvlinks}" if link.nvlinks else link.pcie or ""
        if path:
            yield peer, path, link.pcie or ""


GPU_LINKS: tuple[AnyFamily, ...] = (
    _PCIE_LINK.gauge(
        "pcie_link_generation",
        "Current PCIe link generation of the GPU; lower while the GPU is idle.",
        lambda link: link.generation,
    ),
    _PCIE_LINK.gauge(
        "pcie_link_width", "Current PCIe link width of the GPU in lanes.", lambda link: link.width
    ),
    _PCIE_LINK.gauge(
        "pcie_link_generation_max",
        "Maximum PCIe link generation that both GPU and slot support.",
        lambda link: link.max_generation,
    ),
    _PCIE_LINK.gauge(
        "pcie_link_width_max",
        "Maximum PCIe link width in lanes that both GPU and slot support.",
        lambda link: link.max_width,
    ),
    _PCIE.counter(
        "pcie_replays_total",
        "PCIe replays: packets that had to be retransmitted.",
        lambda gpu: gpu.pcie_replays,
    ),
    READING.grouped("pcie_throughput").standard.gauge_by(
        "pcie_sampled_bytes_per_second",
        ("direction",),
        "PCIe throughput sampled over 20 ms, by direction; requires --pcie-throughput on.",
        lambda gpu: keyed({name.removeprefix("pcie_"): rate for name, rate in gpu.pcie_throughput.items()}),
    ),
    _NVLINK.standard.gauge("nvlinks", "NVLinks of the GPU, active or not.", lambda nvlink: nvlink.links),
    _NVLINK.gauge("nvlinks_active", "Active NVLinks of the GPU.", lambda nvlink: nvlink.active),
    _NVLINK.standard.gauge("nvlink_speed_bytes_per_second", "Speed of a single NVLink of the GPU.", _speed),
    READING.grouped("nvlink").info(
        "fabric_info",
        ("fabric",),
        "NVSwitch fabric registration state of the GPU: not_started, in_progress, completed or failed.",
        lambda gpu: word(gpu.fabric),
    ),
    _NVLINK.standard.counter_by(
        "nvlink_errors_total",
        ("error",),
        "NVLink errors summed over all links of the GPU, by type: crc_flit, crc_data, replay, recovery.",
        lambda nvlink: keyed(nvlink.errors),
    ),
    _TOPOLOGY.info(
        "numa_info",
        ("numa_node", "cpus"),
        "NUMA node of the GPU and the CPUs nearest to it.",
        _numa,
    ),
    _TOPOLOGY.infos(
        "peer_info",
        ("peer_uuid", "link", "pcie"),
        "Connection to another GPU: link is NV with the number of NVLinks, else the PCIe path; pcie is the "
        "PCIe path (PIX, PXB, PHB, NODE, SYS).",
        _peers,
    ),
    _TOPOLOGY.gauge_by(
        "peer_nvlinks",
        ("peer_uuid",),
        "Active NVLinks to another GPU, directly or through NVSwitches.",
        lambda topology: keyed({peer: link.nvlinks for peer, link in topology.peers.items()}),
    ),
)
"""PCIe, NVLink and topology."""
