"""The records of a scenario's GPUs: boards, MIG instances, vGPUs, and the driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.demo.scenario.codec import SIZES, Signed
from exporter.model.hardware import ComputeMode, Virtualization
from exporter.model.readings import RecoveryAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Temperatures in degrees: ``gpu`` and ``memory`` slow the clocks down, ``slowdown`` halves them."""

    shutdown: int = 95
    slowdown: int = 89
    gpu: int = 87
    memory: int = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How a GPU is connected to the processors and to other GPUs.

    Of its ``nvlinks`` the last ``down`` are inactive. They lead directly ``to`` other GPUs, so many to each
    uuid, and beyond those to a ``switch``, or the driver does not know where. ``errors`` counts crc_flit,
    crc_data, replay and recovery over all of them. Null is what the architecture brings:
    ``megabytes_per_second`` of one link, ``pcie_generation``. ``relations`` are in nvidia-smi's words (PSB,
    PIX, PXB, PHB, NODE, SYS) by uuid; one that neither GPU names follows from their ``numa_node``.
    ``numa_node`` null and ``cpus`` empty are what the driver does not know.
    """

    nvlinks: int = 0
    down: int = 0
    switch: bool = False
    to: Mapping[str, int] = field(default_factory=dict)
    megabytes_per_second: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    pcie_generation: int | None = None
    pcie_width: int = 16
    numa_node: int | None = 0
    cpus: str = "0-31"
    relations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Errors of the memories and what was done about them. ``ecc`` is null on a board without ECC.

    ``errors`` counts by severity, scope and place, such as ``corrected/aggregate/dram``; from Turing on the
    places are dram and sram. Rows are remapped from Ampere on, by severity; ``row_banks`` counts banks by
    what they have left: max, high, partial, low, none. Pages are retired before Ampere, by cause:
    ``single_bit``, ``double_bit``.
    """

    ecc: bool | None = True
    errors: Mapping[str, int] = field(default_factory=dict)
    remapped_rows: Mapping[str, int] = field(default_factory=dict)
    row_remap_pending: bool = False
    row_remap_failure: bool = False
    row_banks: Mapping[str, int] = field(default_factory=lambda: {"max": 640})
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    retired_pages_pending: bool = False
    recovery_action: RecoveryAction = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgpu:
    """A mediated device of a GPU. It is a vGPU while the process ``pid`` of the host runs on that GPU.

    That process is the driver's part of the virtual machine: its memory and its load are those of the vGPU.
    A ``pid`` of no process is a device whose machine has not been started. ``memory_bytes`` is the frame
    buffer of the ``type``. ``licensed`` is null while the guest's driver has not started. ``uuid`` and
    ``vm_id`` are derived when left empty.
    """

    mdev_uuid: str
    type: str
    memory_bytes: int
    pid: int = 0
    licensed: bool | None = True
    uuid: str = ""
    vm_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLicense:
    """The license of a vGPU guest; ``expires`` is such as ``2027-01-31T23:59:59`` in UTC, "" is never."""

    product: str
    licensed: bool = True
    expires: str = ""


MIB = SIZES["MiB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The machine and its driver. ``cuda_version`` is as the driver says it: 12040 is 12.4.

    An empty ``driver_version`` is a machine on which the kernel module is not loaded. ``labels`` and
    ``annotations`` are what a recording tells of the node's object; nothing on a fake node shows them.
    """

    name: str
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Clock rates in MHz, idle and at full load; the memory's rate is the same in both."""

    sm_idle: int = 210
    sm_max: int
    memory: int
    video_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One compute instance; those with the same ``gi`` share that GPU instance's memory.

    ``compute_slices`` (of the compute instance) and ``gi_slices`` come from the profile when left at 0.
    ``start`` and ``size`` are the placement in memory slices, ``gi_profile`` is the driver's number of the
    profile, null for that of the usual boards. ``engines`` counts the copy, decoder, encoder,
    jpeg and ofa engines of the GPU instance; left empty, it has those of its profile. ``answers`` as for a
    GPU.
    """

    uuid: str = ""
    gi: int
    ci: int = 0
    profile: str
    memory_bytes: int
    reserved: int = 0
    overhead: int = 0
    compute_slices: int = 0
    gi_slices: int = 0
    multiprocessors: int
    start: int = 0
    size: int = 1
    gi_profile: int | None = None
    engines: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, tuple[Signed, ...]] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """MIG of one GPU. ``max_slices`` is what the whole GPU can be cut into: 7, on an A30 4."""

    enabled: bool = True
    max_slices: int = 7
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU; its NVML index is its place in the list.

    ``overhead`` is memory that no process accounts for. ``fan`` is the idle speed in percent, null on a
    passive board. ``mig`` is null on a model without MIG, ``bar1_total`` and ``serial`` on one that does
    not tell. ``power_limit_mw`` is what an administrator set below ``power_max_mw``.
    ``gpm`` is whether it has the driver's profiling meter; null: from Hopper on.

    What a board answers follows from its architecture, its driver and the load. ``answers`` puts fixed
    numbers in the place of that, in the driver's units and in the order of the call's results;
    ``unsupported`` names what this board answers with "not supported". Both name a call by its symbol,
    ``nvmlDeviceGetPowerUsage``, with the numbers it is given where they matter,
    ``nvmlDeviceGetMaxClockInfo:3``, and a field value by its number and scope: ``field:82``, ``field:185:1``.
    This is how a recording keeps what was read: each reading that was there is an answer, each that was
    not is unsupported.
    """

    count: int = 1
    uuid: str = ""
    minor: int | None = None
    model: str
    pci_bus_id: str = ""
    serial: str | None = ""
    vbios: str | None = ""
    board_info: Mapping[str, str] = field(default_factory=dict)
    architecture: int
    memory_total: int
    memory_reserved: int = 0
    overhead: int = 200 * MIB
    bar1_total: int | None = 256 * MIB
    power_idle_mw: int
    power_max_mw: int
    power_limit_mw: int | None = None
    temperature_base: int = 32
    memory_temperature: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)
    clocks: Clocks
    fan: int | None = None
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
    mig: Mig | None = None
    gpm: bool | None = None
    answers: Mapping[str, tuple[Signed, ...]] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
