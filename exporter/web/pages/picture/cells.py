"""The records of a GPU's picture: one cell per device, with its bars, marks and list of holders."""

from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.wording import duration
from exporter.metrics import Number
from exporter.model import ContainerRef, ContainerRow, DeviceKey, Memory, SliceCount
from exporter.web.pages.picture.bars import UNATTRIBUTED, Bar, Part, Use, bar, use_bar
from exporter.web.pages.views.scene import Pair, Scene, compute_pair, memory_pair

_SILENT = "not reported by the driver"


class Amounts(NamedTuple):
    """The size, the use and the unattributed use of a device; None is not known."""

    whole: Number | None
    used: Number | None
    rest: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a cell is drawn of: a whole GPU or a MIG device. ``share`` is its width, as a part of the GPU.

    ``pooled``: several containers are meant to hold it, ``replicated``: in replicas that are all alike.

    ``memory`` is in bytes, ``compute`` in shares of the physical GPU; ``why_compute`` tells what keeps the
    device's use of compute from being known.
    """

    key: DeviceKey
    caption: str
    share: float
    slices: tuple[SliceCount, ...]
    replicated: bool
    pooled: bool
    holders_known: bool
    memory: Amounts
    compute: Amounts
    why_compute: str

    @property
    def pairs(self) -> tuple[Pair, Pair]:
        """The device's own memory and compute in words."""
        memory, compute = self.memory, self.compute
        return (
            memory_pair(memory.used, _SILENT, memory.whole, _SILENT),
            compute_pair(compute.used, self.why_compute, compute.whole, _SILENT),
        )

    @property
    def rests(self) -> tuple[Pair, Pair]:
        """The unattributed use in words, without a total."""
        return (
            memory_pair(self.memory.rest, _SILENT, None, ""),
            compute_pair(self.compute.rest, self.why_compute, None, ""),
        )


class Mark(NamedTuple):
    """A replica, or a run of them; ``width`` is relative to that of the other marks."""

    look: str
    label: str
    name: str
    title: str
    width: int


class Gauge(NamedTuple):
    """One bar with its numbers."""

    name: str
    bar: Bar
    pair: Pair


class Key(NamedTuple):
    """A line of the list under a pool. ``number`` is the holder's on the marks and in the bars.

    ``named``: its container is told too, since its pod has another one here.
    """

    number: int
    holder: ContainerRef
    named: bool
    state: str
    held: str
    memory: Pair
    compute: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One device, drawn. ``width`` is in percent of the GPU.

    ``look`` is held, free, unknown, missing or uncut. A box has a ``holder`` with its ``state``, or only a
    ``note``; a pool has ``marks`` and ``keys``, and what is nobody's in ``rest``. ``others`` counts
    the holders that have no key, because the page of the GPU ``uuid`` lists them all.
    """

    caption: str
    title: str
    width: int
    look: str
    note: str = ""
    holder: ContainerRef | None = None
    state: str = ""
    marks: tuple[Mark, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    keys: tuple[Key, ...] = ()
    others: int = 0
    uuid: str = ""
    rest: tuple[Pair, Pair] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Memory slices of a GPU that lie beside each other, ``size`` of them, with what is drawn on them."""

    size: int
    cells: tuple[Cell, ...]


def memory_amounts(memory: Memory | None, rest: int | None) -> Amounts:
    """Return a device's memory, with ``rest`` unattributed bytes."""
    return Amounts(None, None, rest) if memory is None else Amounts(memory.total, memory.used, rest)


def percent(share: float) -> int:
    """Return a share as a width from 1 to 100."""
    return min(max(round(100 * share), 1), 100)


def held_box(scene: Scene, device: Device, row: ContainerRow) -> Cell:
    """Return the cell of a device with its only container."""
    state, activity, _ = judged = scene.judged(row)
    quiet_for = judged.quiet_for
    memory, compute = scene.memory(row), scene.compute(row)
    memory_use = Use(row.memory_used, row.memory_entitled, device.memory.whole)
    compute_use = Use(row.compute_used, row.compute_entitled, device.compute.whole)
    memory_bar = use_bar(f"memory: {memory}", state, memory_use, device.memory.rest)
    compute_bar = use_bar(f"compute: {compute}", state, compute_use, device.compute.rest)
    return Cell(
        caption=device.caption,
        title=row.resource or device.key.mig_uuid or device.key.uuid,
        width=percent(device.share),
        look="held",
        note="" if quiet_for is None else f"{activity} {duration(quiet_for)}",
        holder=row.holder,
        state=state,
        gauges=(Gauge("memory", memory_bar, memory), Gauge("compute", compute_bar, compute)),
    )


def empty_box(scene: Scene, device: Device) -> Cell:
    """Return the cell of a device without a known container."""
    look, note = _nobody(scene, device)
    memory, compute = device.pairs
    return Cell(
        caption=device.caption,
        title=device.key.mig_uuid or device.key.uuid,
        width=percent(device.share),
        look=look,
        note=note,
        gauges=(
            _leftover("memory", look, device.memory, memory),
            _leftover("compute", look, device.compute, compute),
        ),
    )


def _nobody(scene: Scene, device: Device) -> tuple[str, str]:
    if not device.holders_known:
        return "unknown", "holder unknown"
    if not device.slices:
        return "free", "free" if scene.claimed else "not held"
    if any(count.allocated != 0 for count in device.slices):
        return "unknown", "held, holder unknown"
    return "free", "free"


def _leftover(name: str, look: str, amounts: Amounts, pair: Pair) -> Gauge:
    parts = [Part("unattributed", amounts.rest or 0, UNATTRIBUTED)]
    # A free device is dashed; if it may be held, the unknown part is hatched.
    known = amounts.rest is not None or look == "free"
    return Gauge(name, bar(f"{name}: {pair}", parts, amounts.whole or 1, known=known, dashed=True), pair)
