"""The content of the page of one GPU: its links to others, and its readings by the table of series."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.metrics import GPU, GROUPS, MIG, VGPU, AnyFamily, Family, LabelledFamily, Number, field_name
from exporter.model import GpuRow, Topology
from exporter.web.node.pages.scene import Scene, is_amd, part_name
from exporter.wording import UNKNOWN, decimal, duration, gibibytes

LINKS = {
    "X": "the GPU itself",
    "PSB": "both on one board",
    "PIX": "at most one PCIe bridge between them",
    "PXB": "several PCIe bridges, but no host bridge between them",
    "PHB": "a PCIe host bridge, usually the processor, between them",
    "NODE": "host bridges of one NUMA node between them",
    "SYS": "crosses the link between NUMA nodes",
}
_WATCHED = "None since this exporter started."
_UNWATCHED = "The driver does not report events of this GPU: check the node's kernel log for XIDs."
_UNWATCHED_AMD = "Events of AMD GPUs are not read: check the node's kernel log."
_UNWATCHED_FOREIGN = "This exporter does not read events of this device."
_ELSEWHERE = frozenset({"sharing", "topology", "events"})
_NOT_READ = "Not read, because no series on /metrics needs it; a larger --metric-set does."
_MEBIBYTE, _MEGAHERTZ, _KILOJOULE = 1 << 20, 1_000_000, 1000
_GIBIBYTE = 1 << 30
_CAPITALS = "bar1 c2c dram ecc fp16 fp32 fp64 gpu gsp id jpeg mig numa ofa pci sm sram tpc uuid vm"
# Words with a fixed spelling.
_NAMES = {
    **{name: name.upper() for name in _CAPITALS.split()},
    "inforom": "InfoROM",
    "nvlink": "NVLink",
    "nvlinks": "NVLinks",
    "pcie": "PCIe",
    "vbios": "VBIOS",
    "vgpu": "vGPU",
    "vgpus": "vGPUs",
}


class ReadingLine(NamedTuple):
    """One reading."""

    name: str
    value: str
    title: str  # explains its name


class ReadingGroup(NamedTuple):
    """The readings of one group."""

    title: str
    lines: tuple[ReadingLine, ...]
    why: str  # why there are none, "" if there are some


class Link(NamedTuple):
    """One cell of the matrix."""

    word: str
    title: str  # explains its word


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One GPU in the matrix."""

    index: int
    uuid: str
    links: tuple[Link, ...]  # to all GPUs in their order
    numa_node: str
    cpus: str


def topology_rows(scene: Scene) -> list[TopologyRow]:
    """Return the matrix; empty if no GPU reports a link."""
    gpus = tuple(gpu for gpu in scene.snapshot.gpus if not gpu.unread)
    topologies = [(gpu.reading.topology if gpu.reading else None) or Topology() for gpu in gpus]
    if not any(topology.peers or topology.numa_node is not None for topology in topologies):
        return []
    return [
        TopologyRow(
            index=gpu.identity.index,
            uuid=gpu.identity.uuid,
            links=tuple(_link(gpu, topology, other) for other in gpus),
            numa_node=UNKNOWN if topology.numa_node is None else str(topology.numa_node),
            cpus=topology.cpus or UNKNOWN,
        )
        for gpu, topology in zip(gpus, topologies, strict=True)
    ]


def _link(gpu: GpuRow, topology: Topology, other: GpuRow) -> Link:
    if other is gpu:
        return Link("X", LINKS["X"])
    link = topology.peers.get(other.identity.uuid)
    if link is not None and link.nvlinks:
        return Link(f"NV{link.nvlinks}", f"{link.nvlinks} NVLinks, directly or through switches")
    word = link.pcie if link is not None else None
    return Link(word or UNKNOWN, LINKS.get(word or "", "not reported by the driver"))


class PartView(NamedTuple):
    """The readings of one MIG device, partition or vGPU."""

    name: str
    uuid: str
    groups: list[ReadingGroup]  # also empty ones


def no_events(gpu: GpuRow) -> str:
    """Return why there are no events of a GPU."""
    if gpu.unread:
        return _UNWATCHED_FOREIGN
    unwatched = _UNWATCHED_AMD if is_amd(gpu) else _UNWATCHED
    return _WATCHED if gpu.watched else unwatched


def part_views(scene: Scene, gpu: GpuRow) -> Iterator[PartView]:
    """Yield the readings of the MIG devices or partitions of a GPU, then those of its vGPUs."""
    for mig in scene.snapshot.migs:
        if mig.device.uuid == gpu.identity.uuid:
            number = str(mig.reading.gi) if is_amd(gpu) else f"{mig.reading.gi}/{mig.reading.ci}"
            name = f"{part_name(mig.device)} {number} {mig.reading.profile or ''}"
            yield PartView(name, mig.device.mig_uuid, list(_groups(MIG, mig, {}, ())))
    for row in scene.snapshot.vgpus:
        if row.uuid == gpu.identity.uuid:
            name = f"vGPU {(row.reading.type_name or '').removeprefix('NVIDIA ')}"
            yield PartView(name, row.reading.uuid, list(_groups(VGPU, row, {}, ())))


def gpu_readings(gpu: GpuRow) -> list[ReadingGroup]:
    """Return the readings of a GPU; an empty group has the reason."""
    withheld = gpu.reading.withheld if gpu.reading is not None else {}
    skipped = gpu.reading.skipped if gpu.reading is not None and gpu.reading.up else ()
    return list(_groups(GPU, gpu, withheld, skipped))


def _groups(
    table: Iterable[AnyFamily], row: Any, withheld: Mapping[str, str], skipped: Collection[str]
) -> Iterator[ReadingGroup]:
    """Yield the groups of a table; ``withheld`` are reasons by group why a GPU does not report it."""
    for name, group in GROUPS.items():
        families = [family for family in table if family.group == name]
        if families and name not in _ELSEWHERE:
            lines = tuple(_lines(families, row, skipped))
            why = "" if lines else f"{withheld.get(name, 'not available here')} (available: {group.where})"
            yield ReadingGroup(group.title, lines, why)


def _lines(families: Iterable[AnyFamily], row: Any, skipped: Collection[str]) -> Iterator[ReadingLine]:
    """Yield the lines of the families, "not read" for one without that needs one of ``skipped``."""
    for family in families:
        lines = tuple(_lines_of(family, row))
        yield from lines
        if not lines and any(reading in skipped for reading in family.reads):
            yield ReadingLine(_name(family), "not read", f"{family.help} {_NOT_READ}")


def _lines_of(family: AnyFamily, row: Any) -> Iterator[ReadingLine]:
    if isinstance(family, Family):
        value = family.value(row)
        if value is not None and not family.name.endswith("_timestamp_seconds"):
            yes_or_no = "yes" if value else "no"
            text = yes_or_no if family.flag else write(family.name, value)
            yield ReadingLine(_name(family), text, family.help)
    elif family.type == "info":
        yield from _facts(family, row)
    elif family.states:
        yield from _states(family, row)
    else:
        for labels, value in family.samples(row):
            if value is not None:
                name = f"{_name(family)}: {', '.join(map(_words, filter(None, labels)))}"
                yield ReadingLine(name, write(family.name, value), family.help)


def _states(family: LabelledFamily[Any], row: Any) -> Iterator[ReadingLine]:
    """Yield a line with the active states only."""
    states = list(family.samples(row))
    if states:
        active = [_words(", ".join(labels)) for labels, value in states if value]
        yield ReadingLine(_name(family), "; ".join(active) or "none", family.help)


def _facts(family: LabelledFamily[Any], row: Any) -> Iterator[ReadingLine]:
    for values, _ in family.samples(row):
        for label, value in zip(family.labels, values, strict=True):
            if value:
                yield ReadingLine(_words(label), value, family.help)


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
