"""Every reading that a GPU or MIG device can have, at once: no board has them all."""

from dataclasses import replace
from typing import Any

from exporter.model import (
    Bar1,
    C2c,
    Cost,
    Ecc,
    EncoderSessions,
    EventCount,
    Fabric,
    License,
    Memory,
    Nvlink,
    PcieLink,
    PeerLink,
    Profile,
    Repairs,
    Topology,
    VgpuReading,
)

NOW = 1_700_000_000.0

PROFILE = Profile(
    source="gpm",
    active={
        "graphics_engine": 0.5,
        "sm": 0.4,
        "sm_occupancy": 0.3,
        "tensor": 0.2,
        "tensor_dfma": 0.01,
        "tensor_hmma": 0.15,
        "tensor_dmma": 0.02,
        "tensor_imma": 0.03,
        "dram": 0.25,
        "fp64": 0.04,
        "fp32": 0.05,
        "fp16": 0.06,
        "integer": 0.07,
    },
    engines={"encoder": 0.1, "decoder": 0.2, "jpeg": 0.3, "ofa": 0.4},
    rates={
        "pcie_transmit": 1e6,
        "pcie_receive": 2e6,
        "nvlink_transmit": 3e6,
        "nvlink_receive": 4e6,
    },
    cycles={
        "sm_elapsed": 1000,
        "sm_active": 500,
        "mma": 90,
        "dmma": 10,
        "hmma": 20,
        "imma": 30,
        "dfma": 40,
        "integer": 50,
        "fp64": 60,
        "fp32": 70,
        "fp16": 80,
    },
    bytes_total={"pcie_transmit": 111, "pcie_receive": 222},
)

READINGS: dict[str, Any] = {
    "bar1": Bar1(total=256 << 20, used=3 << 20),
    "engine_percent": {"encoder": 11, "decoder": 12, "jpeg": 13, "ofa": 14},
    "encoder_sessions": EncoderSessions(count=2, average_fps=60, average_latency_microseconds=1500),
    "profiling": PROFILE,
    "power_parts_milliwatts": {"average": 60_000, "instant": 62_000, "module": 90_000, "memory": 9_000},
    "power_limits_milliwatts": {
        "enforced": 400_000,
        "configured": 390_000,
        "default": 400_000,
        "min": 100_000,
        "max": 450_000,
    },
    "temperature_margin_celsius": 31,
    "temperature_limits_celsius": {"shutdown": -8, "slowdown": -2, "memory": 0, "gpu": 0},
    "temperature_thresholds_celsius": {"shutdown": 92, "slowdown": 89, "memory": 95, "gpu": 85},
    "clocks_max_megahertz": {"sm": 1980, "memory": 2619, "graphics": 1980, "video": 1545},
    "clocks_application_megahertz": {"sm": 1410, "memory": 1215},
    "clock_events": 0x4 | 0x20,
    "violations_nanoseconds": {
        "power": 1_500_000_000,
        "thermal": 2_000_000_000,
        "sync_boost": 1,
        "board_limit": 2,
        "low_utilization": 3,
        "reliability": 4,
        "application_clocks": 5,
        "base_clocks": 6,
        "software_thermal": 7,
        "hardware_thermal": 8,
        "power_brake": 9,
    },
    "pcie_link": PcieLink(generation=4, width=16, max_generation=5, max_width=16),
    "pcie_throughput": {"pcie_transmit": 1024, "pcie_receive": 2048},
    "traffic_bytes": {
        "pcie_transmit": 10,
        "pcie_receive": 20,
        "nvlink_transmit": 30,
        "nvlink_receive": 40,
    },
    "nvlink": Nvlink(
        links=12,
        active=11,
        megabytes_per_second=25_000,
        errors={"crc_flit": 1, "crc_data": 2, "replay": 3, "recovery": 4},
        packet_errors={"malformed": 1, "symbol": 2},
        recoveries={"successful": 3, "failed": 0},
        bit_error_ratios={"effective": 0.0, "symbol": 1.2e-07},
    ),
    "c2c": C2c(
        enabled=True,
        links=2,
        states={0: True, 1: True},
        speeds={0: 44_712, 1: 44_712},
        errors={"crc": 0, "replay": 1, "replay_back_to_back": 2},
    ),
    "fabric": Fabric(
        state="completed",
        cluster="9b0c7a86-2f0e-4c1a-9d6e-54f3b1a7c2d8",
        clique=7,
        problems={"degraded_bandwidth": True, "incorrect_configuration": True, "no_partition": False},
        misconfiguration="insufficient_nvlinks",
    ),
    "protected_memory": Memory(total=8 << 30, used=3 << 30, free=5 << 30),
    "mig_pending": True,
    "ecc": Ecc(
        enabled=True,
        pending=True,
        errors={
            ("corrected", "volatile"): 1,
            ("uncorrected", "volatile"): 2,
            ("corrected", "aggregate"): 3,
            ("uncorrected", "aggregate"): 4,
        },
        by_location={
            (severity, scope, location): place
            for severity in ("corrected", "uncorrected")
            for scope in ("volatile", "aggregate")
            for place, location in enumerate(
                (
                    "l1_cache",
                    "l2_cache",
                    "dram",
                    "register_file",
                    "texture_memory",
                    "sram",
                    "cbu",
                    "shared_memory",
                )
            )
        },
    ),
    "repairs": Repairs(
        remapped_rows={"corrected": 1, "uncorrected": 2},
        row_remap_pending=True,
        row_remap_failure=False,
        row_banks={"max": 600, "high": 30, "partial": 8, "low": 2, "none": 0},
        retired_pages={"single_bit": 5, "double_bit": 6},
        retired_pages_pending=True,
        channel_repair_pending=False,
        tpc_repair_pending=True,
    ),
    "recovery_action": "reset",
    "performance_state": 2,
    "persistence": True,
    "accounting": False,
    "display_active": False,
    "virtualization": "vgpu_host",
    "license": License(
        product="NVIDIA RTX Virtual Workstation", licensed=True, state="licensed", expires=NOW
    ),
    "vgpus": (
        VgpuReading(
            uuid="vgpu-1",
            mdev_uuid="mdev-1",
            vm_id="vm-1",
            type_name="NVIDIA A40-8Q",
            gi=1,
            memory_total=8 << 30,
            memory_used=2 << 30,
            sm_percent=20,
            memory_percent=10,
            encoder_percent=3,
            decoder_percent=4,
            licensed=True,
        ),
    ),
    "topology": Topology(
        numa_node=1,
        cpus="0-31,64-95",
        peers={"GPU-peer": PeerLink(pcie="NODE", nvlinks=12), "GPU-far": PeerLink(pcie="SYS", nvlinks=0)},
    ),
}

# Where the driver counts no traffic, a meter's rates are all there is.
WITHOUT_COUNTERS: dict[str, Any] = {"traffic_bytes": {}, "profiling": replace(PROFILE, bytes_total={})}

MIG_READINGS: dict[str, Any] = {
    "profiling": PROFILE,
    "bar1": Bar1(total=128 << 20, used=1 << 20),
    "engines": {"copy": 3, "encoder": 0, "decoder": 2, "jpeg": 1, "ofa": 1},
    "utilization_percent": 44,
}

COSTS = {
    "power": Cost(calls=10, seconds=0.002, driver_microseconds=120),
    "memory": Cost(calls=5, seconds=0.001),
}


def events(uuid: str, mig_uuid: str = "") -> tuple[EventCount, ...]:
    """Return the events of a GPU: XID 31 twice, XID 48 once, and an ECC error."""
    return (
        EventCount(uuid=uuid, mig_uuid=mig_uuid, kind="xid", xid=31, count=2, last=NOW - 60),
        EventCount(uuid=uuid, mig_uuid="", kind="xid", xid=48, count=1, last=NOW - 30),
        EventCount(uuid=uuid, mig_uuid="", kind="double_bit_ecc", xid=None, count=1, last=NOW - 30),
    )
