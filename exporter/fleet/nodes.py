"""GPUs, slices, memory and compute held and used on each node."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from exporter.fleet import Node
from exporter.fleet.amounts import FAILED_AMOUNT, UNKNOWN_AMOUNT, Amount, Units
from exporter.fleet.queries import Answers, Sums
from exporter.fleet.shares import Shares, amount, amount_at, questions
from exporter.formats.wording import is_system

_LABELS = ("cluster", "node")
_GPUS, _COUNTED, _MODES = "GPUs", "number of GPUs", "sharing of GPUs"
_KNOWN, _SIZE, _RELEASED = "known values of GPUs", "memory of GPUs", "released drivers"
_OFFERED, _HELD, _UNHEALTHY = "slices offered", "slices held", "unhealthy slices"
QUESTIONS = {
    _GPUS: "node:gpuslice_total_gpus:count",
    _COUNTED: "max by (cluster, node) (gpuslice_node_gpus)",
    _MODES: "node:gpuslice_sharing:count",
    _KNOWN: "node:gpuslice_known_gpus:count",
    _SIZE: "node:gpuslice_total_bytes:sum",
    _RELEASED: "max by (cluster, node) (gpuslice_driver_released)",
    _OFFERED: "node:gpuslice_offered_slices:sum",
    _HELD: "node:gpuslice_held_slices:sum",
    _UNHEALTHY: "node:gpuslice_unhealthy_slices:sum",
    **questions("node"),
}
"""The queries for the sums of each node."""


def read_nodes(answers: Answers, nodes: Iterable[Node]) -> Iterator[Node]:
    """Return each node with its values; one that does not answer has none."""
    tables = _Tables(answers)
    return (node if node.silent else tables.with_values(node) for node in nodes)


class _Tables:
    """The answers, by cluster and node, and by what else their rows have."""

    def __init__(self, answers: Answers) -> None:
        self._shares = Shares(answers, "node")
        self._single = {name: answers.sums(name, *_LABELS) for name in (_COUNTED, _SIZE, _RELEASED)}
        self._known = answers.sums(_KNOWN, *_LABELS, "value")
        self._by_name = {
            name: _by_place(answers.sums(name, *_LABELS, label))
            for name, label in (
                (_GPUS, "model"),
                (_MODES, "sharing"),
                *((name, "resource") for name in (_OFFERED, _HELD, _UNHEALTHY)),
            )
        }

    def with_values(self, node: Node) -> Node:
        """Return a node that answers with its values."""
        place = (node.target.cluster, node.key.name)
        models, modes = self._rows(_GPUS, place), self._rows(_MODES, place)
        total, gpus = self._gpus(place, models)
        holders_known = self._count(place, "holders")
        unseen = None if total is None or holders_known is None else max(total - holders_known, 0)
        released = self._single[_RELEASED]
        slices, units = self._slices(place, modes, total)
        return replace(
            node,
            gpus=gpus,
            models=None if models is None else tuple((name, int(count)) for name, count in models.items()),
            sharing=None if modes is None else tuple(modes),
            slices=slices,
            units=units,
            memory_total=amount_at(self._single[_SIZE], place, self._count(place, "total_bytes"), total),
            memory=self._shares.share(place, "bytes", unseen),
            compute=self._shares.share(place, "gpus", unseen),
            released=None if released is None else bool(released.get(place)),
        )

    def _gpus(self, place: tuple[str, str], models: Mapping[str, float] | None) -> tuple[int | None, Amount]:
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

    def _slices(
        self, place: tuple[str, str], modes: Mapping[str, float] | None, total: int | None
    ) -> tuple[Units, tuple[Units, ...] | None]:
        """Return the slices of the vendors' own plug-ins, and the units of sharing systems by resource.

        Slices are added up, and units are not: they are percents, bytes or slots. Records do not show which
        GPU a resource is of, so of a node with both all are listed by resource.
        """
        offered, held, unhealthy = (self._rows(name, place) for name in (_OFFERED, _HELD, _UNHEALTHY))
        if modes is None or offered is None or held is None:
            return Units("", FAILED_AMOUNT, FAILED_AMOUNT, None), None
        if total and not (modes and self._rows(_GPUS, place)):  # it has not been recorded yet
            return Units("", Amount(missing=total), Amount(missing=total)), ()
        holding, offering = self._count(place, "holders"), self._count(place, "offered_slices")

        def units(resource: str) -> Units:
            here, all_of = _only(held, resource), _only(offered, resource)
            return Units(
                resource,
                amount(sum(here.values()) if here or holding else None, holding, total),
                amount(sum(all_of.values()) if all_of or offering else None, offering, total),
                None if unhealthy is None else sum(_only(unhealthy, resource).values()),
            )

        if not any(map(is_system, modes)):
            return units(""), ()
        return Units("", Amount(), Amount()), tuple(
            _alone(units(name), name in held, name in offered) for name in sorted({*offered, *held})
        )

    def _rows(self, name: str, place: tuple[str, str]) -> Mapping[str, float] | None:
        """Return the rows of a place by what else they have, the largest first; None if the query failed."""
        table = self._by_name[name]
        return None if table is None else table.get(place, {})

    def _count(self, place: tuple[str, str], value: str) -> int | None:
        return None if self._known is None else int(self._known.get((*place, value), 0))


def _only(rows: Mapping[str, float], resource: str) -> Mapping[str, float]:
    """Return the rows of a resource, or all."""
    return {name: value for name, value in rows.items() if resource in ("", name)}


def _alone(units: Units, held: bool, offered: bool) -> Units:
    """Return units without the amount that no device reports."""
    return units._replace(
        held=units.held if held else UNKNOWN_AMOUNT, offered=units.offered if offered else UNKNOWN_AMOUNT
    )


def _by_place(sums: Sums | None) -> Mapping[tuple[str, ...], dict[str, float]] | None:
    if sums is None:
        return None
    places: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for (*place, name), value in sorted(sums.items(), key=lambda row: -row[1]):
        places[tuple(place)][name] = value
    return places
