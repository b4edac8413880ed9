"""A node with every kind of device that DCGM's names are printed of, each number of it unlike the others."""

from typing import Any

from exporter.model import (
    Bar1,
    ContainerRef,
    ContainerRow,
    DeviceEvent,
    DeviceKey,
    DriverInfo,
    Ecc,
    EventCount,
    EventRow,
    GpuIdentity,
    GpuReading,
    GpuRow,
    License,
    Memory,
    MigReading,
    MigRow,
    NodeRow,
    Nvlink,
    PcieLink,
    Profile,
    Repairs,
    Snapshot,
)

NOW = 1_700_000_000.0
MIB = 1 << 20

PROFILE = Profile(
    source="gpm",
    active={
        "graphics_engine": 0.91,
        "sm": 0.81,
        "sm_occupancy": 0.71,
        "tensor": 0.61,
        "tensor_dfma": 0.11,
        "tensor_hmma": 0.12,
        "tensor_dmma": 0.13,
        "tensor_imma": 0.14,
        "dram": 0.51,
        "fp64": 0.41,
        "fp32": 0.31,
        "fp16": 0.21,
        "integer": 0.15,
    },
    rates={
        "pcie_transmit": 1_048_576.0,
        "pcie_receive": 2_097_152.0,
        "nvlink_transmit": 3_145_728.0,
        "nvlink_receive": 4_194_304.0,
    },
    cycles={
        "sm_elapsed": 9001,
        "sm_active": 9002,
        "mma": 9003,
        "dmma": 9004,
        "hmma": 9005,
        "imma": 9006,
        "dfma": 9007,
        "integer": 9008,
        "fp64": 9009,
        "fp32": 9010,
        "fp16": 9011,
    },
    bytes_total={"pcie_transmit": 9012, "pcie_receive": 9013},
)

LOCATIONS = (
    "l1_cache",
    "l2_cache",
    "dram",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
    "sram",
)

EVERYTHING: dict[str, Any] = {
    "memory": Memory(total=81_559 * MIB, used=20_000 * MIB, free=60_559 * MIB, reserved=1_000 * MIB),
    "bar1": Bar1(total=131_072 * MIB, used=3 * MIB),
    "utilization_percent": 97,
    "memory_copy_percent": 46,
    "engine_percent": {"encoder": 21, "decoder": 22, "jpeg": 23, "ofa": 24},
    "profiling": PROFILE,
    "power_milliwatts": 512_345,
    "power_parts_milliwatts": {"average": 500_000, "instant": 523_456, "module": 900_000, "memory": 90_000},
    "power_limits_milliwatts": {
        "enforced": 650_000,
        "configured": 660_000,
        "default": 700_000,
        "min": 200_000,
        "max": 710_000,
    },
    "energy_millijoules": 123_456_789_012,
    "temperature_celsius": 61,
    "memory_temperature_celsius": 72,
    "temperature_margin_celsius": 26,
    "temperature_limits_celsius": {"shutdown": -8, "slowdown": -2, "memory": 1, "gpu": 0},
    "temperature_thresholds_celsius": {"shutdown": 92, "slowdown": 89, "memory": 95, "gpu": 87},
    "clocks_megahertz": {"sm": 1755, "memory": 2619, "graphics": 1754, "video": 1545},
    "clocks_max_megahertz": {"sm": 1980, "memory": 2620, "graphics": 1979, "video": 1546},
    "clocks_application_megahertz": {"sm": 1830, "memory": 2618, "graphics": 1831},
    "clock_events": 0x24,
    "violations_nanoseconds": {
        "power": 1_000_001_500,
        "thermal": 2_000_002_500,
        "sync_boost": 3_000_003_500,
        "board_limit": 4_000_004_500,
        "low_utilization": 5_000_005_500,
        "reliability": 6_000_006_500,
        "application_clocks": 7_000_007_500,
        "base_clocks": 8_000_008_500,
        "software_thermal": 9_000_009_500,
        "hardware_thermal": 10_000_010_500,
        "power_brake": 11_000_011_500,
    },
    "fan_percent": 33,
    "pcie_link": PcieLink(generation=4, width=8, max_generation=5, max_width=16),
    "pcie_replays": 7,
    "pcie_throughput": {"pcie_transmit": 2_048_000, "pcie_receive": 4_096_000},
    "nvlink": Nvlink(
        links=18,
        active=18,
        errors={"crc_flit": 101, "crc_data": 102, "replay": 103, "recovery": 104},
    ),
    "ecc": Ecc(
        enabled=True,
        pending=False,
        errors={
            ("corrected", "volatile"): 1,
            ("uncorrected", "volatile"): 2,
            ("corrected", "aggregate"): 3,
            ("uncorrected", "aggregate"): 4,
        },
        by_location={
            (severity, scope, location): 10 * place + number
            for place, location in enumerate(LOCATIONS, start=1)
            for number, (severity, scope) in enumerate(
                (
                    ("corrected", "volatile"),
                    ("uncorrected", "volatile"),
                    ("corrected", "aggregate"),
                    ("uncorrected", "aggregate"),
                ),
                start=1,
            )
        },
    ),
    "repairs": Repairs(
        remapped_rows={"corrected": 5, "uncorrected": 6},
        row_remap_pending=True,
        row_remap_failure=False,
        row_banks={"max": 639, "high": 41, "partial": 42, "low": 43, "none": 44},
        retired_pages={"single_bit": 8, "double_bit": 9},
        retired_pages_pending=True,
    ),
    "recovery_action": "drain_p2p",
    "performance_state": 2,
    "persistence": True,
    "mig_enabled": False,
    "compute_mode": "exclusive_process",
    "virtualization": "passthrough",
    "license": License(product="NVIDIA RTX Virtual Workstation", licensed=True),
}


def _gpu(
    name: str, index: int, model: str, reading: dict[str, Any], *, vendor: str = "nvidia", **row: Any
) -> GpuRow:
    identity = GpuIdentity(
        uuid=f"GPU-{name}",
        index=index,
        minor=index,
        model=model,
        pci_bus_id=f"00000000:{index:02X}:00.0",
        vendor=vendor,
    )
    return GpuRow(identity=identity, reading=GpuReading(identity=identity, **reading), holders=1, **row)


def _mig(name: str, gi: int, profile: str, reading: dict[str, Any], *, ci: int = 0) -> MigRow:
    return MigRow(
        device=DeviceKey("GPU-cut", f"MIG-{name}"),
        reading=MigReading(uuid=f"MIG-{name}", gi=gi, ci=ci, profile=profile, **reading),
        holders=1,
    )


def _holder(pod: str, device: DeviceKey) -> ContainerRow:
    return ContainerRow(holder=ContainerRef("ml", pod, "main"), device=device, slices=1)


def _xid(device: str, xid: int, count: int, ago: float, mig: str = "") -> EventCount:
    return EventCount(
        uuid=f"GPU-{device}", mig_uuid=mig and f"MIG-{mig}", kind="xid", xid=xid, count=count, last=NOW - ago
    )


def _event(device: str, xid: int, ago: float, mig: str = "") -> EventRow:
    event = DeviceEvent(
        at=NOW - ago, uuid=f"GPU-{device}", kind="xid", mig_uuid=mig and f"MIG-{mig}", xid=xid
    )
    return EventRow(event=event)


WHOLE = _gpu(
    "whole",
    0,
    "NVIDIA H100 80GB HBM3",
    EVERYTHING,
    watched=True,
    clock_events={"power_cap": 12, "software_thermal": 13, "reliability": 14},
    nvlink_bytes_per_second=25_600_000.0,
)
CUT = _gpu(
    "cut",
    1,
    "NVIDIA H100 80GB HBM3",
    {
        "memory": Memory(total=81_559 * MIB, used=30_000 * MIB, free=51_559 * MIB, reserved=0),
        "bar1": Bar1(total=131_072 * MIB, used=4 * MIB),
        "power_milliwatts": 345_678,
        "temperature_celsius": 44,
        "clocks_megahertz": {"sm": 1700},
        "mig_enabled": True,
        "profiling": PROFILE,
    },
    watched=True,
    events=(_xid("cut", 43, 3, 400, "a"), _xid("cut", 31, 1, 10, "a"), _xid("cut", 94, 1, 20)),
)
SHARED = _gpu(
    "shared",
    2,
    "Tesla T4",
    {
        "memory": Memory(total=15_360 * MIB, used=5_000 * MIB, free=10_360 * MIB),
        "utilization_percent": 0,
        "clock_events": 0,
        "engine_percent": {"encoder": 0},
    },
)
LOST = _gpu(
    "lost",
    3,
    "NVIDIA H100 80GB HBM3",
    EVERYTHING | {"up": False},
    watched=True,
    events=(_xid("lost", 79, 1, 30), _xid("lost", 74, 2, 7200)),
    clock_events={"idle": 2},
    nvlink_bytes_per_second=5e9,
)
AMD = _gpu("amd", 4, "AMD Instinct MI300X", {"temperature_celsius": 50}, vendor="amd", watched=True)

NODE = Snapshot(
    timestamp=NOW,
    sequence=9,
    node=NodeRow(name="gpu-node-07", driver=DriverInfo(driver_version="570.124.06")),
    gpus=(WHOLE, CUT, SHARED, LOST, AMD),
    migs=(
        _mig(
            "a",
            1,
            "3g.40gb",
            {
                "memory": Memory(
                    total=40_448 * MIB, used=10_000 * MIB, free=30_000 * MIB, reserved=448 * MIB
                ),
                "bar1": Bar1(total=65_535 * MIB, used=2 * MIB),
                "profiling": Profile(source="gpm", active={"graphics_engine": 0.5, "dram": 0.25}),
            },
        ),
        _mig("b", 2, "1c.3g.40gb", {"memory": Memory(total=40_448 * MIB, used=7 * MIB, free=40_441 * MIB)}),
        _mig(
            "c",
            2,
            "1c.3g.40gb",
            {
                "memory": Memory(total=40_448 * MIB, used=7 * MIB, free=40_441 * MIB),
                "profiling": Profile(source="gpm", active={"graphics_engine": 0.75}),
            },
            ci=1,
        ),
    ),
    containers=(
        _holder("train-0", DeviceKey("GPU-whole")),
        _holder("serve-0", DeviceKey("GPU-cut", "MIG-a")),
        _holder("nb-anna", DeviceKey("GPU-shared")),
        _holder("nb-li", DeviceKey("GPU-shared")),
    ),
    events=(
        _event("cut", 43, 400, "a"),
        _event("cut", 43, 399, "a"),
        _event("cut", 43, 299, "a"),
        _event("lost", 79, 30),
        _event("cut", 94, 20),
        _event("cut", 31, 10, "a"),
    ),
)
"""A whole H100, one cut into MIG devices, a shared T4, an H100 that fell off the bus, and an AMD GPU."""
