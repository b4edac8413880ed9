"""Rows of the dashboard Hardware about identity and settings, topology, and vGPUs."""

from dashboards.board import Panel
from dashboards.hardware_errors import INDEX
from dashboards.hardware_load import STANDARD, gauge
from dashboards.panels import ON_OFF, Query, timeline
from dashboards.selectors import GPU, GPUS, without_target
from dashboards.tables import MODEL, NODE, Column, listing
from dashboards.tables import number as value

_UUID = Column(name="uuid", title="UUID")


def _gpus(*names: str) -> tuple[str, ...]:
    return tuple(without_target(f"gpuslice_gpu_{name}{{{GPUS}}}") for name in names)


def identity() -> tuple[Panel, ...]:
    """Return the row of identities and settings."""
    return (_identity(), _settings(), _limits())


def _identity() -> Panel:
    return listing(
        "Identity",
        "Identity of each device. Unknown: not reported. For devices of other vendors only data of their "
        f"device plugin. Board and firmware: {STANDARD}",
        [
            NODE,
            INDEX,
            MODEL,
            Column(name="serial", title="Serial number", width=135),
            Column(name="pci_bus_id", title="PCI bus", width=155),
            Column(name="vbios", title="VBIOS", width=130),
            _UUID,
        ],
        *_gpus("info", "board_info"),
        sort=("Node", "GPU"),
    )


def _settings() -> Panel:
    return listing(
        "Settings",
        f"Modes of each GPU, now and after the next reset or reboot. {STANDARD}",
        [
            NODE,
            INDEX,
            value("A", "P-state"),
            Column(name="compute_mode", title="Compute mode"),
            value("C", "Persistence", words=ON_OFF),
            value("D", "Accounting", words=ON_OFF),
            value("E", "ECC", words=ON_OFF),
            value("F", "ECC after reboot", words=ON_OFF),
            value("G", "MIG after reset", words=ON_OFF),
            value("H", "Calls not supported"),
        ],
        *_gpus(
            "performance_state",
            "compute_mode_info",
            "persistence_mode",
            "accounting_mode",
            "ecc_enabled",
            "ecc_enabled_pending",
            "mig_mode_pending",
        ),
        without_target(f"gpuslice_nvml_unsupported{{{GPUS}}}"),
        sort=("Node", "GPU"),
    )


def _limits() -> Panel:
    def of(name: str, label: str, kind: str) -> str:
        return f'max without (job, instance, {label}) (gpuslice_gpu_{name}{{{GPUS}, {label}="{kind}"}})'

    return listing(
        "Limits",
        f"Thresholds of the temperature, and power limits. Unknown: not reported. {STANDARD}",
        [
            NODE,
            INDEX,
            value("A", "Slows down at", "celsius"),
            value("B", "Shuts down at", "celsius"),
            value("C", "Power limit", "watt"),
            value("D", "Default limit", "watt"),
            value("E", "Lowest limit", "watt"),
            value("F", "Highest limit", "watt"),
            _UUID,
        ],
        of("temperature_threshold_celsius", "threshold", "slowdown"),
        of("temperature_threshold_celsius", "threshold", "shutdown"),
        *_gpus("power_limit_watts"),
        *(of("power_limit_setting_watts", "limit", kind) for kind in ("default", "min", "max")),
        sort=("Node", "GPU"),
    )


def topology() -> tuple[Panel, ...]:
    """Return the row of links and topology."""
    return (
        listing(
            "Links of each GPU",
            "PCIe link and its maximum; NVLinks; state in the NVSwitch fabric; and the closest CPUs of the "
            f"host. Unknown: none, or not reported. {STANDARD}",
            [
                NODE,
                INDEX,
                value("A", "PCIe generation"),
                value("B", "Maximum"),
                value("C", "PCIe lanes"),
                value("D", "Lanes, maximum"),
                value("E", "NVLinks", empty="-"),
                value("F", "NVLinks active", empty="-"),
                Column(name="fabric", title="Fabric", width=100, empty="-"),
                Column(name="numa_node", title="NUMA node", width=90),
                Column(name="cpus", title="Closest CPUs"),
            ],
            *_gpus(
                "pcie_link_generation",
                "pcie_link_generation_max",
                "pcie_link_width",
                "pcie_link_width_max",
                "nvlinks",
                "nvlinks_active",
                "fabric_info",
                "numa_info",
            ),
            sort=("Node", "GPU"),
        ),
        listing(
            "Connections between GPUs",
            "NV and the number of NVLinks, or the PCIe path, from near to far: PIX, PXB, PHB, NODE, SYS. "
            f"{STANDARD}",
            [
                NODE,
                INDEX,
                Column(name="link", title="Connection", width=110),
                Column(name="pcie", title="Over PCIe", width=110),
                Column(name="peer_uuid", title="Other GPU"),
            ],
            *_gpus("peer_info"),
            sort=("Node", "GPU"),
            height=10,
        ),
    )


def vgpus() -> tuple[Panel, ...]:
    """Return the row of vGPUs of a host."""

    def of_vgpu(name: str) -> Query:
        return Query(f"gpuslice_vgpu_{name}{{{GPUS}}}", f"{GPU} · {{{{vgpu_uuid}}}}")

    return (
        timeline(
            "Utilization by vGPU",
            "percentunit",
            "Share of the physical GPU's time in which it computed for a vGPU. Unknown inside MIG.",
            of_vgpu("utilization_ratio"),
            stacked=True,
            top=1,
            span=8,
        ),
        timeline(
            "Memory by vGPU",
            "bytes",
            "Memory that the guest of each vGPU uses.",
            of_vgpu("memory_used_bytes"),
            stacked=True,
            span=8,
        ),
        timeline(
            "vGPUs",
            "none",
            f"vGPUs that run on each GPU of a host. {STANDARD}",
            gauge("vgpus"),
            span=8,
        ),
    )
