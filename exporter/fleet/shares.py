"""Memory, compute and GPU-hours held, used and unused, of a node or a namespace, from recorded sums."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from exporter.fleet import Namespace, Node
from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share, closed, total_amount, total_share
from exporter.fleet.queries import Answers, Sums

Place: TypeAlias = tuple[str, ...]
Level: TypeAlias = Literal["node", "namespace"]
Quantity: TypeAlias = Literal["gpus", "bytes"]

_WHATS = ("held", "used", "unused")
_SHARES = tuple(f"{what}_{quantity}" for quantity in ("gpus", "bytes") for what in _WHATS)
_SUMS: dict[Level, tuple[str, ...]] = {
    "node": ("holders", *_SHARES, "idle_holders", "idle_gpus"),
    "namespace": ("holders", *_SHARES),
}
_COUNTS, _ALL = "known_containers", "containers"
_LABELS: dict[Level, tuple[str, ...]] = {"node": ("cluster", "node"), "namespace": ("cluster", "namespace")}
# A node has a record of each sum, and of its count, for each model.
_PART = "model"


def questions(level: Level) -> dict[str, str]:
    """Return the queries for the sums of a level, how many containers are in each, and how many there are."""
    sums = {_named(level, name): f"{level}:gpuslice_{name}:sum" for name in _SUMS[level]}
    return sums | {_named(level, name): f"{level}:gpuslice_{name}:count" for name in (_COUNTS, _ALL)}


class Parts(NamedTuple):
    """Recorded sums of a place, with how many parts are in each, by what else their rows have."""

    sums: Mapping[tuple[str, ...], float]
    counts: Mapping[tuple[str, ...], float]

    def of(self, name: str) -> "Parts":
        """Return those whose first label is this; all if it is empty."""
        sums, counts = (
            {part: value for part, value in each.items() if name in ("", part[0])} for each in self
        )
        return Parts(sums, counts)

    @property
    def total(self) -> float | None:
        """The sum, None if nothing is recorded."""
        return sum(self.sums.values()) if self.sums else None

    @property
    def known(self) -> int:
        """The number of parts that are in the sum: without a record of the sum they are not."""
        return int(sum(count for part, count in self.counts.items() if part in self.sums))

    @property
    def counted(self) -> int:
        """The number of known parts, also of those without a record of their sum."""
        return int(sum(self.counts.values()))


class Table:
    """Recorded sums and counts by place, which is a cluster with a node or a namespace."""

    def __init__(self, sums: Sums | None, counts: Sums | None) -> None:
        self.failed = sums is None or counts is None
        self._sums, self._counts = _by_place(sums), _by_place(counts)

    def parts(self, place: Place) -> Parts:
        """Return those of a place."""
        return Parts(self._sums.get(place, {}), self._counts.get(place, {}))

    def amount(self, place: Place, expected: int | None, *, failed: bool = False) -> Amount:
        """Return the sum of ``expected`` parts (None is unknown; ``failed`` if their query has failed)."""
        if self.failed or failed:
            return FAILED_AMOUNT
        parts = self.parts(place)
        return closed(parts.total, parts.known, expected)


class Shares:
    """The recorded sums of a level, by cluster and node or namespace."""

    def __init__(self, answers: Answers, level: Level) -> None:
        labels = _LABELS[level]
        counts = answers.sums(_named(level, _COUNTS), "value", *labels, _PART)
        self._tables = {
            name: Table(answers.sums(_named(level, name), *labels, _PART), of_value(counts, name))
            for name in _SUMS[level]
        }
        self._all = answers.sums(_named(level, _ALL), *labels)
        self.failed = self._all is None or counts is None
        """Whether it is unknown how many containers there are, or how many of them are in the sums."""
        self.places: list[Place] = sorted({*(self._all or ()), *(key[1:-1] for key in counts or ())})
        """The places with containers, and those that are known to have none."""

    def containers(self, place: Place) -> int | None:
        """Return the number of containers that are there; None if it is not known."""
        count = None if self._all is None else self._all.get(place)
        return None if count is None else int(count)

    def holders(self, place: Place) -> Amount:
        """Return how many containers hold; those that may are missing."""
        return self._tables["holders"].amount(place, self.containers(place), failed=self.failed)

    def share(self, place: Place, quantity: Quantity, unseen: int | None = 0) -> Share:
        """Return the share of a quantity; ``unseen`` more containers are unknown (None: a query failed)."""
        return Share(
            self._of_holders(f"held_{quantity}", place, unseen),
            self._amount(f"used_{quantity}", place, self.containers(place), unseen),
            self._of_holders(f"unused_{quantity}", place, unseen),
        )

    def idle(self, place: Place, unseen: int | None) -> tuple[Amount, Amount]:
        """Return the number of idle holders, and the compute that they hold."""
        return (
            self._of_holders("idle_holders", place, unseen),
            self._of_holders("idle_gpus", place, unseen),
        )

    def _of_holders(self, name: str, place: Place, unseen: int | None) -> Amount:
        """Return a sum over the containers that hold, and those that may."""
        containers, table = self.containers(place), self._tables["holders"]
        parts = table.parts(place)
        unsure = None if containers is None else max(containers - parts.known, 0)
        holders = None if unsure is None else int(parts.total or 0) + unsure
        return self._amount(name, place, holders, None if table.failed else unseen)

    def _amount(self, name: str, place: Place, expected: int | None, unseen: int | None) -> Amount:
        every = None if expected is None else expected + (unseen or 0)
        return self._tables[name].amount(place, every, failed=self.failed or unseen is None)


def of_value(counts: Sums | None, value: str) -> Sums | None:
    """Return the counts of one ``value``, which is the first label of their keys."""
    return None if counts is None else {key[1:]: count for key, count in counts.items() if key[0] == value}


def _by_place(sums: Sums | None) -> Mapping[Place, Mapping[tuple[str, ...], float]]:
    places: dict[Place, dict[tuple[str, ...], float]] = defaultdict(dict)
    for (cluster, name, *part), value in (sums or {}).items():
        places[cluster, name][tuple(part)] = value
    return places


def _named(level: Level, name: str) -> str:
    return f"{name.replace('_', ' ')} of {level}s"


_HOURS = {
    "held": "namespace:gpuslice_held_gpu_seconds:increase1h",
    "used": "namespace:gpuslice_used_gpu_seconds:increase1h",
    "measured": "namespace:gpuslice_measured_gpu_seconds:increase1h",
}
_SPENT, _UNRECORDED = "GPU-hours {}", "hours without records"
_NODES_UNRECORDED = "group(gpuslice_node_info) unless group(node:gpuslice_exporters:count)"
_HOLDERS_UNRECORDED = f"group(namespace:gpuslice_containers:count) unless group({_HOURS['held']})"
_SECONDS = 3600.0
# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999


def namespace_questions(window: float) -> dict[str, str]:
    """Return the queries for the sums of each namespace, and its GPU-hours over ``window`` seconds."""
    hours = f"[{window:.0f}s:1h]"
    return (
        questions("namespace")
        | {
            _SPENT.format(what): f"sum by (cluster, namespace) (sum_over_time({record}{hours}))"
            for what, record in _HOURS.items()
        }
        # Rules may be younger than what they record.
        | {_UNRECORDED: f"count_over_time(({_NODES_UNRECORDED} or ({_HOLDERS_UNRECORDED})){hours})"}
    )


class Namespaces(NamedTuple):
    """The namespaces with containers on GPUs."""

    rows: tuple[Namespace, ...] | None  # None if they could not be queried
    all_known: bool  # whether there are no others


def read_namespaces(answers: Answers, nodes: Sequence[Node]) -> Namespaces:
    """Return each namespace; all are known if they have all containers of all nodes.

    A node whose containers are not all known may have some of any namespace, which then has no complete sum.
    """
    recorded, hours = Shares(answers, "namespace"), _Hours(answers)
    if recorded.failed:
        return Namespaces(None, all_known=False)
    elsewhere = Amount(missing=sum(bool(node.containers.missing) for node in nodes))
    by_name: dict[str, list[Place]] = defaultdict(list)
    for place in recorded.places:
        by_name[place[-1]].append(place)
    counted = sum(recorded.containers(place) or 0 for place in recorded.places)
    return Namespaces(
        tuple(
            _namespace(name, recorded, places, elsewhere, hours.of(name))
            for name, places in sorted(by_name.items())
        ),
        all_known=not elsewhere.missing and counted >= total_amount(node.containers for node in nodes).total,
    )


def _namespace(
    name: str, recorded: Shares, places: Sequence[Place], elsewhere: Amount, hours: Share
) -> Namespace:
    def share(quantity: Quantity) -> Share:
        return total_share((*(recorded.share(place, quantity) for place in places), Share(*(elsewhere,) * 3)))

    holders = total_amount((*map(recorded.holders, places), elsewhere))
    return Namespace(
        name=name,
        holders=None if holders.value is None else int(holders.value),
        all_holders=not holders.missing,
        memory=share("bytes"),
        compute=share("gpus"),
        hours=hours,
    )


class _Hours:
    """The GPU-hours of namespaces."""

    def __init__(self, answers: Answers) -> None:
        self._spent = {what: answers.sums(_SPENT.format(what), "cluster", "namespace") for what in _HOURS}
        unrecorded = answers.sums(_UNRECORDED)
        late = unrecorded is None or any(unrecorded.values())
        self._unrecorded = Share(*(Amount(missing=int(late)),) * 3)

    def of(self, name: str) -> Share:
        """Return those of a namespace, of all clusters."""
        places = {place for spent in self._spent.values() for place in spent or () if place[-1] == name}
        known = total_share(map(self._at, places)) if places else self._at(())
        return total_share((known, self._unrecorded))

    def _at(self, place: Place) -> Share:
        of_held, of_used, of_measured = (self._spent[what] for what in ("held", "used", "measured"))
        if of_held is None:
            return Share(FAILED_AMOUNT, FAILED_AMOUNT, FAILED_AMOUNT)
        held = of_held.get(place)
        if held is None:
            return Share()
        whole = Amount(held / _SECONDS, 1)
        if of_used is None or of_measured is None:
            return Share(whole, FAILED_AMOUNT, FAILED_AMOUNT)
        used, measured = of_used.get(place), of_measured.get(place)
        if used is None or measured is None:
            return Share(held=whole)
        missing = int(measured < held * _ALIKE)
        return Share(
            held=whole,
            used=Amount(used / _SECONDS, 1, missing),
            wasted=Amount(max(measured - used, 0.0) / _SECONDS, 1, missing),
        )
