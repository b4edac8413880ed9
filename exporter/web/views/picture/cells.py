"""The records of a GPU's picture: one cell per device, with its bars, marks and list of holders."""

from dataclasses import dataclass
from typing import NamedTuple

from exporter.metrics import Number
from exporter.model import ContainerRef, DeviceKey, Memory, SliceCount
from exporter.web.views.picture.bars import Bar
from exporter.web.views.scene import Pair, compute_pair, memory_pair

_SILENT = "the driver does not tell"


class Amounts(NamedTuple):
    """What a device has of one thing, and what of it no known container uses; None is not known."""

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
        """What no known container uses of it, in words; there is no whole to it."""
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
    """Give a device's memory, of which ``rest`` bytes are nobody's."""
    return Amounts(None, None, rest) if memory is None else Amounts(memory.total, memory.used, rest)


def percent(share: float) -> int:
    """Give a share as a width, of which there are those from 1 to 100."""
    return min(max(round(100 * share), 1), 100)
