"""The records of a scenario's machine: its driver, and its GPUs with how they are cut."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.demo.codec import SIZES, Signed
from exporter.demo.schema_board import Health, Links, Thresholds
from exporter.demo.schema_vgpu import GuestLicence, Vgpu
from exporter.model.hardware import ComputeMode, Virtualization

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
    licence: GuestLicence | None = None
    vgpus: tuple[Vgpu, ...] = ()
    mig: Mig | None = None
    gpm: bool | None = None
    answers: Mapping[str, tuple[Signed, ...]] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
