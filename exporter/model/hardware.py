"""What the devices of the node say, as one sweep read it.

Integers stay in the unit the driver speaks (the field's name says which), so that nothing is rounded
twice; the table of series converts. ``None`` is a reading that the device does not have or that failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ProcessKind = Literal["compute", "graphics", "mps"]
ComputeMode = Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]
Clock = Literal["sm", "memory", "graphics", "video"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInfo:
    """Versions of the driver, of the NVML library and of the CUDA driver API (``12.4``)."""

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None


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

    ``index`` is the order of NVML, ``minor`` the N of /dev/nvidiaN; the two differ on some nodes.
    """

    uuid: str
    index: int
    minor: int | None = None
    model: str = ""
    pci_bus_id: str = ""
    vendor: str = "nvidia"
    serial: str | None = None
    architecture: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading:
    """One MIG device: a compute instance ``ci`` inside the GPU instance ``gi`` of its parent.

    ``compute_slices`` are those of the compute instance; ``instance_slices`` (compute) and
    ``memory_slices`` those of the GPU instance around it.
    ``memory`` belongs to the GPU instance; where several compute instances share it, ``memory_shared``
    is True and the figures must not be added up.
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
    ``mig_slices`` is how many compute slices the whole GPU can be cut into (7 on an A100, 4 on an A30).
    """

    identity: GpuIdentity
    up: bool = True
    sweep: int = 0
    read_at: float = 0.0
    read_monotonic: float = 0.0
    boot_seconds: float | None = None
    memory: Memory | None = None
    utilization_percent: int | None = None
    memory_copy_percent: int | None = None
    power_milliwatts: int | None = None
    energy_millijoules: int | None = None
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    clocks_megahertz: Mapping[Clock, int] = field(default_factory=dict)
    fan_percent: int | None = None
    pcie_replays: int | None = None
    compute_mode: ComputeMode | None = None
    mig_enabled: bool | None = None
    mig_slices: int | None = None
    mig: tuple[MigReading, ...] | None = ()
    mig_complete: bool = True
    processes: tuple[DeviceProcess, ...] | None = None
    process_utilization: Mapping[int, int | None] | None = None
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareReading:
    """One sweep over the node. ``gpu_count`` is the driver's count, lost GPUs included.

    ``errors`` counts failed calls since start by (device uuid or "", call, error name).
    """

    driver: DriverInfo
    gpus: tuple[GpuReading, ...]
    gpu_count: int
    errors: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
