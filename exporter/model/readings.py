"""The parts of a GPU's reading, in the driver's units.

Mappings have the keys that the device reported; an absent key is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Number: TypeAlias = int | float
Clock = Literal["sm", "memory", "graphics", "video"]
Engine = Literal["encoder", "decoder", "jpeg", "ofa"]
PowerLimit = Literal["enforced", "configured", "default", "min", "max"]
PowerPart = Literal["average", "instant", "module", "memory"]
Threshold = Literal["shutdown", "slowdown", "memory", "gpu"]
# In the order of NVML's numbers.
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
    "integer",
    "tensor",
    "tensor_dfma",
    "tensor_hmma",
    "tensor_dmma",
    "tensor_imma",
    "dram",
    "fp64",
    "fp32",
    "fp16",
]
Traffic = Literal["pcie_transmit", "pcie_receive", "nvlink_transmit", "nvlink_receive"]
Cycles = Literal[
    "sm_elapsed", "sm_active", "mma", "dmma", "hmma", "imma", "dfma", "integer", "fp64", "fp32", "fp16"
]
# Of the context switches of an engine: cycles of one on average, and the share of time in them.
Switches = Literal["cycles_per_request", "active"]
# A field of ``Profile``: shares, shares of engines, bytes per second, counters, and context switches.
ProfilePart = Literal["active", "engines", "rates", "cycles", "bytes_total", "context_switches"]
EccSeverity = Literal["corrected", "uncorrected"]
EccScope = Literal["volatile", "aggregate"]
NvlinkError = Literal["crc_flit", "crc_data", "replay", "recovery"]
PacketError = Literal[
    "malformed",
    "buffer_overrun",
    "received",
    "remote",
    "general",
    "link_integrity",
    "discarded",
    "effective",
    "symbol",
]
C2cError = Literal["crc", "replay", "replay_back_to_back"]
FabricProblem = Literal[
    "degraded_bandwidth",
    "route_recovery",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
    "no_partition",
    "manager_disconnected",
]
# In the order of NVML's numbers.
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

# Reasons by bit, as in ``nvmlClocksEventReasons`` of nvml.h.
CLOCK_EVENT_BITS: Mapping[int, ClockEvent] = {
    1 << place: reason for place, reason in enumerate(get_args(ClockEvent))
}
RECOVERY_ACTIONS: tuple[RecoveryAction, ...] = get_args(RecoveryAction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory in bytes: total = used + free + reserved."""

    total: int
    used: int
    free: int
    reserved: int | None = None  # None if the driver does not report it; ``used`` then includes it


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory:
    """The memory of one GPU in one cgroup, in bytes; that of the cgroups below it is included."""

    used: int | None  # None if it was not observed
    guaranteed: int = 0  # soft limit; 0 if none is set
    limit: int | None = None  # hard limit; None if none is set

    @property
    def limited(self) -> bool:
        """Whether a limit is set."""
        return self.guaranteed > 0 or self.limit is not None

    @property
    def limits(self) -> tuple[int, int | None]:
        """Soft and hard limit."""
        return self.guaranteed, self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar1:
    """BAR1 in bytes: the PCIe window for host access to device memory."""

    total: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSessions:
    """Active video encoder sessions, with their average frame rate and latency."""

    count: int
    average_fps: int
    average_latency_microseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """The PCIe link: generation and width in lanes."""

    generation: int | None = None
    width: int | None = None
    # The maximum that both GPU and slot support.
    max_generation: int | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink:
    """The NVLinks of a GPU."""

    links: int | None = None
    active: int | None = None
    megabytes_per_second: int | None = None  # speed of one link
    # Summed over all links since the driver was loaded.
    errors: Mapping[NvlinkError, int] = field(default_factory=dict)
    # From Blackwell on, of all links: packets with errors, recoveries (``successful``, ``failed``), and bit
    # error ratios (``effective``: after correction, ``symbol``: before).
    packet_errors: Mapping[PacketError, int] = field(default_factory=dict)
    recoveries: Mapping[str, int] = field(default_factory=dict)
    bit_error_ratios: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class C2c:
    """The links of a GPU to the processor on its module (NVLink-C2C)."""

    enabled: bool | None = None  # whether C2C mode is on
    links: int | None = None
    states: Mapping[int, bool] = field(default_factory=dict)  # by link, whether it is active
    speeds: Mapping[int, int] = field(default_factory=dict)  # by link, MB/s
    errors: Mapping[C2cError, int] = field(default_factory=dict)

    @property
    def active(self) -> int | None:
        """The number of active links; None if the state of one is unknown."""
        return sum(self.states.values()) if self.links == len(self.states) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The registration of a GPU with its NVLink fabric: NVSwitches of the node, or an NVLink domain."""

    state: str | None = None  # not_started, in_progress, completed or failed
    # UUID of the NVLink domain; "" if the fabric does not leave the node, or before registration.
    cluster: str = ""
    clique: int | None = None  # the GPUs of one clique of a domain reach each other; None without a domain
    # Whether the GPU has a problem; those that its driver does not report are absent.
    problems: Mapping[FabricProblem, bool] = field(default_factory=dict)
    misconfiguration: str = ""  # what is incorrect in the configuration, such as ``insufficient_nvlinks``


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecc:
    """ECC mode and error counts."""

    enabled: bool | None = None
    pending: bool | None = None  # the mode after the next reboot
    errors: Mapping[tuple[EccSeverity, EccScope], int] = field(default_factory=dict)
    # By (severity, scope, location), such as ``("corrected", "volatile", "dram")``.
    by_location: Mapping[tuple[EccSeverity, EccScope, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Memory repair: rows remapped (from Ampere on) or pages retired (before)."""

    remapped_rows: Mapping[EccSeverity, int] = field(default_factory=dict)  # by severity of the ECC error
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    # Banks by availability of spare rows: max, high, partial, low, none.
    row_banks: Mapping[str, int] = field(default_factory=dict)
    retired_pages: Mapping[str, int] = field(default_factory=dict)  # by cause: ``single_bit``, ``double_bit``
    retired_pages_pending: bool | None = None
    # Repairs of a memory channel or of a texture processing cluster (TPC) that wait for a reset.
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Profiling metrics of a GPU or MIG device over the last interval."""

    source: Literal["gpm", "dcgm"]  # ``gpm`` (NVML) or ``dcgm`` (a dcgm-exporter on the node)
    # Shares of time or of the peak, 0 to 1.
    active: Mapping[Activity, float] = field(default_factory=dict)
    engines: Mapping[Engine, float] = field(default_factory=dict)
    rates: Mapping[Traffic, float] = field(default_factory=dict)  # bytes per second
    # Counters since the node booted.
    cycles: Mapping[Cycles, int] = field(default_factory=dict)
    bytes_total: Mapping[Traffic, int] = field(default_factory=dict)
    # Context switches over the last interval, by number of the graphics engine.
    context_switches: Mapping[tuple[int, Switches], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """The license of the vGPU in this guest."""

    product: str
    licensed: bool
    state: str = ""  # ``licensed`` or ``unlicensed``
    expires: float | None = None  # Unix time; None if it does not expire


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuReading:
    """One vGPU that runs on a host's GPU."""

    uuid: str
    mdev_uuid: str | None = None  # UUID of the mediated device
    vm_id: str | None = None
    type_name: str | None = None
    gi: int | None = None  # the GPU instance that backs it
    # Bytes.
    memory_total: int | None = None
    memory_used: int | None = None
    # Shares of the physical GPU's time.
    sm_percent: int | None = None
    memory_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    licensed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink:
    """The connection from one GPU to another."""

    # PCIe path as in ``nvidia-smi topo -m``: PIX, PXB, PHB, NODE or SYS; PSB for GPUs of one board.
    pcie: str | None = None
    nvlinks: int | None = None  # active NVLinks, direct or through switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The place of a GPU in the machine."""

    numa_node: int | None = None
    cpus: str = ""  # nearest CPUs, in the kernel's list format: ``0-31,64-95``
    peers: Mapping[str, PeerLink] = field(default_factory=dict)  # by UUID of the other GPU
