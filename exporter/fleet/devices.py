"""The GPUs of some nodes and their holders, as ``inspect`` shows them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from exporter.fleet import slices
from exporter.fleet.amounts import FAILED_AMOUNT, UNKNOWN_AMOUNT, UNKNOWN_SLICES, Amount, Units
from exporter.fleet.cluster_model import Target
from exporter.fleet.queries import (
    DEVICE,
    ROWS,
    SHARES,
    SNAPSHOT,
    TARGET,
    UNHELD,
    Answers,
    by_device,
    of,
    target_of,
)
from exporter.fleet.targets import Scraped, holder_key, holder_of
from exporter.model import Condition, ContainerRow, DeviceKey, Totals
from exporter.model.conditions import TABLE
from exporter.model.states import ACTIVE_SECONDS, Judgement, judge
from exporter.prometheus import Sample

_GPU, _CONTAINER = "gpuslice_gpu_", "gpuslice_container_"
_UP, _INFO, _CONDITIONS = "GPUs", "names of GPUs", "conditions of GPUs"
_FIGURES = {
    "memory": f"{_GPU}memory_total_bytes",
    "memory held": f"{_GPU}memory_entitled_bytes",
    "memory used": f"{_GPU}memory_used_bytes",
    "unattributed compute": f"{_GPU}unattributed_utilization_ratio",
    "holders": f"{_GPU}holders",
}
_SUMS = {"compute held": SHARES["compute_held"], "compute used": SHARES["compute_used"]}
_COUNTS = {**_SUMS, "containers": ROWS, "containers without a slice": UNHELD}
_ROW = {
    "slices": "slices",
    "memory_entitled": "memory_entitled_bytes",
    "memory_used": "memory_used_bytes",
    "compute_entitled": "compute_entitled_ratio",
    "compute_used": "compute_used_ratio",
    "last_active": "last_active_timestamp_seconds",
    "used": "used_gpu_seconds_total",
}
_HOLDERS = "names of holders"
_OF_HOLDER = "{} of holders"
# No counter has the compute before the first poll that saw a container.
_COMPUTED = "holders that computed lately"
_STATE_UNKNOWN = Judgement("unknown", "unknown", None)

_Place: TypeAlias = tuple[Target, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container on a device, and its state."""

    row: ContainerRow
    judged: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, with slices and units as those of a Node."""

    uuid: str
    index: str
    model: str
    sharing: str
    up: bool | None  # None if the exporter does not read it
    conditions: tuple[Condition, ...] | None  # those that it has; None if the query failed
    slices: Units
    units: tuple[Units, ...] | None
    memory_total: Amount
    memory_held: Amount
    memory_used: Amount
    compute_held: Amount
    compute_used: Amount
    holders: tuple[Holder, ...] | None = ()  # () unless requested, None if the query failed


def questions(instances: Collection[str] | None, *, details: bool) -> dict[str, str]:
    """Return the queries for the GPUs of these targets (None: of all), with their holders if ``details``."""
    if instances is not None and not instances:
        return {}
    among = "" if instances is None else f" and on ({TARGET}) {of(SNAPSHOT, 'instance', instances)}"
    queries = {
        _UP: f"{_GPU}up{among}",
        _INFO: f"{_GPU}info{among}",
        _CONDITIONS: f"{_GPU}condition == 1{among}",
        **slices.questions(DEVICE, among),
    }
    for name, rows in (_FIGURES | _SUMS).items():
        queries[f"sum of {name}"] = by_device("sum", rows + among)
    for name, rows in _COUNTS.items():
        queries[f"count of {name}"] = by_device("count", rows + among)
    if details:
        queries[_HOLDERS] = f"{ROWS}{among}"
        for name, family in _ROW.items():
            queries[_OF_HOLDER.format(name)] = f"{_CONTAINER}{family}{among}"
        queries[_COMPUTED] = (
            f"max_over_time({_CONTAINER}compute_used_ratio[{ACTIVE_SECONDS:.0f}s]) > 0{among}"
        )
    return queries


def read_gpus(answers: Answers, node: Scraped, at: float, idle_after: float) -> tuple[Gpu, ...] | None:
    """Return the GPUs of a node by index; ``at`` is the Unix time of the answers.

    None if the list of GPUs could not be queried.
    """
    return None if _INFO in answers.problems else tuple(_gpus(answers, node, at, idle_after))


def _gpus(answers: Answers, node: Scraped, at: float, idle_after: float) -> Iterator[Gpu]:
    figures = _Figures(answers)
    up = {_place(sample): sample.value == 1 for sample in answers.samples(_UP)}
    raised = _conditions(answers)
    holders = _holders(answers, node, at, idle_after)
    mine = [sample for sample in answers.samples(_INFO) if target_of(sample) == node.target]
    for sample in sorted(mine, key=_index):
        place = _place(sample)
        of_gpu = None if holders is None else tuple(holders.get(place[1], ()))
        gpu = _gpu(sample, up.get(place), figures, place, of_gpu)
        yield replace(gpu, conditions=None if raised is None else tuple(raised.get(place, ())))


def _conditions(answers: Answers) -> Mapping[_Place, list[Condition]] | None:
    """Return the conditions that GPUs have, in the order of the table; None if the query failed."""
    if _CONDITIONS in answers.problems:
        return None
    found = {(_place(sample), sample.labels.get("condition", "")) for sample in answers.samples(_CONDITIONS)}
    return {place: [name for name in TABLE if (place, name) in found] for place, _ in found}


def _gpu(
    info: Sample, up: bool | None, figures: "_Figures", place: _Place, holders: tuple[Holder, ...] | None
) -> Gpu:
    rows, unheld = (figures.count(name, place) for name in ("containers", "containers without a slice"))
    held = None if rows is None or unheld is None else rows - unheld
    holders_known = figures.single("holders", place).known > 0
    unattributed = figures.single("unattributed compute", place)
    return Gpu(
        uuid=place[1],
        index=info.labels.get("gpu", ""),
        model=info.labels.get("model", ""),
        sharing=info.labels.get("sharing", ""),
        up=up,
        conditions=(),
        slices=figures.slices(place),
        units=figures.units(place),
        memory_total=figures.single("memory", place),
        memory_held=figures.single("memory held", place),
        memory_used=figures.single("memory used", place),
        compute_held=figures.several("compute held", place, held) if holders_known else UNKNOWN_AMOUNT,
        compute_used=figures.several("compute used", place, rows) + unattributed,
        holders=holders,
    )


class _Figures:
    """Values of GPUs, by target and uuid."""

    def __init__(self, answers: Answers) -> None:
        names = [f"sum of {name}" for name in (_FIGURES | _SUMS)] + [f"count of {name}" for name in _COUNTS]
        self._slices = slices.SliceTables(answers, _place)
        self._tables: Mapping[str, Mapping[_Place, float]] = {
            name: {_place(sample): sample.value for sample in answers.samples(name)} for name in names
        }
        self._failed = answers.problems

    def count(self, name: str, place: _Place) -> int | None:
        """Return the number of rows; None if the query failed."""
        asked = f"count of {name}"
        return None if asked in self._failed else int(self._tables[asked].get(place, 0))

    def slices(self, place: _Place) -> Units:
        """Return its slices; unknown if none are reported."""
        units = self._slices.slices(place, 0)
        return UNKNOWN_SLICES if units.held == units.offered == Amount() else units

    def units(self, place: _Place) -> tuple[Units, ...] | None:
        """Return its units by resource."""
        return self._slices.units(place, 0)

    def single(self, name: str, place: _Place) -> Amount:
        """Return a single value, which may be missing."""
        asked = f"sum of {name}"
        if asked in self._failed:
            return FAILED_AMOUNT
        value = self._tables[asked].get(place)
        return UNKNOWN_AMOUNT if value is None else Amount(value, 1)

    def several(self, name: str, place: _Place, expected: int | None) -> Amount:
        """Return a sum over ``expected`` rows, some of which may be missing."""
        known = self.count(name, place)
        if known is None or expected is None or f"sum of {name}" in self._failed:
            return FAILED_AMOUNT
        return Amount(self._tables[f"sum of {name}"].get(place, 0.0), known, max(expected - known, 0))


def _holders(
    answers: Answers, node: Scraped, at: float, idle_after: float
) -> Mapping[str, list[Holder]] | None:
    if _HOLDERS in answers.problems:
        return None
    tables = {
        name: {holder_key(sample): sample.value for sample in answers.samples(_OF_HOLDER.format(name))}
        for name in _ROW
    }
    # The state of a holder may depend on any of these.
    needed = (_COMPUTED, *(_OF_HOLDER.format(name) for name in _ROW))
    refused = any(name in answers.problems for name in needed)
    computed = {holder_key(sample) for sample in answers.samples(_COMPUTED)}
    by_gpu: dict[str, list[Holder]] = defaultdict(list)
    for sample in answers.samples(_HOLDERS):
        if target_of(sample) != node.target:
            continue
        key = holder_key(sample)
        values = {name: table.get(key) for name, table in tables.items()}
        row = _row(sample, values, seen_computing=key in computed or bool(values["used"]))
        judged = _STATE_UNKNOWN if refused else judge(row, at, idle_after)
        by_gpu[row.device.uuid].append(Holder(row=row, judged=judged))
    return by_gpu


def _row(sample: Sample, values: Mapping[str, float | None], *, seen_computing: bool) -> ContainerRow:
    labels, last_active = sample.labels, values["last_active"]
    return ContainerRow(
        holder=holder_of(sample),
        device=DeviceKey(_uuid(sample), labels.get("mig_uuid", "")),
        resource=labels.get("resource", ""),
        sharing=labels.get("sharing", ""),
        isolation=labels.get("isolation", ""),
        slices=_whole(values["slices"]),
        memory_entitled=_whole(values["memory_entitled"]),
        memory_used=_whole(values["memory_used"]),
        compute_entitled=values["compute_entitled"],
        compute_used=values["compute_used"],
        totals=Totals(first_seen=last_active or 0.0, last_active=last_active, seen_computing=seen_computing),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _place(sample: Sample) -> _Place:
    return target_of(sample), _uuid(sample)


def _uuid(sample: Sample) -> str:
    return sample.labels.get("uuid", "")


def _index(sample: Sample) -> tuple[float, str]:
    index = sample.labels.get("gpu", "")
    return (float(index) if index.isdecimal() else float("inf"), _uuid(sample))
