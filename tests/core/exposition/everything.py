"""Every reading that a GPU or MIG device can have, at once: no board has them all."""

from dataclasses import replace
from typing import Any, get_type_hints

from exporter.model import (
    Bar1,
    C2c,
    Cost,
    EncoderSessions,
    EventCount,
    Fabric,
    GpuReading,
    Memory,
    PeerLink,
    Topology,
    VgpuReading,
)
from tests.core.exposition.dcgm_node import EVERYTHING, NOW
from tests.core.exposition.dcgm_node import PROFILE as WITHOUT_ENGINES

PROFILE = replace(WITHOUT_ENGINES, engines={"encoder": 0.1, "decoder": 0.2, "jpeg": 0.3, "ofa": 0.4})
WITH_SWITCHES = replace(
    PROFILE,
    context_switches={(0, "cycles_per_request"): 9e4, (0, "active"): 0.125},
)

# What the rows of GPUs in tests set by themselves.
_OF_ROWS = {
    *("memory", "utilization_percent", "memory_copy_percent", "power_milliwatts", "energy_millijoules"),
    *("temperature_celsius", "memory_temperature_celsius", "clocks_megahertz", "fan_percent"),
    *("pcie_replays", "compute_mode", "mig_enabled"),
}

# Fields of one number or one flag have a value by their type, unless they have one below.
_BY_TYPE = {int | None: 31, bool | None: False}
_PLAIN = {
    name: _BY_TYPE[kind] for name, kind in get_type_hints(GpuReading).items() if kind in _BY_TYPE
} | EVERYTHING

# The readings that DCGM's names print, and all others.
READINGS: dict[str, Any] = {name: value for name, value in _PLAIN.items() if name not in _OF_ROWS} | {
    "encoder_sessions": EncoderSessions(count=2, average_fps=60, average_latency_microseconds=1500),
    "profiling": WITH_SWITCHES,
    "temperature_margin_celsius": 31,
    "traffic_bytes": {
        "pcie_transmit": 10,
        "pcie_receive": 20,
        "nvlink_transmit": 30,
        "nvlink_receive": 40,
    },
    "nvlink": replace(
        EVERYTHING["nvlink"],
        links=12,
        active=11,
        megabytes_per_second=25_000,
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
    "ecc": replace(EVERYTHING["ecc"], pending=True),
    "repairs": replace(EVERYTHING["repairs"], channel_repair_pending=False, tpc_repair_pending=True),
    "recovery_action": "reset",
    "virtualization": "vgpu_host",
    "license": replace(EVERYTHING["license"], state="licensed", expires=NOW),
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

# Rates are printed only without counters.
WITHOUT_COUNTERS: dict[str, Any] = {"traffic_bytes": {}, "profiling": replace(PROFILE, bytes_total={})}

MIG_READINGS: dict[str, Any] = {
    "profiling": WITH_SWITCHES,
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
