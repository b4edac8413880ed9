"""What the DCGM names are asked of, and the forms in which they ask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from exporter.metrics import Family, FamilyType, Level, Number
from exporter.model import Bar1, Ecc, GpuReading, GpuRow, Memory, Nvlink, PcieLink, Profile, Repairs
from exporter.model.readings import Activity

WINDOW_SECONDS = 300
"""The window of dcgm-exporter's counts, by its default."""

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Xids:
    """XID errors of one entity since start: the last code (0: none yet) and how often each code came.

    ``recent`` counts those of the last window. None is not known: ``last`` where nobody waits for events.
    """

    last: int | None = None
    totals: Mapping[int, int] = field(default_factory=dict)
    recent: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmRow:
    """What one DCGM entity tells: a GPU, or a GPU instance of MIG, which has no ``gpu`` and no ``reading``.

    ``reading`` is None on a GPU that does not answer. ``memory``, ``bar1`` and ``active`` (shares of time)
    are those of this very entity, and empty on a GPU whose instances tell them.
    """

    gpu: GpuRow | None = None
    reading: GpuReading | None = None
    memory: Memory | None = None
    bar1: Bar1 | None = None
    active: Mapping[Activity, float] = field(default_factory=dict)
    xids: Xids = field(default_factory=Xids)


Value: TypeAlias = Callable[[DcgmRow], Number | None]


def field_family(name: str, family_type: FamilyType, group: str, text: str, value: Value) -> Family[DcgmRow]:
    """Make the row of one DCGM field."""
    level: Level = "dcgm"
    return Family(f"DCGM_FI_{name}", family_type, level, text, value, group=group)


def gauge(name: str, group: str, text: str, value: Value) -> Family[DcgmRow]:
    """Make the row of a field that goes up and down."""
    return field_family(name, "gauge", group, text, value)


def counter(name: str, group: str, text: str, value: Value) -> Family[DcgmRow]:
    """Make the row of a field that only grows."""
    return field_family(name, "counter", group, text, value)


def reading(value: Callable[[GpuReading], Number | None]) -> Value:
    """Ask the GPU, where it answers."""
    return lambda row: None if row.reading is None else value(row.reading)


def memory(value: Callable[[Memory], Number | None]) -> Value:
    """Ask the frame buffer of a GPU or instance."""
    return lambda row: None if row.memory is None else value(row.memory)


def bar1(value: Callable[[Bar1], Number | None]) -> Value:
    """Ask the BAR1 window of a GPU or instance."""
    return lambda row: None if row.bar1 is None else value(row.bar1)


def pcie(value: Callable[[PcieLink], Number | None]) -> Value:
    """Ask the PCIe link of a GPU."""
    return reading(lambda gpu: None if gpu.pcie_link is None else value(gpu.pcie_link))


def nvlink(value: Callable[[Nvlink], Number | None]) -> Value:
    """Ask the NVLinks of a GPU."""
    return reading(lambda gpu: None if gpu.nvlink is None else value(gpu.nvlink))


def ecc(value: Callable[[Ecc], Number | None]) -> Value:
    """Ask the ECC of a GPU."""
    return reading(lambda gpu: None if gpu.ecc is None else value(gpu.ecc))


def repairs(value: Callable[[Repairs], Number | None]) -> Value:
    """Ask the repairs of a GPU's memory."""
    return reading(lambda gpu: None if gpu.repairs is None else value(gpu.repairs))


def profile(value: Callable[[Profile], Number | None]) -> Value:
    """Ask the profiling meter of a whole GPU."""
    return reading(lambda gpu: None if gpu.profiling is None else value(gpu.profiling))


def active(activity: Activity) -> Value:
    """Ask for one share of time of a GPU or instance."""
    return lambda row: row.active.get(activity)


def mebibytes(size: int | None) -> int | None:
    """Floor bytes to whole MiB, as DCGM does."""
    return None if size is None else size // _MEBIBYTE


def flag(value: bool | None) -> int | None:
    """Spell yes and no as 1 and 0; what is not known stays so."""
    return None if value is None else int(value)
