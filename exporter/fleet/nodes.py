"""Slices, memory and compute held and used on each node."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from exporter.fleet import queries, slices
from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share
from exporter.fleet.cluster_model import Node, Target
from exporter.fleet.queries import COUNTED, SHARES, Answers, Figures, Narrow, by_target, target_of
from exporter.fleet.targets import Scraped, Targets

_GPU = "gpuslice_gpu_"
_MODELS = "models of GPUs"
_UNSEEN = "GPUs without reported slices"


def questions(narrow: Narrow) -> dict[str, str]:
    """Return the queries for the sums of each target."""
    return _questions(narrow) | slices.questions(queries.TARGET)


def _questions(narrow: Narrow) -> dict[str, str]:
    own = narrow.own
    sums = {
        "gpus": "gpuslice_node_gpus",
        "memory of GPUs": f"{_GPU}memory_total_bytes",
        "memory used": f"{_GPU}memory_used_bytes",
        "memory held": own(f"{_GPU}memory_entitled_bytes"),
        "memory wasted": own(SHARES["memory_wasted"]),
        "compute held": own(SHARES["compute_held"]),
        "compute used": own(SHARES["compute_used"]),
        "compute wasted": own(SHARES["compute_wasted"]),
        "unattributed compute": f"{_GPU}unattributed_utilization_ratio",
    }
    counts = sums | {
        "GPUs that are read": f"{_GPU}up",
        "GPUs with known holders": own(f"{_GPU}holders"),
        _UNSEEN: slices.GPUS_WITHOUT_SLICES,
        "memory wasted": own(COUNTED["memory_wasted"]),
        "compute wasted": own(COUNTED["compute_wasted"]),
        "containers": own(queries.ROWS),
        "containers without a slice": own(queries.UNHELD),
    }
    return {
        **{f"sum of {name}": by_target("sum", rows) for name, rows in sums.items()},
        **{f"count of {name}": by_target("count", rows) for name, rows in counts.items()},
        _MODELS: "count by (cluster, job, instance, model, sharing) (gpuslice_gpu_info)",
        "released drivers": by_target("sum", "gpuslice_driver_released"),
    }


def read_nodes(answers: Answers, targets: Targets) -> Iterator[Node]:
    """Return each node; one that does not answer has no values."""
    figures = {name: answers.figures(name) for name in _questions(Narrow()) if name != _MODELS}
    tables = slices.SliceTables(answers, target_of)
    identities = None if _MODELS in answers.problems else _identities(answers)
    for scraped in targets.nodes:
        if scraped.silent:
            yield Node(key=scraped.key, target=scraped.target, age=scraped.age, silent=scraped.silent)
        else:
            yield _node(scraped, _Reading(figures, scraped.target), tables, identities)


_Identities: TypeAlias = tuple[Mapping[Target, dict[str, int]], Mapping[Target, dict[str, None]]]


def _identities(answers: Answers) -> _Identities:
    models: dict[Target, dict[str, int]] = defaultdict(dict)
    sharing: dict[Target, dict[str, None]] = defaultdict(dict)
    for sample in sorted(answers.samples(_MODELS), key=lambda sample: -sample.value):
        target = target_of(sample)
        model, mode = sample.labels.get("model", ""), sample.labels.get("sharing", "")
        models[target][model] = models[target].get(model, 0) + int(sample.value)
        sharing[target][mode] = None
    return models, sharing


class _Reading:
    """Values of one target."""

    def __init__(self, figures: Mapping[str, Figures | None], target: Target) -> None:
        self._figures = figures
        self._target = target

    def count(self, name: str) -> int | None:
        """Return the number of rows; None if the query failed."""
        counts = self._figures[f"count of {name}"]
        return None if counts is None else int(counts.get(self._target, 0))

    def amount(self, name: str, expected: int | None) -> Amount:
        """Return a sum over ``expected`` rows, some of which may be missing; unknown if that is None."""
        sums, known = self._figures[f"sum of {name}"], self.count(name)
        if sums is None or known is None or expected is None:
            return FAILED_AMOUNT
        return Amount(sums.get(self._target, 0.0), known, max(expected - known, 0))

    def complete(self, name: str) -> Amount:
        """Return a sum that is either complete or missing."""
        return self.amount(name, max(self.count(name) or 0, 1))

    def is_set(self, name: str) -> bool | None:
        """Return whether a value exists and is not 0; None if the query failed."""
        values = self._figures[name]
        return None if values is None else bool(values.get(self._target))


def _node(
    scraped: Scraped, reading: _Reading, tables: slices.SliceTables, identities: _Identities | None
) -> Node:
    gpus = reading.complete("gpus")
    read = reading.count("GPUs that are read")
    # GPUs that the driver counts but that have no series are unknown too.
    total = None if read is None or gpus.value is None else max(read, int(gpus.value))
    unseen = _less(total, reading.count("GPUs with known holders"))
    without_slices = _plus(_less(total, read), reading.count(_UNSEEN))
    # If a query failed, slices may be missing.
    unknown = 1 if without_slices is None else without_slices
    rows = reading.count("containers")
    held = _plus(_less(rows, reading.count("containers without a slice")), unseen)
    return Node(
        key=scraped.key,
        target=scraped.target,
        age=scraped.age,
        gpus=gpus,
        models=None if identities is None else tuple(identities[0][scraped.target].items()),
        sharing=None if identities is None else tuple(identities[1][scraped.target]),
        slices=tables.slices(scraped.target, unknown),
        units=tables.units(scraped.target, unknown),
        memory_total=reading.amount("memory of GPUs", total),
        memory=Share(
            held=reading.amount("memory held", total),
            used=reading.amount("memory used", total),
            wasted=reading.amount("memory wasted", held),
        ),
        compute=Share(
            held=reading.amount("compute held", held),
            used=reading.amount("compute used", rows) + reading.amount("unattributed compute", total),
            wasted=reading.amount("compute wasted", held),
        ),
        released=reading.is_set("released drivers"),
    )


def _plus(count: int | None, other: int | None) -> int | None:
    return None if count is None or other is None else count + other


def _less(count: int | None, other: int | None) -> int | None:
    return None if count is None or other is None else max(count - other, 0)
