"""The parts of a GPU's reading: what belongs together, as the driver speaks it.

Mappings hold what the device told and nothing else: a key that is missing is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Clock = Literal["sm", "memory", "graphics", "video"]
Engine = Literal["encoder", "decoder", "jpeg", "ofa"]
PowerLimit = Literal["enforced", "configured", "default", "min", "max"]
PowerPart = Literal["average", "instant", "module", "memory"]
Threshold = Literal["shutdown", "slowdown", "memory", "gpu"]
ClockEvent = Literal[
    "idle",
    "application_clocks",
    "power_cap",
    "hardware_slowdown",
    "sync_boost",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
    "display",
    "board_limit",
    "reliability",
]
Violation = Literal[
    "power",
    "thermal",
    "sync_boost",
    "board_limit",
    "low_utilization",
    "reliability",
    "application_clocks",
    "base_clocks",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
]
Activity = Literal[
    "graphics_engine",
    "sm",
    "sm_occupancy",
    "tensor",
    "tensor_dfma",
    "tensor_hmma",
    "tensor_dmma",
    "tensor_imma",
    "dram",
    "fp64",
    "fp32",
    "fp16",
    "integer",
]
Traffic = Literal["pcie_transmit", "pcie_receive", "nvlink_transmit", "nvlink_receive"]
Cycles = Literal[
    "sm_elapsed", "sm_active", "mma", "dmma", "hmma", "imma", "dfma", "integer", "fp64", "fp32", "fp16"
]
EccSeverity = Literal["corrected", "uncorrected"]
EccScope = Literal["volatile", "aggregate"]
NvlinkError = Literal["crc_flit", "crc_data", "replay", "recovery"]
RecoveryAction = Literal[
    "none",
    "reset",
    "reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
]

CLOCK_EVENT_BITS: Mapping[int, ClockEvent] = {
    1 << place: reason for place, reason in enumerate(get_args(ClockEvent))
}
"""The bits of the driver's mask of reasons."""
RECOVERY_ACTIONS: tuple[RecoveryAction, ...] = get_args(RecoveryAction)
"""By the driver's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Frame buffer in bytes: total = used + free + reserved.

    With a driver that cannot tell what it reserves, ``reserved`` is None and ``used`` includes it.
    """

    total: int
    used: int
    free: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar1:
    """The window through which the host sees the frame buffer, in bytes."""

    total: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSessions:
    """Video encoding now: sessions, their mean frames per second and latency in microseconds."""

    count: int
    average_fps: int
    average_latency_microseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """The PCIe link: generation and width in lanes, now and at most (for GPU and slot together)."""

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink:
    """All NVLinks of a GPU: how many are active of how many, and error counts since the driver's load.

    ``megabytes_per_second`` is the speed of one link.
    """

    links: int | None = None
    active: int | None = None
    megabytes_per_second: int | None = None
    errors: Mapping[NvlinkError, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecc:
    """ECC of the memories: whether it is on (now, after the next reboot) and errors by severity and scope.

    ``by_location`` counts by (severity, scope, location), such as ``("corrected", "volatile", "dram")``.
    """

    enabled: bool | None = None
    pending: bool | None = None
    errors: Mapping[tuple[EccSeverity, EccScope], int] = field(default_factory=dict)
    by_location: Mapping[tuple[EccSeverity, EccScope, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Memory that was taken out of use: rows remapped (from Ampere on), pages retired (before).

    ``remapped_rows`` by severity of the error, ``retired_pages`` by its cause: ``single_bit``,
    ``double_bit``. ``row_banks`` counts banks by how many spare rows are left: max, high, partial, low,
    none.
    """

    remapped_rows: Mapping[EccSeverity, int] = field(default_factory=dict)
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    row_banks: Mapping[str, int] = field(default_factory=dict)
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    retired_pages_pending: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profiling meter says of a GPU or MIG device over the last interval.

    ``source`` is ``gpm`` (the driver itself) or ``dcgm`` (a dcgm-exporter on the node). ``active`` are
    shares of time or of the peak, 0 to 1; ``engines`` likewise; ``rates`` are in bytes per second;
    ``cycles`` and ``bytes_total`` count since the start of the machine.
    """

    source: Literal["gpm", "dcgm"]
    active: Mapping[Activity, float] = field(default_factory=dict)
    engines: Mapping[Engine, float] = field(default_factory=dict)
    rates: Mapping[Traffic, float] = field(default_factory=dict)
    cycles: Mapping[Cycles, int] = field(default_factory=dict)
    bytes_total: Mapping[Traffic, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """The license of a vGPU guest. ``state`` is NVML's word: licensed, unlicensed, expired, unknown, ..."""

    product: str
    licensed: bool
    state: str = ""
    expires: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuReading:
    """One vGPU that runs on a host's GPU. ``uuid`` is its own, ``mdev_uuid`` that of the mediated device.

    ``memory_total`` is the frame buffer it is entitled to and ``memory_used`` what its guest uses, bytes;
    the percentages are shares of the physical GPU's time. ``gi`` is the GPU instance that backs it.
    """

    uuid: str
    mdev_uuid: str | None = None
    vm_id: str | None = None
    type_name: str | None = None
    gi: int | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    sm_percent: int | None = None
    memory_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    licensed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink:
    """How one GPU reaches another: the PCIe relation in nvidia-smi's word, and active NVLinks.

    ``pcie`` is PIX, PXB, PHB, NODE or SYS (or PSB for GPUs of one board); ``nvlinks`` counts direct links
    and those through switches.
    """

    pcie: str | None = None
    nvlinks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where a GPU sits: its NUMA node, the processors near it (``0-31,64-95``), and its links to others."""

    numa_node: int | None = None
    cpus: str = ""
    peers: Mapping[str, PeerLink] = field(default_factory=dict)
