"""Reads the tables of readings of physical GPUs, each class when it is due, and keeps the values between."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from exporter.model import C2c, Ecc, Fabric, Nvlink, PcieLink, Repairs
from exporter.model.bounds import SMALL
from exporter.nvml.driver.calls import FIELDS, Calls
from exporter.nvml.driver.records import NOT_SUPPORTED
from exporter.nvml.readings.answers import (
    CallRow,
    KeptRows,
    Values,
    add_kept,
    ask_row,
    forget,
    is_skipped,
    known,
    set_path,
)
from exporter.nvml.readings.device import ENERGY_ROWS, FIXED_ROWS, ROWS, SLOW_ROWS, THROUGHPUT_ROWS
from exporter.nvml.readings.field_reader import FieldReader
from exporter.nvml.readings.fields import LINK_STATE, LINKS_ROW
from exporter.nvml.readings.paths import GPU, NVLINK, PCIE_LINK, name_of

ACTIVE = 1
# Of a PCIe link.
MAXIMA = frozenset({name_of(PCIE_LINK.max_generation), name_of(PCIE_LINK.max_width)})
# Readings that change by an event or by hand of an administrator, which are most of the calls of a sweep.
SLOW_SECONDS = 60.0
# The energy counter: the call takes a real driver 3 to 18 ms of CPU time, and a counter loses nothing by it.
ENERGY_SECONDS = 15.0
# Sweeps jitter: one that is earlier than the due time by this does not leave the reading to the next sweep.
EARLY_SECONDS = 0.5
# The records that are made of the values of several rows, by field of GpuReading.
RECORDS = {
    name_of(GPU.pcie_link): PcieLink,
    name_of(GPU.nvlink): Nvlink,
    name_of(GPU.c2c): C2c,
    name_of(GPU.fabric): Fabric,
    name_of(GPU.ecc): Ecc,
    name_of(GPU.repairs): Repairs,
}


@dataclass(slots=True)
class KeptValues:
    """The values of a GPU that are not read in every sweep, each since its class was last due."""

    calls: KeptRows = field(default_factory=KeptRows)
    fields: KeptRows = field(default_factory=KeptRows)
    energy: KeptRows = field(default_factory=KeptRows)

    def drop(self, *, slow: bool, energy: bool) -> None:
        """Drop the values of the classes that are due."""
        if slow:
            self.calls.clear()
            self.fields.clear()
        if energy:
            self.energy.clear()

    def known(self) -> int:
        """Return the number of values."""
        classes = (self.calls, self.fields, self.energy)
        return sum(value is not None for kept in classes for value in kept.values())


class DeviceReader:
    """Reads the tables for every GPU, and keeps slow and fixed values and energy.

    ``pcie_throughput`` adds its rows. ``skip`` are readings that are not read: dotted paths of GpuReading,
    such as ``ecc.by_location``.
    """

    def __init__(self, *, pcie_throughput: bool = False, skip: Collection[str] = ()) -> None:
        self._rows = needed((*ROWS, *(THROUGHPUT_ROWS if pcie_throughput else ())), skip)
        self._energy_rows, self._slow_rows = needed(ENERGY_ROWS, skip), needed(SLOW_ROWS, skip)
        self._fixed_rows = needed(FIXED_ROWS, skip)
        self._fields = FieldReader(skip)
        self._kept: dict[str, KeptValues] = {}
        self._fixed: dict[str, KeptRows] = {}

    def read(
        self, calls: Calls, uuid: str, handle: Any, *, slow: bool = True, energy: bool = True
    ) -> tuple[dict[str, Any], frozenset[int] | None]:
        """Return the known fields of GpuReading, and the active NVLinks, None if unknown.

        With ``slow``, all slow values are read, and fixed ones that failed; with ``energy``, energy. What
        fails is asked once more, and then not before it is due. Without a current value there are no fields.
        Raises as ``Calls.ask`` does.
        """
        failures = calls.records.failures
        values: Values = {}
        for row in self._rows:
            set_path(values, row.into, ask_row(calls, uuid, handle, row))
        if not values and calls.records.failures > failures:
            self.forget_kept(uuid)
            return {}, None
        kept = self._kept.setdefault(uuid, KeptValues())
        kept.drop(slow=slow, energy=energy)
        earlier = kept.known()
        old_energy = bool(kept.energy)
        ask_missing(calls, uuid, handle, self._energy_rows, kept.energy)
        ask_missing(calls, uuid, handle, self._slow_rows, kept.calls)
        self._fields.read(calls, uuid, handle, values, kept.fields)
        ask_missing(calls, uuid, handle, link_state_rows(calls, uuid, kept.fields), kept.calls)
        if not values and kept.known() == earlier and calls.records.failures > failures:
            # Nothing is known to be so now: the GPU must not look well by what was read a minute ago.
            self.forget_kept(uuid)
            return {}, None
        for of_class in (kept.calls, kept.fields, kept.energy):
            add_kept(values, of_class)
        if name_of(GPU.energy_millijoules) in values:
            values[name_of(GPU.energy_kept)] = old_energy
        active = active_links(values)
        if values:
            fixed = self._fixed.setdefault(uuid, KeptRows())
            if slow:
                forget_missing(fixed)
            ask_missing(calls, uuid, handle, self._fixed_rows, fixed)
            add_kept(values, fixed)
            drop_placeholders(values, calls.records.withheld(uuid))
        return with_records(values), active

    def has_kept(self, uuid: str) -> bool:
        """Return whether a value of a GPU is kept from its last sweep."""
        return uuid in self._kept and self._kept[uuid].known() > 0

    def forget(self, uuid: str | None = None) -> None:
        """Read everything again: of a repartitioned GPU, or of all after the driver was opened."""
        self.forget_kept(uuid)
        self._fields.forget(uuid)
        forget(uuid, self._fixed)

    def forget_kept(self, uuid: str | None = None) -> None:
        """Drop the slow values and the energy of a GPU that did not answer, or of all."""
        forget(uuid, self._kept)


def needed(rows: Iterable[CallRow], skip: Collection[str]) -> tuple[CallRow, ...]:
    """Return the rows without those that are skipped."""
    return tuple(row for row in rows if not is_skipped(row.into, skip))


def ask_missing(calls: Calls, uuid: str, handle: Any, rows: Iterable[CallRow], kept: KeptRows) -> None:
    """Read the rows that are not in ``kept``, and add them."""
    for row in rows:
        if row not in kept:
            failures = calls.records.failures
            value = ask_row(calls, uuid, handle, row)
            if calls.records.failures == failures:
                kept.add(row, value)
            else:
                kept.fail(row)
                calls.records.note_until_due(uuid, row.group)


def forget_missing(kept: KeptRows) -> None:
    """Drop the rows without a value, so that those that failed are read again."""
    for row in [row for row, value in kept.items() if value is None]:
        del kept[row]


def drop_placeholders(values: Values, withheld: Mapping[str, str]) -> None:
    """Remove what the driver fills in for a GPU that is part of a processor, without its own memory and link.

    Such a GPU does not support the query of its memory, or has a link of one lane of the first generation at
    most: https://github.com/Syllo/nvtop/issues/426.
    """
    pcie_link, pcie_replays = name_of(GPU.pcie_link), name_of(GPU.pcie_replays)
    memory_copy_percent = name_of(GPU.memory_copy_percent)
    link = values.get(pcie_link, {})
    no_memory = name_of(GPU.memory) not in values and withheld.get("memory", NOT_SUPPORTED) == NOT_SUPPORTED
    no_link = set(link.values()) == {1} and (no_memory or link.keys() >= MAXIMA)
    if no_link:
        del values[pcie_link]
        if values.get(pcie_replays) == 0:
            del values[pcie_replays]
    if (no_memory or no_link) and values.get(memory_copy_percent) == 0:
        del values[memory_copy_percent]


def link_state_rows(calls: Calls, uuid: str, kept: KeptRows) -> list[CallRow]:
    """Return the rows of the NVLinks without a field for their state: drivers without it have a call."""
    return [
        _link_row(link)
        for link in range(kept.get(LINKS_ROW) or 0)
        if not calls.supports(uuid, FIELDS, LINK_STATE, link)
    ]


@cache
def _link_row(link: int) -> CallRow:
    return CallRow("nvlink", ("link_states", link), (("nvmlDeviceGetNvLinkState", (link,)),), SMALL, known)


def active_links(values: Values) -> frozenset[int] | None:
    """Set the number of active NVLinks in ``values``; return the active links, None if one is unknown."""
    states = values.pop("link_states", {})
    nvlink = values.get(name_of(GPU.nvlink), {})
    links = nvlink.get(name_of(NVLINK.links))
    if links is None or any(states.get(link) is None for link in range(links)):
        return None
    active = frozenset(link for link, state in states.items() if state == ACTIVE)
    nvlink[name_of(NVLINK.active)] = len(active)
    return active


def with_records(values: Values) -> dict[str, Any]:
    """Return the values with records of the model in place of the dictionaries of their fields."""
    return {field: RECORDS[field](**value) if field in RECORDS else value for field, value in values.items()}


class Schedule:
    """Spreads the readings of a class over its ``period`` (seconds), by ``clock`` (seconds).

    Every GPU has a phase of its own, by its index, so that not all are due in one sweep.
    """

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        # Time of the next regular read, by GPU uuid.
        self._next: dict[str, float] = {}
        # GPUs whose next read is due whatever the time.
        self._at_once: set[str] = set()

    def due(self, uuid: str, index: int) -> bool:
        """Return whether the readings of a GPU are due; they are then taken to be read.

        They are at the first call for a GPU, after ``at_once``, and whenever the period has passed.
        """
        now = self._clock()
        soon = now + EARLY_SECONDS
        after = self._next.get(uuid)
        if after is None:
            self._next[uuid] = now + self._period * (phase(index) or 1.0)
        elif after <= soon:
            # A late read does not move the phase: GPUs that were delayed together would stay together.
            passed = (soon - after) // self._period + 1
            self._next[uuid] = after + self._period * passed
        due = after is None or after <= soon or uuid in self._at_once
        self._at_once.discard(uuid)
        return due

    def at_once(self, uuids: Iterable[str]) -> None:
        """Make the readings of these GPUs due, without a change of their phases."""
        self._at_once.update(uuids)

    def forget(self, uuid: str | None = None) -> None:
        """Make the readings of a GPU, or of all, due as for the first time."""
        forget(uuid, self._next)
        self._at_once = set() if uuid is None else self._at_once - {uuid}


def phase(index: int) -> float:
    """Return a share of the period, at least 0 and less than 1, for the GPU with an index from 0.

    The bits of the index behind the point in reverse order: any number of GPUs from 0 on are spread evenly.
    """
    share, half = 0.0, 0.5
    while index > 0:
        share += half * (index & 1)
        index, half = index >> 1, half / 2
    return share
