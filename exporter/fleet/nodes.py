"""GPUs, slices, memory and compute held and used on each node."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from exporter.fleet.amounts import FAILED_AMOUNT, UNKNOWN_AMOUNT, Amount, Units, closed
from exporter.fleet.model import Node
from exporter.fleet.queries import Answers, Place, Sums, SumsByPlace
from exporter.fleet.sums import HolderSums, RecordedSums, holder_questions
from exporter.wording import is_system

_GPUS, _COUNTED, _MODES = "GPUs", "number of GPUs", "sharing of GPUs"
_KNOWN, _SIZE, _RELEASED = "known values of GPUs", "memory of GPUs", "released drivers"
_CONDITIONS = "unhealthy GPUs"
_OFFERED, _HELD, _UNHEALTHY = "slices offered", "slices held", "unhealthy slices"
QUESTIONS = {
    _GPUS: "node:gpuslice_total_gpus:count",
    _COUNTED: "max by (cluster, node) (gpuslice_node_gpus)",
    _MODES: "node:gpuslice_sharing:count",
    # How many GPUs are in each sum, by the label ``value``.
    _KNOWN: "node:gpuslice_known_gpus:count",
    _SIZE: "node:gpuslice_total_bytes:sum",
    _CONDITIONS: "node:gpuslice_unhealthy_gpus:sum",
    _RELEASED: "max by (cluster, node) (gpuslice_driver_released)",
    _OFFERED: "node:gpuslice_offered_slices:sum",
    _HELD: "node:gpuslice_held_slices:sum",
    _UNHEALTHY: "node:gpuslice_unhealthy_slices:sum",
    **holder_questions("node"),
}


def read_nodes(answers: Answers, nodes: Iterable[Node]) -> Iterator[Node]:
    """Return each node with its values; one that does not answer has none."""
    records = _NodeRecords(answers)
    return (node if node.silent else records.with_values(node) for node in nodes)


class _NodeRecords:
    """The records of nodes, by cluster and node."""

    def __init__(self, answers: Answers) -> None:
        def known(value: str, *labels: str) -> SumsByPlace | None:
            return answers.by_place(_KNOWN, "node", *labels, value=value)

        def recorded(name: str, value: str, *labels: str) -> RecordedSums:
            return RecordedSums(answers.by_place(name, "node", *labels), known(value, *labels))

        self._counted = answers.sums(_COUNTED, "cluster", "node")
        self._released = answers.sums(_RELEASED, "cluster", "node")
        self._models = answers.by_place(_GPUS, "node", "model")
        self._modes = answers.by_place(_MODES, "node", "sharing")
        self._known = answers.by_place(_KNOWN, "node", "value")
        self._memory = recorded(_SIZE, "total_bytes", "model")
        self._conditions = recorded(_CONDITIONS, "conditions", "model")
        self._held = recorded(_HELD, "held_slices", "resource", "model")
        self._offered = recorded(_OFFERED, "offered_slices", "resource", "model")
        self._unhealthy = recorded(_UNHEALTHY, "unhealthy_slices", "resource", "model")
        # GPUs with slices of a resource, whether or not their number is known.
        self._listed = RecordedSums({}, known("slices", "resource", "model"))
        self._holders = HolderSums(answers, "node")

    def with_values(self, node: Node) -> Node:
        """Return a node that answers with its values."""
        place = (node.target.cluster, node.key.name)
        models, modes = _of_place(self._models, place), _of_place(self._modes, place)
        total, gpus = self._gpus(place, models)
        holders_known = self._count(place, "holders")
        unseen = None if total is None or holders_known is None else max(total - holders_known, 0)
        slices, units = self._slices(place, modes, total)
        sharing = _complete(modes, total)
        released = (self._released or {}).get(place)
        return replace(
            node,
            gpus=gpus,
            models=_complete(models, total),
            sharing=None if sharing is None else tuple(mode for mode, _ in sharing),
            unhealthy=self._conditions.amount(place, total, failed=total is None),
            slices=slices,
            units=units,
            containers=self._containers(place, unseen),
            idle_holders=self._holders.of_holders("idle_holders", place, unseen),
            idle_compute=self._holders.of_holders("idle_gpus", place, unseen),
            memory_total=self._memory.amount(place, total, failed=total is None),
            memory=self._holders.share(place, "bytes", unseen),
            compute=self._holders.share(place, "gpus", unseen),
            released=None if released is None else bool(released),
        )

    def _containers(self, place: Place, unseen: int | None) -> Amount:
        """Return the number of containers on GPUs; those of a GPU without known holders are missing."""
        if self._holders.failed or unseen is None:
            return FAILED_AMOUNT
        count = self._holders.containers(place)
        return UNKNOWN_AMOUNT if count is None else Amount(count, max(count, 1), unseen)

    def _gpus(self, place: Place, models: Sums | None) -> tuple[int | None, Amount]:
        """Return how many GPUs have to be reported (None: a query failed), and those that there are.

        GPUs that the driver counts but that have no series are unknown, and so is a node without records.
        """
        if self._counted is None or models is None:
            return None, FAILED_AMOUNT
        read, counted = int(sum(models.values())), self._counted.get(place)
        if counted is not None:
            return max(read, int(counted)), Amount(counted, 1)
        return max(read, 1), Amount(float(read), read, 1) if read else UNKNOWN_AMOUNT

    def _slices(
        self, place: Place, modes: Sums | None, total: int | None
    ) -> tuple[Units, tuple[Units, ...] | None]:
        """Return the slices of the vendors' own plug-ins, and the units of sharing systems by resource.

        Slices are added up, and units are not: they are percents, bytes or slots. Records do not show which
        GPU a resource is of, so of a node with both all are listed by resource, and its slices are unknown.
        """
        if modes is None or total is None or self._known is None or self._held.failed or self._offered.failed:
            return Units("", FAILED_AMOUNT, FAILED_AMOUNT, None), None
        if sum(modes.values()) < total:  # any of the other GPUs may be of a sharing system
            return Units("", Amount(missing=total), Amount(missing=total), None), None
        own = int(sum(count for (mode,), count in modes.items() if not is_system(mode)))
        if own == total:
            return self._units(place, total, ""), ()
        unknown = Amount(missing=own)
        slices = Units("", unknown, unknown, None if own else 0.0)
        resources = {
            part[0]
            for records in (self._held, self._offered, self._listed)
            for sums in records.parts(place)
            for part in sums
        }
        if not resources and (self._count(place, "offers") or 0) < total:
            return slices._replace(unhealthy=None), None
        return slices, tuple(self._units(place, total, resource) for resource in sorted(resources))

    def _units(self, place: Place, total: int, resource: str) -> Units:
        """Return the units of a resource of all GPUs, or of all resources together."""
        unhealthy = self._unhealthy.parts(place).of(resource)
        all_known = not self._unhealthy.failed and unhealthy.known == unhealthy.counted
        return Units(
            resource,
            self._sum(self._held, place, total, "holders", resource),
            self._sum(self._offered, place, total, "offers", resource),
            unhealthy.total or 0.0 if all_known else None,
        )

    def _sum(self, records: RecordedSums, place: Place, total: int, known_by: str, resource: str) -> Amount:
        """Return a sum of slices. A GPU is known by what proves that it has no others than those listed."""
        parts = records.parts(place).of(resource)
        listed = self._listed.parts(place).of(resource).counted
        known = min(self._count(place, known_by) or 0, total - max(listed - parts.known, 0), total)
        if parts.sums:
            return closed(parts.total, max(known, 0), total)
        if listed or resource:
            return UNKNOWN_AMOUNT
        # If no GPU has slices or holders, there are none.
        none = (self._count(place, "offers") or 0) >= total
        return closed(0.0, known, total) if none else Amount(missing=total)

    def _count(self, place: Place, value: str) -> int | None:
        """Return how many GPUs have a known value; None if the query failed."""
        counts = _of_place(self._known, place)
        return None if counts is None else int(counts.get((value,), 0))


def _of_place(places: SumsByPlace | None, place: Place) -> Sums | None:
    """Return the sums of a place; None if the query failed."""
    return None if places is None else places.get(place, {})


def _complete(counts: Sums | None, total: int | None) -> tuple[tuple[str, int], ...] | None:
    """Return numbers of GPUs by name, the largest first; None if they are not those of all GPUs."""
    if counts is None or total is None or sum(counts.values()) < total:
        return None
    by_size = sorted(counts.items(), key=lambda item: -item[1])
    return tuple((name, int(count)) for (name,), count in by_size)
