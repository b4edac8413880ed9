"""Memory, compute and GPU-hours held, used and unused in each namespace."""

from collections import defaultdict
from collections.abc import Sequence

from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share, total_amount, total_share
from exporter.fleet.model import Namespace, Node
from exporter.fleet.queries import Answers, Place
from exporter.fleet.sums import HolderSums, Quantity, holder_questions

_HOURS = {
    "held": "namespace:gpuslice_held_gpu_seconds:increase1h",
    "used": "namespace:gpuslice_used_gpu_seconds:increase1h",
    "measured": "namespace:gpuslice_measured_gpu_seconds:increase1h",
}
_UNRECORDED = "hours without records"
# Rules may be younger than the nodes and containers that they record.
_NODES_UNRECORDED = "group(gpuslice_node_info) unless group(node:gpuslice_exporters:count)"
_HOLDERS_UNRECORDED = f"group(namespace:gpuslice_containers:count) unless group({_HOURS['held']})"
_NAMES = "names of namespaces"
_SECONDS = 3600.0
# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999


def namespace_questions(window: float) -> dict[str, str]:
    """Return the queries for the sums of each namespace, and its GPU-hours over ``window`` seconds."""
    hours = f"[{window:.0f}s:1h]"
    spent = {
        f"GPU-hours {what}": f"sum by (cluster, namespace) (sum_over_time({record}{hours}))"
        for what, record in _HOURS.items()
    }
    unrecorded = f"count_over_time(({_NODES_UNRECORDED} or ({_HOLDERS_UNRECORDED})){hours})"
    names = "group by (namespace) (kube_namespace_created or kube_namespace_status_phase)"
    return holder_questions("namespace") | spent | {_UNRECORDED: unrecorded, _NAMES: names}


def read_names(answers: Answers) -> frozenset[str] | None:
    """Return the names of all namespaces, with holders or without; None if the query failed.

    Without kube-state-metrics there are none.
    """
    if _NAMES in answers.problems:
        return None
    return frozenset(sample.text("namespace") for sample in answers.samples(_NAMES))


def read_namespaces(answers: Answers, nodes: Sequence[Node]) -> tuple[tuple[Namespace, ...] | None, bool]:
    """Return the namespaces (None: a query failed), and whether there are no others that hold GPUs.

    There are none if these have all containers of all nodes. A node whose containers are not all known may
    have some of any namespace, which then has no complete sum.
    """
    sums, hours = HolderSums(answers, "namespace"), _Hours(answers)
    if sums.failed:
        return None, False
    elsewhere = Amount(missing=sum(bool(node.containers.missing) for node in nodes))
    by_name: dict[str, list[Place]] = defaultdict(list)
    for place in sums.places:
        by_name[place[-1]].append(place)

    def share(places: Sequence[Place], quantity: Quantity) -> Share:
        shares = [sums.share(place, quantity) for place in places]
        return total_share([*shares, Share(elsewhere, elsewhere, elsewhere)])

    def namespace(name: str, places: Sequence[Place]) -> Namespace:
        holders = total_amount([*map(sums.holders, places), elsewhere])
        return Namespace(
            name=name,
            holders=None if holders.value is None else int(holders.value),
            all_holders=not holders.missing,
            memory=share(places, "bytes"),
            compute=share(places, "gpus"),
            hours=hours.of(name),
        )

    counted = sum(sums.containers(place) or 0 for place in sums.places)
    all_counted = counted >= total_amount(node.containers for node in nodes).total
    namespaces = tuple(namespace(name, places) for name, places in sorted(by_name.items()))
    return namespaces, all_counted and not elsewhere.missing


class _Hours:
    """The GPU-hours of namespaces."""

    def __init__(self, answers: Answers) -> None:
        self._held, self._used, self._measured = (
            answers.sums(f"GPU-hours {what}", "cluster", "namespace") for what in _HOURS
        )
        unrecorded = answers.sums(_UNRECORDED)
        late = Amount(missing=int(unrecorded is None or any(unrecorded.values())))
        self._unrecorded = Share(late, late, late)

    def of(self, name: str) -> Share:
        """Return those of a namespace, of all clusters."""
        sums = (self._held, self._used, self._measured)
        places = {place for spent in sums for place in spent or () if place[-1] == name}
        return total_share([*map(self._at, places or [("", name)]), self._unrecorded])

    def _at(self, place: Place) -> Share:
        if self._held is None:
            return Share(FAILED_AMOUNT, FAILED_AMOUNT, FAILED_AMOUNT)
        held = self._held.get(place)
        if held is None:
            return Share()
        held_hours = Amount(held / _SECONDS, 1)
        if self._used is None or self._measured is None:
            return Share(held_hours, FAILED_AMOUNT, FAILED_AMOUNT)
        used, measured = self._used.get(place), self._measured.get(place)
        if used is None or measured is None:
            return Share(held_hours)
        missing = int(measured < held * _ALIKE)
        unused = max(measured - used, 0.0)
        return Share(held_hours, Amount(used / _SECONDS, 1, missing), Amount(unused / _SECONDS, 1, missing))
