"""The record of a scenario's AMD GPU, and the same GPU as the machine knows it."""

from dataclasses import dataclass
from typing import Literal

from exporter.demo.codec import SIZES
from exporter.demo.schema_board import Links
from exporter.demo.schema_gpu import Clocks, Gpu, Mig, MigInstance

MIB = SIZES["MiB"]
# A GPU that can be cut has devices for this many partitions, whether or not there are as many.
MOST_PARTITIONS = 8
Mode = Literal["", "SPX", "DPX", "QPX", "CPX"]
MemoryMode = Literal["", "NPS1", "NPS2", "NPS4", "NPS8"]
MetricsVersion = Literal["", "1.3", "1.6", "1.8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """An AMD GPU; its place in the list is that among the node's AMD GPUs.

    ``address`` is its PCI address (``0000:05:00.0``), ``unique_id`` sixteen hexadecimal digits, ``device``
    its PCI device id, ``architecture`` what compilers call it. ``mode`` is how it is cut and ``memory_mode``
    how its memory is, both "" on a GPU that cannot be; in CPX each of its ``dies`` is a partition.
    ``metrics`` is the version of its table of metrics, "" for none. ``overhead`` is memory that no process
    accounts for, ``fan`` the speed in percent, null on a passive board.
    """

    count: int = 1
    unique_id: str = ""
    address: str = ""
    serial: str = ""
    model: str
    device: str
    architecture: str
    compute_units: int
    dies: int = 1
    mode: Mode = ""
    memory_mode: MemoryMode = ""
    metrics: MetricsVersion = ""
    memory_total: int
    overhead: int = 280 * MIB
    power_idle_mw: int
    power_max_mw: int
    temperature_base: int = 34
    sclk_idle: int = 132
    sclk_max: int
    mclk: int
    pcie_generation: int = 4
    fan: int | None = None
    corrected_errors: int = 0
    uncorrected_errors: int = 0

    @property
    def uuid(self) -> str:
        """What ROCm calls it."""
        return f"GPU-{self.unique_id}"

    @property
    def partitions(self) -> int:
        """How many devices it is; 1 for a whole GPU."""
        return {"DPX": 2, "QPX": 4, "CPX": self.dies}.get(self.mode, 1)

    def names(self, index: int) -> tuple[str, ...]:
        """Name its devices as the device plugin does; ``index`` is its place among the AMD GPUs."""
        first = index * (MOST_PARTITIONS - 1)
        return (self.address, *(f"amdgpu_xcp_{first + place}" for place in range(self.partitions - 1)))


def as_gpu(amd: AmdGpu, index: int) -> Gpu:
    """Return what the machine works with; partitions are its MIG instances."""
    return Gpu(
        uuid=amd.uuid,
        model=amd.model,
        pci_bus_id=amd.address,
        architecture=0,
        memory_total=amd.memory_total,
        overhead=amd.overhead,
        power_idle_mw=amd.power_idle_mw,
        power_max_mw=amd.power_max_mw,
        temperature_base=amd.temperature_base,
        clocks=Clocks(sm_idle=amd.sclk_idle, sm_max=amd.sclk_max, memory=amd.mclk, video_max=0),
        links=Links(pcie_generation=amd.pcie_generation),
        fan=amd.fan,
        mig=_cut(amd, index) if amd.partitions > 1 else None,
    )


def _cut(amd: AmdGpu, index: int) -> Mig:
    instances = tuple(
        MigInstance(
            uuid=name,
            gi=place,
            profile=f"{amd.mode}_{amd.memory_mode}".lower(),
            memory_bytes=amd.memory_total // amd.partitions,
            compute_slices=1,
            gi_slices=1,
            multiprocessors=amd.compute_units // amd.partitions,
            start=place,
        )
        for place, name in enumerate(amd.names(index))
    )
    return Mig(max_slices=amd.partitions, instances=instances)
