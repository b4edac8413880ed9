"""All readings of a GPU or MIG device as lines: the table of series, group by group."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.formats.wording import decimal, duration, gibibytes
from exporter.metrics import GPU, GROUPS, MIG, VGPU, AnyFamily, Family, LabelledFamily, Number, field_name
from exporter.metrics.needs import needs
from exporter.model import GpuRow, MigRow, VgpuRow

_ELSEWHERE = frozenset({"sharing", "topology", "events"})
_NOT_READ = "Not read, because no series on /metrics needs it; a larger --metric-set does."
_MEBIBYTE, _MEGAHERTZ, _KILOJOULE = 1 << 20, 1_000_000, 1000
_GIBIBYTE = 1 << 30
# Words with a fixed spelling.
_NAMES = {
    **{name: name.upper() for name in ("bar1", "dram", "ecc", "gpu", "id", "jpeg", "mig", "numa", "ofa")},
    **{name: name.upper() for name in ("fp16", "fp32", "fp64", "gsp", "pci", "sm", "sram", "uuid", "vm")},
    "inforom": "InfoROM",
    "nvlink": "NVLink",
    "nvlinks": "NVLinks",
    "pcie": "PCIe",
    "vbios": "VBIOS",
    "vgpu": "vGPU",
    "vgpus": "vGPUs",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One reading: its name (``title`` is longer) and its value."""

    name: str
    value: str
    title: str


@dataclass(frozen=True, slots=True)
class ReadingGroup:
    """The readings of one group."""

    title: str
    lines: tuple[Line, ...]
    why: str  # why there are none, "" if there are some


def gpu_readings(gpu: GpuRow) -> list[ReadingGroup]:
    """Return the readings of a GPU; an empty group has the reason."""
    withheld = gpu.reading.withheld if gpu.reading is not None else {}
    skipped = gpu.reading.skipped if gpu.reading is not None and gpu.reading.up else ()
    groups = []
    for name, group in GROUPS.items():
        families = [family for family in GPU if family.group == name]
        if families and name not in _ELSEWHERE:
            lines = tuple(_lines(families, gpu, skipped))
            why = "" if lines else f"{withheld.get(name, 'not available here')} (available: {group.where})"
            groups.append(ReadingGroup(group.title, lines, why))
    return groups


def part_readings(row: MigRow | VgpuRow) -> list[ReadingGroup]:
    """Return the readings of a MIG device or vGPU, without empty groups."""
    table: Iterable[AnyFamily] = MIG if isinstance(row, MigRow) else VGPU
    groups = []
    for name, group in GROUPS.items():
        lines = tuple(_lines([family for family in table if family.group == name], row))
        if lines and name not in _ELSEWHERE:
            groups.append(ReadingGroup(group.title, lines, ""))
    return groups


def _lines(families: list[AnyFamily], row: Any, skipped: Collection[str] = ()) -> Iterator[Line]:
    """Yield the lines of the families, "not read" for one without that needs one of ``skipped``."""
    for family in families:
        lines = tuple(_lines_of(family, row))
        yield from lines
        if not lines and needs(family.name, skipped):
            yield Line(_name(family), "not read", f"{family.help} {_NOT_READ}")


def _lines_of(family: AnyFamily, row: Any) -> Iterator[Line]:
    if isinstance(family, Family):
        value = family.value(row)
        if value is not None and not family.name.endswith("_timestamp_seconds"):
            yes_or_no = "yes" if value else "no"
            text = yes_or_no if family.flag else write(family.name, value)
            yield Line(_name(family), text, family.help)
    elif family.type == "info":
        yield from _facts(family, row)
    elif family.states:
        yield from _states(family, row)
    else:
        for labels, value in family.samples(row):
            if value is not None:
                name = f"{_name(family)}: {', '.join(map(_words, filter(None, labels)))}"
                yield Line(name, write(family.name, value), family.help)


def _states(family: LabelledFamily[Any], row: Any) -> Iterator[Line]:
    """Yield a line with the active states only."""
    states = list(family.samples(row))
    if states:
        active = [_words(", ".join(labels)) for labels, value in states if value]
        yield Line(_name(family), "; ".join(active) or "none", family.help)


def _facts(family: AnyFamily, row: Any) -> Iterator[Line]:
    if isinstance(family, Family):
        return
    for values, _ in family.samples(row):
        for label, value in zip(family.labels, values, strict=True):
            if value:
                yield Line(_words(label), value, family.help)


def _name(family: AnyFamily) -> str:
    name = field_name(family).removesuffix("_total")
    for suffix in _WRITERS:
        name = name.removesuffix(suffix)
    return _words(name.removeprefix("nvml_"))


def _words(name: str) -> str:
    return " ".join(_NAMES.get(word, word) for word in name.split("_"))


def write(family: str, value: Number) -> str:
    """Return a sample in the usual unit for the suffix of its name."""
    name = family.removesuffix("_total")
    suffix = next((suffix for suffix in _WRITERS if name.endswith(suffix)), "")
    return _WRITERS[suffix](value)


def _bytes(value: Number) -> str:
    return f"{gibibytes(value)} GiB" if value >= _GIBIBYTE else f"{decimal(value / _MEBIBYTE, 0)} MiB"


def _rate(value: Number) -> str:
    unit, name = (_GIBIBYTE, "GiB/s") if value >= _GIBIBYTE else (_MEBIBYTE, "MiB/s")
    return f"{decimal(value / unit, 1)} {name}"


def _seconds(value: Number) -> str:
    return duration(value) if value >= 1 else f"{decimal(value * 1000, 1)} ms"


def _number(value: Number) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else decimal(value, 2)


# A longer suffix comes before the one that it ends with; a name without any is a count.
_WRITERS: Mapping[str, Callable[[Number], str]] = {
    "_bytes_per_second": _rate,
    "_bytes": _bytes,
    "_ratio": lambda value: f"{decimal(value * 100, 0)} %",
    "_watts": lambda value: f"{decimal(value, 0)} W",
    "_celsius": lambda value: f"{decimal(value, 0)} °C",
    "_hertz": lambda value: f"{decimal(value / _MEGAHERTZ, 0)} MHz",
    "_joules": lambda value: f"{decimal(value / _KILOJOULE, 1)} kJ",
    "_seconds": _seconds,
    "": _number,
}
