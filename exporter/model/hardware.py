"""What the devices of the node say, as one sweep read it.

Integers stay in the unit the driver speaks (the field's name says which), so that nothing is rounded
twice; the table of series converts. ``None`` is a reading that the device does not have or that failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.model.readings import (
    Bar1,
    Clock,
    Ecc,
    EncoderSessions,
    Engine,
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
class DriverInfo:
    """Versions of the driver, of the NVML library and of the CUDA driver API (``12.4``)."""

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process with a context on a device. ``memory`` is in bytes, None where the driver cannot tell.

    ``kinds`` are the lists it stood in: a client of MPS is ``mps``, the MPS server itself ``compute``.
    """

    pid: int
    memory: int | None
    kinds: frozenset[ProcessKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """What never changes about a physical GPU while the driver is loaded.

    ``index`` is the order of NVML (of the cards, for AMD), below 0 for a device of which nobody tells it,
    ``minor`` the N of /dev/nvidiaN; the two differ on
    some nodes. ``uuid`` of an AMD GPU is ``GPU-`` and its unique id, as ROCm writes it, ``render_minor`` the
    N of its /dev/dri/renderDN.
    """

    uuid: str
    index: int
    minor: int | None = None
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
    render_minor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading:
    """One MIG device: a compute instance ``ci`` inside the GPU instance ``gi`` of its parent.

    A partition of an AMD GPU is told in the same form: ``uuid`` is its name as a device
    (``amdgpu_xcp_1``, or the PCI address of the first), ``profile`` its mode (``cpx_nps1``).

    ``compute_slices`` are those of the compute instance; ``instance_slices`` (compute) and
    ``memory_slices`` those of the GPU instance around it.
    ``memory`` belongs to the GPU instance; where several compute instances share it, ``memory_shared``
    is True and the figures must not be added up.
    ``profiling`` is what a profiling meter says of it, as shares of the MIG device;
    ``utilization_percent`` is its own where a driver meters partitions without one.
    ``process_utilization`` is pid → percent of the whole physical GPU, None where nothing meters it.
    ``engines`` counts the copy, decoder, encoder, jpeg and ofa engines of its GPU instance.
    ``gi_profile`` is the driver's number of the GPU instance's profile, ``gi_start`` the first of its
    ``gi_size`` places on the GPU; None where the driver tells that to the administrator only.
    ``render_minor`` is the N of /dev/dri/renderDN of an AMD partition.
    """

    uuid: str
    gi: int
    ci: int
    profile: str | None = None
    memory: Memory | None = None
    memory_shared: bool = False
    compute_slices: int | None = None
    instance_slices: int | None = None
    memory_slices: int | None = None
    multiprocessors: int | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    process_utilization: Mapping[int, float | None] | None = None
    utilization_percent: int | None = None
    profiling: Profile | None = None
    bar1: Bar1 | None = None
    engines: Mapping[str, int] = field(default_factory=dict)
    gi_profile: int | None = None
    gi_start: int | None = None
    gi_size: int | None = None
    render_minor: int | None = None

    @property
    def fills_instance(self) -> bool:
        """Whether it is known to have all compute slices of its GPU instance: they may be several's."""
        return self.compute_slices is not None and self.compute_slices == self.instance_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One physical GPU in one sweep; with ``up`` False it was lost or failed, and nothing else is known.

    ``processes`` and ``process_utilization`` (pid → percent of time with a kernel running, for pids that
    ran; None: garbage) are None when the driver did not say, empty when it said that there are none.
    With ``mig_complete`` False there may be more MIG devices than could be told in this sweep.
    ``unsupported`` names the calls that this GPU or its driver does not have.
    ``sweep`` numbers the sweeps: between two consecutive ones no reading was missed.
    ``read_at`` is Unix time, ``read_monotonic`` the same moment on the monotonic clock,
    ``boot_seconds`` the boot clock when its processes had been listed: one that started later cannot be
    one of them.
    ``mig_pending``: MIG will be on when the GPU has been reset. ``fabric`` is how far the GPU has been
    joined to the NVSwitch fabric: not_started, in_progress, completed or failed.
    ``mig_slices`` is how many compute slices the whole GPU can be cut into (7 on an A100, 4 on an A30).
    ``withheld`` says for each group of readings that is missing in part why that is.
    Violations are nanoseconds since the driver was loaded, PCIe and NVLink traffic bytes since some start;
    ``pcie_throughput`` is bytes per second, asked on request only. ``temperature_margin_celsius`` is how far
    the GPU is from slowing down, ``temperature_limits_celsius`` at which margin something happens,
    ``temperature_thresholds_celsius`` at which temperature. ``vgpus`` is () on a GPU that hosts none, None
    where it cannot.
    """

    identity: GpuIdentity
    up: bool = True
    sweep: int = 0
    read_at: float = 0.0
    read_monotonic: float = 0.0
    boot_seconds: float | None = None
    memory: Memory | None = None
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
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    temperature_limits_celsius: Mapping[Threshold, int] = field(default_factory=dict)
    temperature_thresholds_celsius: Mapping[Threshold, int] = field(default_factory=dict)
    clocks_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clocks_max_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clocks_application_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    clock_events: int | None = None
    violations_nanoseconds: Mapping[Violation, int] = field(default_factory=dict)
    fan_percent: int | None = None
    pcie_link: PcieLink | None = None
    pcie_replays: int | None = None
    pcie_throughput: Mapping[Traffic, int] = field(default_factory=dict)
    traffic_bytes: Mapping[Traffic, int] = field(default_factory=dict)
    nvlink: Nvlink | None = None
    fabric: str | None = None
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
    vgpus: tuple[VgpuReading, ...] | None = None
    topology: Topology | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig_slices: int | None = None
    mig: tuple[MigReading, ...] | None = ()
    mig_complete: bool = True
    processes: tuple[DeviceProcess, ...] | None = None
    process_utilization: Mapping[int, float | None] | None = None
    unsupported: tuple[str, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvent:
    """Something that a GPU reported by itself at Unix time ``at``; ``xid`` is None for other events.

    ``kind`` is ``xid``, ``double_bit_ecc``, ``mig_config``, ... ``mig_uuid`` is "" for the whole GPU.
    """

    at: float
    uuid: str
    kind: str
    mig_uuid: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCount:
    """How often one kind of event came from one device since start, and when at last (Unix time)."""

    uuid: str
    mig_uuid: str
    kind: str
    xid: int | None
    count: int
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a group of readings has cost since start: calls into the driver and seconds spent in them.

    ``driver_microseconds`` is what the driver itself says that the group's field values took at the last
    sweep, all GPUs together; None where it has none.
    """

    calls: int
    seconds: float
    driver_microseconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareReading:
    """One sweep over the node. ``gpu_count`` is the driver's count, lost GPUs included; None: not known now.

    ``errors`` counts failed calls since start by (device uuid or "", call, error name), ``costs`` by group of
    readings. ``watched`` are the uuids of the GPUs whose events are waited for, ``events`` what they have
    reported since start, ``recent`` the newest of them, oldest first. ``released`` says why the driver was
    given up for a while, "" while it is not.
    """

    driver: DriverInfo
    gpus: tuple[GpuReading, ...]
    gpu_count: int | None
    errors: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    watched: frozenset[str] = frozenset()
    events: tuple[EventCount, ...] = ()
    recent: tuple[DeviceEvent, ...] = ()
    released: str = ""
