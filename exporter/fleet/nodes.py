"""GPUs, slices, memory and compute held and used on each node."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from exporter.fleet import Node
from exporter.fleet.amounts import FAILED_AMOUNT, UNKNOWN_AMOUNT, Amount, Units, closed
from exporter.fleet.queries import Answers, Sums
from exporter.fleet.shares import Parts, Place, Shares, Table, of_value, questions
from exporter.wording import is_system

_LABELS = ("cluster", "node")
_GPUS, _COUNTED, _MODES = "GPUs", "number of GPUs", "sharing of GPUs"
_KNOWN, _SIZE, _RELEASED = "known values of GPUs", "memory of GPUs", "released drivers"
_CONDITIONS = "unhealthy GPUs"
_OFFERED, _HELD, _UNHEALTHY = "slices offered", "slices held", "unhealthy slices"
QUESTIONS = {
    _GPUS: "node:gpuslice_total_gpus:count",
    _COUNTED: "max by (cluster, node) (gpuslice_node_gpus)",
    _MODES: "node:gpuslice_sharing:count",
    _KNOWN: "node:gpuslice_known_gpus:count",
    _SIZE: "node:gpuslice_total_bytes:sum",
    _CONDITIONS: "node:gpuslice_unhealthy_gpus:sum",
    _RELEASED: "max by (cluster, node) (gpuslice_driver_released)",
    _OFFERED: "node:gpuslice_offered_slices:sum",
    _HELD: "node:gpuslice_held_slices:sum",
    _UNHEALTHY: "node:gpuslice_unhealthy_slices:sum",
    **questions("node"),
}
"""The queries for the sums of each node."""
_VALUES = {_OFFERED: "offered_slices", _HELD: "held_slices", _UNHEALTHY: "unhealthy_slices"}
"""The value that counts the GPUs in a sum of slices."""


def read_nodes(answers: Answers, nodes: Iterable[Node]) -> Iterator[Node]:
    """Return each node with its values; one that does not answer has none."""
    tables = _Tables(answers)
    return (node if node.silent else tables.with_values(node) for node in nodes)


class _Tables:
    """The answers, by cluster and node, and by what else their rows have."""

    def __init__(self, answers: Answers) -> None:
        self._shares = Shares(answers, "node")
        self._single = {name: answers.sums(name, *_LABELS) for name in (_COUNTED, _RELEASED)}
        self._by_name = {
            name: _by_place(answers.sums(name, *_LABELS, label))
            for name, label in ((_GPUS, "model"), (_MODES, "sharing"), (_KNOWN, "value"))
        }
        counts = answers.sums(_KNOWN, "value", *_LABELS, "model")
        self._memory, self._unhealthy = (
            Table(answers.sums(name, *_LABELS, "model"), of_value(counts, value))
            for name, value in ((_SIZE, "total_bytes"), (_CONDITIONS, "conditions"))
        )
        counts = answers.sums(_KNOWN, "value", *_LABELS, "resource", "model")
        self._slices = {
            name: Table(answers.sums(name, *_LABELS, "resource", "model"), of_value(counts, value))
            for name, value in _VALUES.items()
        }
        self._listed = Table({}, of_value(counts, "slices"))

    def with_values(self, node: Node) -> Node:
        """Return a node that answers with its values."""
        place = (node.target.cluster, node.key.name)
        models, modes = self._rows(_GPUS, place), self._rows(_MODES, place)
        total, gpus = self._gpus(place, models)
        holders_known = self._count(place, "holders")
        unseen = None if total is None or holders_known is None else max(total - holders_known, 0)
        slices, units = self._slices_of(place, modes, total)
        idle, idle_compute = self._shares.idle(place, unseen)
        released = self._single[_RELEASED]
        return replace(
            node,
            gpus=gpus,
            models=_complete(models, total),
            sharing=None if _complete(modes, total) is None else tuple(modes or ()),
            unhealthy=self._unhealthy.amount(place, total, failed=total is None),
            slices=slices,
            units=units,
            containers=self._containers(place, unseen),
            idle_holders=idle,
            idle_compute=idle_compute,
            memory_total=self._memory.amount(place, total, failed=total is None),
            memory=self._shares.share(place, "bytes", unseen),
            compute=self._shares.share(place, "gpus", unseen),
            released=None if released is None or place not in released else bool(released[place]),
        )

    def _containers(self, place: Place, unseen: int | None) -> Amount:
        """Return the number of containers on GPUs; those of a GPU without known holders are missing."""
        count = self._shares.containers(place)
        if self._shares.failed or unseen is None:
            return FAILED_AMOUNT
        return UNKNOWN_AMOUNT if count is None else Amount(count, max(count, 1), unseen)

    def _gpus(self, place: Place, models: Mapping[str, float] | None) -> tuple[int | None, Amount]:
        """Return how many GPUs have to be reported (None: a query failed), and those that there are.

        GPUs that the driver counts but that have no series are unknown, and so is a node without records.
        """
        counted = self._single[_COUNTED]
        if counted is None or models is None:
            return None, FAILED_AMOUNT
        read, number = int(sum(models.values())), counted.get(place)
        total = max(read, int(number or 0))
        if number is None:
            return max(total, 1), Amount(read, read, 1) if read else UNKNOWN_AMOUNT
        return total, Amount(number, 1)

    def _slices_of(
        self, place: Place, modes: Mapping[str, float] | None, total: int | None
    ) -> tuple[Units, tuple[Units, ...] | None]:
        """Return the slices of the vendors' own plug-ins, and the units of sharing systems by resource.

        Slices are added up, and units are not: they are percents, bytes or slots. Records do not show which
        GPU a resource is of, so of a node with both all are listed by resource, and its slices are unknown.
        """
        held, offered = self._slices[_HELD], self._slices[_OFFERED]
        if modes is None or total is None or self._by_name[_KNOWN] is None or held.failed or offered.failed:
            return Units("", FAILED_AMOUNT, FAILED_AMOUNT, None), None
        if _complete(modes, total) is None:  # any of them may be of a sharing system
            return Units("", Amount(missing=total), Amount(missing=total), None), None
        own = int(sum(count for mode, count in modes.items() if not is_system(mode)))
        if own == total:
            return self._units(place, total, ""), ()
        resources = {
            part[0] for table in (held, offered, self._listed) for of in table.parts(place) for part in of
        }
        unknown = Amount(missing=own)
        if not resources and (self._count(place, "offers") or 0) < total:
            return Units("", unknown, unknown, None), None
        return Units("", unknown, unknown, None if own else 0.0), tuple(
            self._units(place, total, resource) for resource in sorted(resources)
        )

    def _units(self, place: Place, total: int, resource: str) -> Units:
        """Return what the GPUs hold and offer of a resource, or of all together."""
        unhealthy = self._slices[_UNHEALTHY]
        return Units(
            resource,
            self._of_gpus(_HELD, place, total, "holders", resource),
            self._of_gpus(_OFFERED, place, total, "offers", resource),
            None if unhealthy.failed else _unhealthy(unhealthy.parts(place).of(resource)),
        )

    def _of_gpus(self, name: str, place: Place, total: int, known_by: str, resource: str) -> Amount:
        """Return a sum of slices. A GPU is known by what proves that it has no others than those listed."""
        parts = self._slices[name].parts(place).of(resource)
        listed = self._listed.parts(place).of(resource).counted
        known = min(self._count(place, known_by) or 0, total - max(listed - parts.known, 0), total)
        if parts.sums:
            return closed(parts.total, max(known, 0), total)
        if listed or resource:
            return UNKNOWN_AMOUNT
        # If no GPU has slices or holders, there are none.
        none = (self._count(place, "offers") or 0) >= total
        return closed(0.0, known, total) if none else Amount(missing=total)

    def _rows(self, name: str, place: Place) -> Mapping[str, float] | None:
        """Return the rows of a place by what else they have, the largest first; None if the query failed."""
        table = self._by_name[name]
        return None if table is None else table.get(place, {})

    def _count(self, place: Place, value: str) -> int | None:
        """Return how many GPUs have a known value; None if the query failed."""
        rows = self._rows(_KNOWN, place)
        return None if rows is None else int(rows.get(value, 0))


def _complete(rows: Mapping[str, float] | None, total: int | None) -> tuple[tuple[str, int], ...] | None:
    """Return numbers of GPUs by name; None if they are not those of all GPUs."""
    if rows is None or total is None or sum(rows.values()) < total:
        return None
    return tuple((name, int(count)) for name, count in rows.items())


def _unhealthy(parts: Parts) -> float | None:
    """Return the unhealthy slices that plug-ins report; None if some are not recorded."""
    return None if parts.known < parts.counted else parts.total or 0.0


def _by_place(sums: Sums | None) -> Mapping[tuple[str, ...], dict[str, float]] | None:
    if sums is None:
        return None
    places: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for (*place, name), value in sorted(sums.items(), key=lambda row: -row[1]):
        places[tuple(place)][name] = value
    return places
