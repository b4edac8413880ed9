"""Readings of the node's devices, as one sweep read them.

Integers stay in the driver's unit, which the field's name contains, so that nothing is rounded twice; the
tables of series convert. ``None`` is a reading that the device does not have or that failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.model.mig_profiles import MigProfiles
from exporter.model.readings import (
    Bar1,
    C2c,
    CgroupMemory,
    Clock,
    Ecc,
    EncoderSessions,
    Engine,
    Fabric,
    License,
    Memory,
    Nvlink,
    PcieLink,
    PowerLimit,
    PowerPart,
    Profile,
    RecoveryAction,
    Repairs,
    Threshold,
    Topology,
    Traffic,
    VgpuReading,
    Violation,
)

ProcessKind = Literal["compute", "graphics", "mps"]
ComputeMode = Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]
Virtualization = Literal["none", "passthrough", "vgpu_guest", "vgpu_host", "vsga_host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidentialComputing:
    """The mode in which the host and other machines cannot read what a machine's GPUs compute."""

    enabled: bool | None = None
    environment: str = ""  # production, simulation or unavailable
    developer_tools: bool | None = None  # whether developer tools may read counters
    multi_gpu: str = ""  # protection of links between GPUs: none, protected_pcie or nvlink_encryption
    # Whether the GPUs accept work, after attestation; None without confidential computing.
    ready: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInfo:
    """Versions of the driver, of the NVML library and of the CUDA driver API (``12.4``), and its mode."""

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    confidential: ConfidentialComputing | None = None  # None if the driver does not report it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process with a context on a device."""

    pid: int
    memory: int | None  # bytes; None if the driver does not report it
    # The driver's lists that contain it: MPS clients are ``mps``, the MPS server is ``compute``.
    kinds: frozenset[ProcessKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAccount:
    """The driver's own account of a process on a GPU, since the previous sweep."""

    started: float  # boot clock (seconds) at which it first used the GPU
    # Compute booked on it; None if unknown: the driver is older, or its pid has two accounts.
    gpu_seconds: float | None = None
    ended: bool = False
    came_and_went: bool = False  # whether it started, too, since the previous sweep


# The driver adds samples to accounts this often, in seconds.
BOOKING_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAccounts:
    """The accounts of all processes that used a GPU since the previous sweep, without a gap."""

    by_pid: Mapping[int, ProcessAccount]
    sample_seconds: float | None = None  # length of the driver's samples, as estimated; None if unknown
    uncertainty: float = 0.0  # by which part of itself that length may be wrong
    # Seconds before the previous sweep that the utilization of processes is a mean of, too.
    overlap: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """Facts about a physical GPU that do not change while the driver is loaded."""

    uuid: str  # for an AMD GPU, ``GPU-`` and its unique id, as in ROCm
    index: int  # position in NVML, or among the AMD cards; negative if unknown
    minor: int | None = None  # N of /dev/nvidiaN; on some nodes it differs from ``index``
    model: str = ""
    pci_bus_id: str = ""
    vendor: str = "nvidia"
    serial: str | None = None
    architecture: str | None = None
    vbios: str | None = None
    part_number: str | None = None
    inforom: str | None = None
    gsp_firmware: str | None = None
    compute_capability: str | None = None
    render_minor: int | None = None  # N of /dev/dri/renderDN of an AMD GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading:
    """One MIG device: a compute instance ``ci`` inside the GPU instance ``gi`` of its parent.

    A partition of an AMD GPU has the same form.
    """

    uuid: str  # for an AMD partition, its device name: ``amdgpu_xcp_1``, or the PCI address for the first one
    gi: int
    ci: int
    profile: str | None = None  # for an AMD partition, its mode, such as ``cpx_nps1``
    memory: Memory | None = None  # memory of the GPU instance
    # Whether several compute instances share the memory, so that it must not be added up.
    memory_shared: bool = False
    # Compute slices of the compute instance, then compute and memory slices of its GPU instance.
    compute_slices: int | None = None
    instance_slices: int | None = None
    memory_slices: int | None = None
    multiprocessors: int | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    # By pid, percent of the whole physical GPU; None if not metered.
    process_utilization: Mapping[int, float | None] | None = None
    utilization_percent: int | None = None  # of AMD partitions only
    profiling: Profile | None = None  # shares are of the MIG device
    bar1: Bar1 | None = None
    # Engines of the GPU instance: copy, decoder, encoder, jpeg, ofa.
    engines: Mapping[str, int] = field(default_factory=dict)
    gi_profile: int | None = None  # NVML's id of the GPU instance profile
    # Placement of the GPU instance in memory slices; None if the driver reports it to administrators only.
    gi_start: int | None = None
    gi_size: int | None = None
    render_minor: int | None = None  # N of /dev/dri/renderDN of an AMD partition

    @property
    def fills_instance(self) -> bool:
        """Whether it has all compute slices of its GPU instance; False if unknown."""
        return self.compute_slices is not None and self.compute_slices == self.instance_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One physical GPU in one sweep."""

    identity: GpuIdentity
    # False for a GPU that is lost or failed: only identity, partitioning and compute mode are then known.
    up: bool = True
    sweep: int = 0  # number of the sweep: between consecutive numbers no reading was missed
    read_at: float = 0.0  # Unix time of the reading
    # Unix time of the oldest of the readings that are read once a minute; None without any.
    slow_read_at: float | None = None
    read_monotonic: float = 0.0  # time of the reading on the monotonic clock
    # Boot clock before the processes were listed: a process that started later is not one of them.
    boot_seconds: float | None = None
    memory: Memory | None = None
    protected_memory: Memory | None = None  # of the memory, the part that confidential computing protects
    bar1: Bar1 | None = None
    utilization_percent: int | None = None
    memory_copy_percent: int | None = None
    engine_percent: Mapping[Engine, int] = field(default_factory=dict)
    encoder_sessions: EncoderSessions | None = None
    profiling: Profile | None = None
    power_milliwatts: int | None = None
    power_parts_milliwatts: Mapping[PowerPart, int] = field(default_factory=dict)
    power_limits_milliwatts: Mapping[PowerLimit, int] = field(default_factory=dict)
    energy_millijoules: int | None = None
    # Whether the energy is of an earlier sweep: NVML's counter is not read in every one.
    energy_kept: bool = False
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    temperature_margin_celsius: int | None = None  # distance to the nearest slowdown threshold
    # The thresholds as margins, and as temperatures.
    temperature_limits_celsius: Mapping[Threshold, int] = field(default_factory=dict)
    temperature_thresholds_celsius: Mapping[Threshold, int] = field(default_factory=dict)
    clocks_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clocks_max_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clocks_application_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clock_events: int | None = None  # bitmask of CLOCK_EVENT_BITS
    # Time since the driver was loaded.
    violations_nanoseconds: Mapping[Violation, int] = field(default_factory=dict)
    fan_percent: int | None = None
    pcie_link: PcieLink | None = None
    pcie_replays: int | None = None
    # Bytes per second; read on request only.
    pcie_throughput: Mapping[Traffic, int] = field(default_factory=dict)
    # Counters that start at an unspecified time.
    traffic_bytes: Mapping[Traffic, int] = field(default_factory=dict)
    nvlink: Nvlink | None = None
    fabric: Fabric | None = None  # None for a GPU without a fabric
    c2c: C2c | None = None  # None for a GPU without links to a processor
    ecc: Ecc | None = None
    repairs: Repairs | None = None
    recovery_action: RecoveryAction | None = None
    performance_state: int | None = None
    persistence: bool | None = None
    accounting: bool | None = None
    display_active: bool | None = None
    compute_mode: ComputeMode | None = None
    virtualization: Virtualization | None = None
    license: License | None = None
    vgpus: tuple[VgpuReading, ...] | None = None  # None if this GPU cannot host vGPUs, or if they are unknown
    topology: Topology | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None  # whether MIG mode will be enabled after the next GPU reset
    # Compute slices of the whole GPU: 7 on an A100, 4 on an A30. Partitions, for an AMD GPU.
    mig_slices: int | None = None
    mig: tuple[MigReading, ...] | None = ()
    mig_complete: bool = True  # False if there may be more MIG devices than in ``mig``
    mig_profiles: MigProfiles | None = None  # None without MIG mode, or if they are unknown
    processes: tuple[DeviceProcess, ...] | None = None  # None if unknown, empty if there are none
    # By pid, percent of time with a kernel running; None for implausible samples. Absent pids did not run.
    process_utilization: Mapping[int, float | None] | None = None
    # None while accounting is off, and if the driver has lost the account of a process.
    process_accounts: ProcessAccounts | None = None
    # Memory of cgroups that the driver limits itself (``misc``), by the cgroup's directory.
    cgroup_memory: Mapping[str, CgroupMemory] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()  # calls that this GPU or its driver does not have
    # Readings that were not read, as no chosen series needs them: dotted paths of this record.
    skipped: frozenset[str] = frozenset()
    # By group of readings, why some of them are missing.
    withheld: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvent:
    """An event reported by a GPU."""

    at: float  # Unix time
    uuid: str
    kind: str  # ``xid``, ``double_bit_ecc``, ``mig_config``, ...
    mig_uuid: str = ""  # "" for the whole GPU
    xid: int | None = None  # only with kind ``xid``


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCount:
    """The events of one kind from one device since start."""

    uuid: str
    mig_uuid: str
    kind: str
    xid: int | None
    count: int
    last: float  # Unix time of the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a group of readings since start: calls into the driver and the seconds spent in them."""

    calls: int
    seconds: float
    # Time of the group's field values in the last sweep, as reported by the driver, summed over all GPUs.
    driver_microseconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareReading:
    """One sweep over the node; without arguments, a driver that has not answered."""

    driver: DriverInfo = field(default_factory=DriverInfo)
    gpus: tuple[GpuReading, ...] = ()
    gpu_count: int | None = None  # the driver's count, including lost GPUs; None while unknown
    # Failed calls since start by (device uuid or "", call, error name).
    errors: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)  # by group of readings
    watched: frozenset[str] = frozenset()  # UUIDs of the GPUs with a subscription to their events
    events: tuple[EventCount, ...] = ()  # since start
    recent: tuple[DeviceEvent, ...] = ()  # the newest events, oldest first
    released: str = ""  # why the driver is released; "" while it is in use
