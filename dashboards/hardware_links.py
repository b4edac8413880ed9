"""Connections of GPUs: PCIe, NVLink and topology."""

from dashboards.board import Panel
from dashboards.hardware_now import INDEX, NODE, UUID
from dashboards.hardware_series import growth, of_gpu, traffic
from dashboards.panels import NEUTRAL, WARNING, Query, bars, timeline
from dashboards.promql import DEVICE, GPU, ON_GPUS, ON_NODES, TARGET, by_gpu, gpu_names
from dashboards.shares import of_gpus
from dashboards.tables import Column, Nothing, listing


def links() -> tuple[Panel, ...]:
    """Return the row of traffic and degraded links."""
    return (*_pcie(), *_nvlink())


def _pcie() -> tuple[Panel, ...]:
    now, most = (
        f"gpuslice_gpu_pcie_link_width{part}{{{ON_GPUS}}} * "
        f"2 ^ gpuslice_gpu_pcie_link_generation{part}{{{ON_GPUS}}}"
        for part in ("", "_max")
    )
    return (
        timeline(
            "PCIe traffic",
            "Bps",
            "Bytes that each GPU sent and received, from a counter of the driver, or its profiling metric "
            "(from Hopper on). Over 20 ms: only with --pcie-throughput on.",
            traffic("gpu_pcie_transmit", "sent"),
            traffic("gpu_pcie_receive", "received"),
            of_gpu("gpu_pcie_sampled_bytes_per_second", "direction", what="over 20 ms"),
        ),
        timeline(
            "PCIe link by maximum",
            "percentunit",
            "Link width and generation, of the maximum that GPU and slot support. An idle GPU lowers its "
            "generation; missing lanes under load point to a bad contact.",
            Query(by_gpu(f"({now}) / ({most})"), GPU),
            top=1,
            span=6,
        ),
        timeline(
            "PCIe replays",
            "none",
            "Packets that were sent again, per second.",
            Query(by_gpu(growth("gpu_pcie_replays_total")), GPU),
            span=6,
        ),
    )


def _nvlink() -> tuple[Panel, ...]:
    broken = f"{growth('gpu_nvlink_errors_total')}"
    return (
        timeline(
            "NVLink traffic",
            "Bps",
            "Bytes that each GPU sent and received over all its NVLinks. Only GPUs with NVLink.",
            traffic("gpu_nvlink_transmit", "sent"),
            traffic("gpu_nvlink_receive", "received"),
        ),
        timeline(
            "Active NVLinks",
            "none",
            "Active links, and all links of the GPU (dashed). Only GPUs with NVLink.",
            of_gpu("gpu_nvlinks_active"),
            of_gpu("gpu_nvlinks", what="all", limit=True),
            span=6,
        ),
        timeline(
            "NVLink errors",
            "none",
            "Errors of all links per second, by kind. Only GPUs with NVLink and a driver that counts them.",
            Query(by_gpu(broken, "error"), f"{GPU} · {{{{error}}}}"),
            span=6,
        ),
    )


def topology() -> tuple[Panel, ...]:
    """Return the row of link states and topology."""
    return (_links(), _peers(), _peer_links())


def _links() -> Panel:
    whole = f"max by (cluster, node, gpu, uuid) ({gpu_names(ON_GPUS)})"
    links, up = (f"gpuslice_gpu_{name}{{{ON_GPUS}}}" for name in ("nvlinks", "nvlinks_active"))
    return listing(
        "Links",
        "PCIe link and its maximum; NVLinks; state in the NVSwitch fabric; and the closest CPUs of the "
        "host. Unknown: none, or not reported, as in vGPU guests.",
        [
            NODE,
            INDEX,
            Column(name="Value #B", title="PCIe generation", unit="none"),
            Column(name="Value #C", title="of", unit="none"),
            Column(name="Value #D", title="Lanes", unit="none"),
            Column(name="Value #E", title="of lanes", unit="none"),
            Column(name="Value #F", title="Replays", unit="none"),
            Column(name="Value #G", title="NVLinks", unit="none", empty="-"),
            Column(
                name="Value #H", title="NVLinks down", unit="none", empty="-", steps={0: NEUTRAL, 1: WARNING}
            ),
            Column(name="Value #I", title="Link speed", unit="Bps", empty="-"),
            Column(name="fabric", title="Fabric", empty="-"),
            Column(name="numa_node", title="NUMA node"),
            Column(name="cpus", title="Closest CPUs"),
            UUID,
        ],
        Query(whole),
        Query(of_gpus("gpu_pcie_link_generation")),
        Query(of_gpus("gpu_pcie_link_generation_max")),
        Query(of_gpus("gpu_pcie_link_width")),
        Query(of_gpus("gpu_pcie_link_width_max")),
        Query(of_gpus("gpu_pcie_replays_total")),
        Query(by_gpu(links)),
        Query(by_gpu(f"{links} - {up}")),
        Query(of_gpus("gpu_nvlink_speed_bytes_per_second")),
        Query(of_gpus("gpu_fabric_info", "fabric")),
        Query(of_gpus("gpu_numa_info", "numa_node", "cpus")),
        height=8,
    )


def _peers() -> Panel:
    return listing(
        "GPU topology",
        "NV and the number of NVLinks, or the PCIe path, from near to far: PIX, PXB, PHB, NODE, SYS.",
        [
            NODE,
            INDEX,
            Column(name="peer", title="Other GPU"),
            Column(name="link", title="Connection"),
            Column(name="pcie", title="Over PCIe"),
        ],
        Query(by_gpu(_peer(f"gpuslice_gpu_peer_info{{{ON_GPUS}}}"), "peer", "link", "pcie")),
        span=12,
        nothing=Nothing("link", f"count by ({TARGET}) (gpuslice_gpu_up{{{ON_NODES}}}) == 1"),
    )


def _peer_links() -> Panel:
    return bars(
        "NVLinks between GPUs",
        "none",
        "Active NVLinks between two GPUs, directly or through switches. Only GPUs with NVLink.",
        Query(
            by_gpu(_peer(f"gpuslice_gpu_peer_nvlinks{{{ON_GPUS}}} > 0"), "peer"),
            f"{GPU} and {{{{peer}}}}",
        ),
        height=10,
    )


def _peer(rows: str) -> str:
    """Return rows with the index of the other GPU as ``peer``."""
    others = f"max by ({DEVICE}, gpu) (gpuslice_gpu_info{{{ON_NODES}}})"
    named = f'label_replace({others}, "peer", "$1", "gpu", "(.*)")'
    named = f'label_replace({named}, "peer_uuid", "$1", "uuid", "(.*)")'
    names = f"max by ({TARGET}, peer_uuid, peer) ({named})"
    return f"({rows}) * on ({TARGET}, peer_uuid) group_left (peer) {names}"
