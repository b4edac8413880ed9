"""The records of a scenario's NVIDIA GPUs: boards, MIG instances, vGPUs, and the driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from exporter.documents import SIZES, Signed
from exporter.model.hardware import ComputeMode, Virtualization
from exporter.model.mig_profiles import MigProfile
from exporter.model.readings import FabricProblem, RecoveryAction

MIB = SIZES["MiB"]
Answers = Mapping[str, tuple[Signed, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Temperature thresholds in degrees."""

    shutdown: int = 95
    slowdown: int = 89  # hardware slowdown: half the clocks
    gpu: int = 87  # software slowdown
    memory: int = 95  # software slowdown, by the memory temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The connections of a GPU to the processors and to other GPUs."""

    nvlinks: int = 0
    down: int = 0  # the last so many NVLinks are inactive
    switch: bool = False  # NVLinks that do not lead to a GPU lead to an NVSwitch
    to: Mapping[str, int] = field(default_factory=dict)  # NVLinks to other GPUs, by uuid
    megabytes_per_second: int | None = None  # of one NVLink; None: by architecture
    # crc_flit, crc_data, replay, recovery; on Blackwell recovery, recovery_failed, and those of packets.
    errors: Mapping[str, int] = field(default_factory=dict)
    cluster: str = ""  # UUID of the NVLink domain; "": the fabric does not leave the node
    clique: int = 0
    # Problems of the fabric that the driver reports, and whether the GPU has them.
    fabric_problems: Mapping[FabricProblem, bool] = field(default_factory=dict)
    misconfiguration: str = ""
    c2c_links: int = 0  # to the processor of the module
    c2c_down: int = 0
    c2c_errors: Mapping[str, int] = field(default_factory=dict)  # crc, replay, replay_back_to_back
    pcie_generation: int | None = None  # None: by architecture
    pcie_width: int = 16
    numa_node: int | None = 0  # None: unknown to the driver
    cpus: str = "0-31"  # "": unknown to the driver
    # nvidia-smi's words (PSB, PIX, PXB, PHB, NODE, SYS) by uuid; by default from the NUMA nodes.
    relations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Memory errors and repairs: rows are remapped from Ampere on, pages are retired before."""

    ecc: bool | None = True  # None: the board has no ECC
    # By severity, scope and location, such as ``corrected/aggregate/dram``; from Turing on dram and sram.
    errors: Mapping[str, int] = field(default_factory=dict)
    remapped_rows: Mapping[str, int] = field(default_factory=dict)  # by severity
    row_remap_pending: bool = False
    row_remap_failure: bool = False
    # Banks by their remaining spare rows: max, high, partial, low, none.
    row_banks: Mapping[str, int] = field(default_factory=lambda: {"max": 640})
    retired_pages: Mapping[str, int] = field(default_factory=dict)  # by cause: single_bit, double_bit
    retired_pages_pending: bool = False
    channel_repair_pending: bool = False
    tpc_repair_pending: bool = False
    recovery_action: RecoveryAction = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgpu:
    """A mediated device of a GPU, which is a vGPU while its host process runs on that GPU.

    The process is the driver's part of the virtual machine: its memory and load are those of the vGPU.
    """

    mdev_uuid: str
    type: str
    memory_bytes: int  # frame buffer of the type
    pid: int = 0  # host process; without one of that pid, the virtual machine is not started
    licensed: bool | None = True  # None: the guest's driver is not started
    uuid: str = ""  # by default derived
    vm_id: str = ""  # by default derived


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLicense:
    """The license of a vGPU guest."""

    product: str
    licensed: bool = True
    expires: str = ""  # UTC, such as ``2027-01-31T23:59:59``; "": never


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidential:
    """Confidential computing of a machine; without developer tools the driver hides processes."""

    enabled: bool = True
    environment: str = "production"  # unavailable, simulation
    developer_tools: bool = False
    multi_gpu: str = "none"  # protected_pcie, nvlink_encryption
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The machine and its driver."""

    name: str
    driver_version: str = ""  # "": the kernel module is not loaded
    nvml_version: str = ""
    cuda_version: int = 0  # as the driver reports it: 12040 is 12.4
    confidential: Confidential | None = None  # None: the driver does not report it
    # What meters the memory of cgroups and enforces limits: the kernel (``dmem``), the driver (``misc``) or
    # nothing.
    memory_limits: Literal["", "dmem", "misc"] = ""
    # Of the Node object, in a recording; a fake node does not show them.
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Clock rates in MHz."""

    sm_idle: int = 210
    sm_max: int
    memory: int  # idle and at full load
    video_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One compute instance; those with the same ``gi`` share that GPU instance's memory."""

    uuid: str = ""
    gi: int
    ci: int = 0
    profile: str
    memory_bytes: int
    reserved: int = 0
    overhead: int = 0  # used memory that no process accounts for
    compute_slices: int = 0  # of the compute instance; 0: from the profile
    gi_slices: int = 0  # of the GPU instance; 0: from the profile
    multiprocessors: int
    start: int = 0  # placement in memory slices
    size: int = 1
    gi_profile: int | None = None  # the driver's number of the profile; None: that of common boards
    # copy, decoder, encoder, jpeg and ofa engines of the GPU instance; by default from the profile.
    engines: Mapping[str, int] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)  # as for a GPU
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfileSize:
    """The size of a GPU instance of a MIG profile; 0 is unknown."""

    name: str
    memory_bytes: int
    multiprocessors: int
    instances: int  # most on one GPU

    @classmethod
    def of(cls, profile: MigProfile) -> Self:
        """Return the size of a read or published profile."""
        return cls(
            name=profile.name,
            memory_bytes=profile.memory or 0,
            multiprocessors=profile.multiprocessors or 0,
            instances=profile.instances or 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """MIG of one GPU."""

    enabled: bool = True
    max_slices: int = 7  # of the whole GPU; 4 on an A30
    instances: tuple[MigInstance, ...] = ()
    profiles: tuple[MigProfileSize, ...] = ()  # by default those published for the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU; its NVML index is its place in the list.

    The results of calls follow from the architecture, the driver and the load. ``answers`` replaces them by
    fixed numbers, in the driver's units and order; ``unsupported`` lists calls that return NOT_SUPPORTED.
    Both name a call by its symbol, ``nvmlDeviceGetPowerUsage``, with its plain arguments if it has any,
    ``nvmlDeviceGetMaxClockInfo:3``, and a field value by its number and scope: ``field:82``, ``field:185:1``.
    Recordings use them for all readings.
    """

    count: int = 1
    uuid: str = ""
    minor: int | None = None
    model: str
    pci_bus_id: str = ""
    serial: str | None = ""  # None: not reported
    vbios: str | None = ""
    board_info: Mapping[str, str] = field(default_factory=dict)
    architecture: int
    memory_total: int
    memory_reserved: int = 0
    overhead: int = 200 * MIB  # used memory that no process accounts for
    protected_memory: int | None = None  # part of the memory; None: not reported
    bar1_total: int | None = 256 * MIB  # None: not reported
    power_idle_mw: int
    power_max_mw: int
    power_limit_mw: int | None = None  # set by an administrator, below the maximum
    temperature_base: int = 32
    memory_temperature: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)
    clocks: Clocks
    fan: int | None = None  # idle speed in percent; None: passive board
    compute_mode: ComputeMode = "default"
    pcie_replays: int = 0
    links: Links = field(default_factory=Links)
    health: Health = field(default_factory=Health)
    persistence: bool = True
    accounting: bool = False
    display_active: bool = False
    virtualization: Virtualization = "none"
    license: GuestLicense | None = None
    vgpus: tuple[Vgpu, ...] = ()
    mig: Mig | None = None  # None: a model without MIG
    gpm: bool | None = None  # has GPM; None: from Hopper on
    answers: Answers = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()

    @property
    def mig_enabled(self) -> bool:
        return self.mig is not None and self.mig.enabled

    @property
    def instances(self) -> tuple[MigInstance, ...]:
        return self.mig.instances if self.mig else ()
