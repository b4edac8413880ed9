"""The records of a GPU's picture: one cell per device, with its bars, marks and list of holders."""

from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.memory_limits import limits_text
from exporter.metrics import Number
from exporter.model import ContainerRef, ContainerRow, DeviceKey, Memory, SliceCount
from exporter.web.kit.elements import (
    Bar,
    BarPart,
    Mark,
    Pair,
    PoolKey,
    bar,
    compute_pair,
    memory_pair,
    with_limits,
)
from exporter.web.node.pages.scene import Scene
from exporter.wording import duration

UNATTRIBUTED = "used by no known container"


class Amounts(NamedTuple):
    """The size, the use and the unattributed use of a device; None is not known."""

    whole: Number | None
    used: Number | None
    rest: Number | None


def use_bar(text: str, state: str, used: Number | None, entitled: Number | None, size: Amounts) -> Bar:
    """Return a bar of a use against its entitlement or, dashed, against the device if there is none.

    It is followed by the device's use by no known container.
    """
    rest = BarPart("unattributed", size.rest or 0, UNATTRIBUTED)
    parts = () if used is None else (BarPart(state, used, text), rest)
    track = size.whole if entitled is None else entitled
    return bar(text, parts, track, known=used is not None, dashed=entitled is None)


def limits_of(row: ContainerRow) -> dict[str, float]:
    """Return the memory limits of a holder that a bar marks, in bytes."""
    limits = {"soft": row.memory_guaranteed or None, "hard": row.memory_limit}
    return {look: size for look, size in limits.items() if size is not None}


_SILENT = "not reported by the driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnDevice:
    """A whole GPU or a MIG device, to be drawn as a cell."""

    key: DeviceKey
    caption: str
    share: float  # its width, as a part of the GPU
    slices: tuple[SliceCount, ...]
    replicated: bool  # whether it is offered in replicas
    pooled: bool  # whether several containers can hold it
    holders_known: bool
    memory: Amounts  # bytes
    compute: Amounts  # shares of the physical GPU
    why_compute: str  # why its use of compute is unknown

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


class Gauge(NamedTuple):
    """One bar with its numbers."""

    name: str
    bar: Bar
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One device, drawn: a box with a holder or a note, or a pool with marks and keys."""

    caption: str
    title: str
    width: int  # percent of the GPU
    look: str  # held, free, unknown, missing or uncut
    note: str = ""
    holder: ContainerRef | None = None
    state: str = ""  # of the holder
    marks: tuple[Mark, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    keys: tuple[PoolKey, ...] = ()
    others: int = 0  # number of holders without a key; the GPU page lists them
    uuid: str = ""  # of the GPU
    rest: tuple[Pair, Pair] | None = None  # unattributed memory and compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Adjacent memory slices of a GPU, with the cells drawn on them."""

    size: int  # number of slices
    cells: tuple[Cell, ...]


def memory_amounts(memory: Memory | None, rest: int | None) -> Amounts:
    """Return a device's memory, with ``rest`` unattributed bytes."""
    return Amounts(None, None, rest) if memory is None else Amounts(memory.total, memory.used, rest)


def percent(share: float) -> int:
    """Return a share as a width from 1 to 100."""
    return min(max(round(100 * share), 1), 100)


def use_gauges(
    scene: Scene, row: ContainerRow, memory_size: Amounts, compute_size: Amounts
) -> tuple[Gauge, Gauge]:
    """Return the memory and the compute of a container on a device with these amounts."""
    state, memory, compute = scene.state(row), scene.memory(row), scene.compute(row)
    text = "; ".join(filter(None, (f"memory: {memory}", limits_text(row))))
    memory_bar = use_bar(text, state, row.memory_used, row.memory_entitled, memory_size)
    memory_bar = with_limits(memory_bar, limits_of(row))
    compute_bar = use_bar(f"compute: {compute}", state, row.compute_used, row.compute_entitled, compute_size)
    return Gauge("memory", memory_bar, memory), Gauge("compute", compute_bar, compute)


def held_box(scene: Scene, device: DrawnDevice, row: ContainerRow) -> Cell:
    """Return the cell of a device with its only container."""
    judged = scene.judged(row)
    return Cell(
        caption=device.caption,
        title=row.resource or device.key.mig_uuid or device.key.uuid,
        width=percent(device.share),
        look="held",
        note="" if judged.quiet_for is None else f"{judged.activity} {duration(judged.quiet_for)}",
        holder=row.holder,
        state=judged.state,
        gauges=use_gauges(scene, row, device.memory, device.compute),
    )


def empty_box(scene: Scene, device: DrawnDevice) -> Cell:
    """Return the cell of a device without a known container."""
    look, note = _vacancy(scene, device)
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


def _vacancy(scene: Scene, device: DrawnDevice) -> tuple[str, str]:
    """Return the look and the note of a device without a known container."""
    if not device.holders_known:
        return "unknown", "holder unknown"
    if not device.slices:
        return "free", "free" if scene.claimed else "not held"
    if any(count.allocated != 0 for count in device.slices):
        return "unknown", "held, holder unknown"
    return "free", "free"


def _leftover(name: str, look: str, amounts: Amounts, pair: Pair) -> Gauge:
    parts = [BarPart("unattributed", amounts.rest or 0, UNATTRIBUTED)]
    # A free device is dashed; if it may be held, the unknown part is hatched.
    known = amounts.rest is not None or look == "free"
    return Gauge(name, bar(f"{name}: {pair}", parts, amounts.whole or 1, known=known, dashed=True), pair)
