"""Rows of a GPU's links: PCIe, NVLink, and topology."""

from collections.abc import Iterator

from exporter.metrics.family import READING, AnyFamily, keyed
from exporter.model import C2c, Fabric, Nvlink, Topology, total

_MEGABYTE = 1_000_000

_PCIE = READING.grouped("pcie")
_PCIE_LINK = _PCIE.standard.of(lambda gpu: gpu.pcie_link)
_NVLINK = READING.of(lambda gpu: gpu.nvlink, "nvlink")
_FABRIC = READING.of(lambda gpu: gpu.fabric, "nvlink")
_C2C = READING.full.of(lambda gpu: gpu.c2c, "c2c")
_TOPOLOGY = READING.standard.of(lambda gpu: gpu.topology, "topology")


def _speed(nvlink: Nvlink) -> int | None:
    speed = nvlink.megabytes_per_second
    return None if speed is None else speed * _MEGABYTE


def _fabric(fabric: Fabric) -> tuple[str, ...] | None:
    if not fabric.state:
        return None
    clique = "" if fabric.clique is None else str(fabric.clique)
    return fabric.state, fabric.cluster, clique, fabric.misconfiguration


def _c2c_speed(c2c: C2c) -> int | None:
    """Return the sum over the active links; None if the state or the speed of one is unknown."""
    if c2c.active is None:
        return None
    speeds = [c2c.speeds.get(link) for link, active in c2c.states.items() if active]
    speed = total(speeds)
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


# PCIe, NVLink and topology.
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
    ),
    READING.grouped("pcie_throughput").standard.gauge_by(
        "pcie_sampled_bytes_per_second{direction}",
        "PCIe throughput sampled over 20 ms, by direction; requires --pcie-throughput on.",
        lambda gpu: keyed({name.removeprefix("pcie_"): rate for name, rate in gpu.pcie_throughput.items()}),
    ),
    _NVLINK.standard.gauge("nvlinks", "NVLinks of the GPU, active or not.", lambda nvlink: nvlink.links),
    _NVLINK.gauge("nvlinks_active", "Active NVLinks of the GPU.", lambda nvlink: nvlink.active),
    _NVLINK.standard.gauge("nvlink_speed_bytes_per_second", "Speed of a single NVLink of the GPU.", _speed),
    _FABRIC.info(
        "fabric_info{fabric, cluster_uuid, clique, misconfiguration}",
        "NVLink fabric registration state of the GPU: not_started, in_progress, completed or failed; with "
        "cluster_uuid (of the NVLink domain) and clique if the fabric connects several nodes, and with "
        "misconfiguration if its configuration is incorrect.",
        _fabric,
    ),
    _FABRIC.full.states(
        "fabric_problem{problem}",
        "1 if the driver reports this problem of the GPU's NVLink fabric, else 0: degraded_bandwidth, "
        "route_recovery, route_unhealthy, access_timeout_recovery, incorrect_configuration, no_partition "
        "or manager_disconnected; absent if the driver does not report it.",
        lambda fabric: keyed({name: int(holds) for name, holds in fabric.problems.items()}),
    ),
    _NVLINK.standard.counter_by(
        "nvlink_errors_total{error}",
        "NVLink errors summed over all links of the GPU, by type: crc_flit, crc_data, replay, recovery.",
        lambda nvlink: keyed(nvlink.errors),
    ),
    _NVLINK.full.reading("nvlink.packet_errors").counter_by(
        "nvlink_packet_errors_total{error}",
        "NVLink packets and symbols with errors, over all links of the GPU, by type: malformed, "
        "buffer_overrun, received, remote, general, link_integrity, discarded, effective or symbol.",
        lambda nvlink: keyed(nvlink.packet_errors),
    ),
    _NVLINK.full.reading("nvlink.recoveries").counter_by(
        "nvlink_recoveries_total{result}",
        "Recoveries of NVLinks, over all links of the GPU, by result: successful, or failed (the link is "
        "then down).",
        lambda nvlink: keyed(nvlink.recoveries),
    ),
    _NVLINK.full.reading("nvlink.bit_error_ratios").gauge_by(
        "nvlink_bit_error_ratio{errors}",
        "NVLink bit error ratio (BER) over all links of the GPU, by errors: effective (after error "
        "correction) or symbol (before it). 0 is the driver's code for none.",
        lambda nvlink: keyed(nvlink.bit_error_ratios),
    ),
    _C2C.reading("c2c.enabled").flag(
        "c2c_enabled",
        "1 if C2C mode (NVLink-C2C to the processor of the module) is enabled, else 0.",
        lambda c2c: c2c.enabled,
    ),
    _C2C.gauge("c2c_links", "C2C links from the GPU to the processor, active or not.", lambda c2c: c2c.links),
    _C2C.gauge("c2c_links_active", "Active C2C links of the GPU.", lambda c2c: c2c.active),
    _C2C.reading("c2c.speeds").gauge(
        "c2c_bandwidth_bytes_per_second",
        "Maximum bandwidth of the GPU's active C2C links, summed.",
        _c2c_speed,
    ),
    _C2C.reading("c2c.errors").counter_by(
        "c2c_errors_total{error}",
        "C2C link errors of the GPU, by type: crc, replay, or replay_back_to_back.",
        lambda c2c: keyed(c2c.errors),
    ),
    _TOPOLOGY.info("numa_info{numa_node, cpus}", "NUMA node of the GPU and the CPUs nearest to it.", _numa),
    _TOPOLOGY.infos(
        "peer_info{peer_uuid, link, pcie}",
        "Connection to another GPU: link is NV with the number of NVLinks, else the PCIe path; pcie is the "
        "PCIe path (PIX, PXB, PHB, NODE, SYS).",
        _peers,
    ),
    _TOPOLOGY.gauge_by(
        "peer_nvlinks{peer_uuid}",
        "Active NVLinks to another GPU, directly or through NVSwitches.",
        lambda topology: keyed({peer: link.nvlinks for peer, link in topology.peers.items()}),
    ),
)
