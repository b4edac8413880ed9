"""The record of a scenario's AMD GPU, and its conversion to the GPU that the machine simulates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from exporter.demo.scenario.derive import make_hex
from exporter.demo.scenario.gpus import MIB, Clocks, Gpu, Links, Mig, MigInstance
from exporter.documents import fail

# PCI buses of a board with eight GPUs; further GPUs repeat them in the next domain.
_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")
_ARCHITECTURE = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}")
# A GPU with partitions has device files for this many, however many there are.
MOST_PARTITIONS = 8
Mode = Literal["", "SPX", "DPX", "QPX", "CPX"]
MemoryMode = Literal["", "NPS1", "NPS2", "NPS4", "NPS8"]
MetricsVersion = Literal["", "1.3", "1.6", "1.8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """An AMD GPU; its index is its place in the list."""

    count: int = 1
    unique_id: str = ""  # 16 hexadecimal digits
    address: str = ""  # PCI address, such as 0000:05:00.0
    serial: str = ""
    model: str
    device: str  # PCI device id
    architecture: str  # such as gfx942
    compute_units: int
    dies: int = 1  # in CPX each is a partition
    mode: Mode = ""  # compute partitioning; "": not supported
    memory_mode: MemoryMode = ""  # memory partitioning; "": not supported
    metrics: MetricsVersion = ""  # of gpu_metrics; "": none
    memory_total: int
    overhead: int = 280 * MIB  # used memory that no process accounts for
    power_idle_mw: int
    power_max_mw: int
    temperature_base: int = 34
    sclk_idle: int = 132
    sclk_max: int
    mclk: int
    pcie_generation: int = 4
    fan: int | None = None  # percent; None: passive board
    corrected_errors: int = 0
    uncorrected_errors: int = 0

    @property
    def uuid(self) -> str:
        """The uuid, as ROCm renders it."""
        return f"GPU-{self.unique_id}"

    @property
    def partitions(self) -> int:
        """The number of its partitions, 1 for a whole GPU."""
        return {"DPX": 2, "QPX": 4, "CPX": self.dies}.get(self.mode, 1)

    @property
    def profile(self) -> str:
        """The partitioning, as device plugins and labels render it."""
        return f"{self.mode}_{self.memory_mode}".lower()


def _as_gpu(amd: AmdGpu, index: int) -> Gpu:
    """Return the GPU that the machine simulates; partitions are its MIG instances."""
    return Gpu(
        uuid=amd.uuid,
        model=amd.model,
        pci_bus_id=amd.address,
        board_info={"partitioning": amd.profile},
        architecture=0,
        memory_total=amd.memory_total,
        overhead=amd.overhead,
        power_idle_mw=amd.power_idle_mw,
        power_max_mw=amd.power_max_mw,
        temperature_base=amd.temperature_base,
        clocks=Clocks(sm_idle=amd.sclk_idle, sm_max=amd.sclk_max, memory=amd.mclk, video_max=0),
        links=Links(pcie_generation=amd.pcie_generation),
        fan=amd.fan,
        mig=_partitions(amd, index) if amd.partitions > 1 else None,
    )


def _partitions(amd: AmdGpu, index: int) -> Mig:
    """Return the partitions, whose uuids are the ids of the device plugin."""
    first = index * (MOST_PARTITIONS - 1)
    ids = (amd.address, *(f"amdgpu_xcp_{first + place}" for place in range(amd.partitions - 1)))
    instances = tuple(
        MigInstance(
            uuid=device_id,
            gi=place,
            profile=amd.profile,
            memory_bytes=amd.memory_total // amd.partitions,
            compute_slices=1,
            gi_slices=1,
            multiprocessors=amd.compute_units // amd.partitions,
            start=place,
        )
        for place, device_id in enumerate(ids)
    )
    return Mig(max_slices=amd.partitions, instances=instances)


def complete_amd(scenario: str, amd: AmdGpu, index: int) -> AmdGpu:
    """Return an AMD GPU with the identities that the scenario leaves out."""
    board, place = divmod(index, len(_BUSES))
    return replace(
        amd,
        count=1,
        unique_id=amd.unique_id or make_hex(scenario, "amd", index)[:16],
        address=amd.address or f"{board:04x}:{_BUSES[place]:02x}:00.0",
        serial=amd.serial or f"6920{int(make_hex(scenario, 'amd serial', index)[:8], 16):010d}",
    )


def gpus_of(amd: Sequence[AmdGpu]) -> tuple[Gpu, ...]:
    """Return the GPUs that the machine simulates for these."""
    return tuple(_as_gpu(gpu, index) for index, gpu in enumerate(amd))


def check_amd(amd: AmdGpu, path: str) -> None:
    """Raise DocumentError with the path of the first impossible value of an AMD GPU."""
    for name, pattern in (("address", _ADDRESS), ("unique_id", _UNIQUE_ID), ("architecture", _ARCHITECTURE)):
        if not pattern.fullmatch(getattr(amd, name)):
            fail(f"{path}.{name}", f"must match {pattern.pattern}, not {getattr(amd, name)!r}")
    if amd.overhead > amd.memory_total:
        fail(f"{path}.memory_total", "must be more than overhead")
    if not 0 <= amd.power_idle_mw <= amd.power_max_mw:
        fail(f"{path}.power_idle_mw", "must be between 0 and power_max_mw")
    if bool(amd.mode) != bool(amd.memory_mode):
        fail(f"{path}.memory_mode", "must be given with mode, and only with it")
    if not 1 <= amd.dies <= 8 or amd.compute_units % amd.partitions:
        fail(f"{path}.dies", "must be 1 to 8, and share out the compute units evenly")
