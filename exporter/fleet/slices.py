"""Slices of GPUs held and offered, and units of sharing systems.

Slices of the vendors' own plug-ins are devices, and counted together. The units of a system are percents,
bytes or slots: units of different resources are never added up.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Units
from exporter.fleet.queries import DEVICE, Answers
from exporter.formats.wording import OWN_MODES
from exporter.prometheus import Sample

_OFFERED, _HELD = "gpuslice_gpu_slices", "gpuslice_gpu_slices_allocated"
_UNHEALTHY = "gpuslice_gpu_slices_unhealthy"
_OF_SYSTEMS = f'on ({DEVICE}) gpuslice_gpu_info{{sharing!~"{"|".join(OWN_MODES)}"}}'
_KINDS = {"slices": "unless", "units": "and"}
_BOTH = "held and offered"
_ROWS = {"offered": _OFFERED, "held": _HELD, _BOTH: f"{_HELD} and {_OFFERED}"}
_COUNT, _SUM = "count of {} {}", "sum of {} {}"

GPUS_WITHOUT_SLICES = (
    f"(gpuslice_gpu_up unless on ({DEVICE}) gpuslice_gpu_holders "
    f"unless on ({DEVICE}) {_OFFERED} unless on ({DEVICE}) {_HELD})"
)
"""GPUs without reported slices."""

_Table: TypeAlias = Mapping[Hashable, Mapping[str, float]]


def questions(labels: str, among: str = "") -> dict[str, str]:
    """Return the queries for sums and counts by these labels, ``among`` some targets."""
    queries = {}
    for kind, operator in _KINDS.items():
        by = f"{labels}, resource" if kind == "units" else labels
        for what, rows in _ROWS.items():
            chosen = f"({rows} {operator} {_OF_SYSTEMS}{among})"
            queries[_COUNT.format(kind, what)] = f"count by ({by}) {chosen}"
            if what != _BOTH:
                queries[_SUM.format(kind, what)] = f"sum by ({by}) {chosen}"
        queries[_SUM.format(kind, "unhealthy")] = (
            f"sum by ({by}) ({_UNHEALTHY} {operator} {_OF_SYSTEMS}{among})"
        )
    return queries


class SliceTables:
    """Answers by place: a target, or a GPU of one."""

    def __init__(self, answers: Answers, place_of: Callable[[Sample], Hashable]) -> None:
        self._tables = {name: _table(answers, name, place_of) for name in questions("")}

    def slices(self, place: Hashable, unseen: int) -> Units:
        """Return the slices of a place; those of ``unseen`` further GPUs are unknown."""
        return self._units("slices", place, "", unseen)

    def units(self, place: Hashable, unseen: int) -> tuple[Units, ...] | None:
        """Return each resource of a place; None if the list of resources could not be queried."""
        resources: set[str] = set()
        for what in ("offered", "held"):
            table = self._tables[_COUNT.format("units", what)]
            if table is None:
                return None
            resources.update(table.get(place, ()))
        return tuple(self._units("units", place, resource, unseen) for resource in sorted(resources))

    def _units(self, kind: str, place: Hashable, resource: str, unseen: int) -> Units:
        counts = {what: self._figure(_COUNT, kind, what, place, resource) for what in _ROWS}

        def amount(what: str, other: str) -> Amount:
            value = self._figure(_SUM, kind, what, place, resource)
            known, others, both = counts[what], counts[other], counts[_BOTH]
            if value is None or known is None or others is None or both is None:
                return FAILED_AMOUNT
            # Offered slices may have unknown allocations, and held ones an unknown total.
            return Amount(value, int(known), max(int(others - both), 0) + unseen)

        unhealthy = self._figure(_SUM, kind, "unhealthy", place, resource)
        return Units(resource, amount("held", "offered"), amount("offered", "held"), unhealthy)

    def _figure(self, form: str, kind: str, what: str, place: Hashable, resource: str) -> float | None:
        table = self._tables[form.format(kind, what)]
        return None if table is None else table.get(place, {}).get(resource, 0.0)


def _table(answers: Answers, name: str, place_of: Callable[[Sample], Hashable]) -> _Table | None:
    if name in answers.problems:
        return None
    table: dict[Hashable, dict[str, float]] = defaultdict(dict)
    for sample in answers.samples(name):
        table[place_of(sample)][sample.labels.get("resource", "")] = sample.value
    return table
