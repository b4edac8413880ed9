"""What usage is summed by: namespaces, owners, models, nodes, or a label of pods."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from exporter.fleet.owners import owner_questions, owners_above, workload_of
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers
from exporter.fleet.usage import queries
from exporter.fleet.usage.model import VALUES, Group, Kind, Quantities
from exporter.fleet.usage.period import DAY
from exporter.fleet.usage.queries import Piece
from exporter.fleet.usage.servers import ONE_SERVER, Servers
from exporter.metrics.holders import label_names

GROUPS = ("namespace", "owner", "model", "node")
_LABEL = re.compile(r"label:([A-Za-z0-9./_-]+)")
_WHOLE = "usage of all pods"
# Sums of floating-point numbers differ in the last digits.
_ALMOST = 1e-9
# Replica sets are kept for some time after their last pod.
_MOST_MOMENTS = 31
_Kinds: TypeAlias = dict[Kind, dict[str, float]]


def parse_by(text: str) -> str:
    """Return what usage is summed by; raises ValueError."""
    if text not in GROUPS and not _LABEL.fullmatch(text):
        raise ValueError(f"one of {', '.join(GROUPS)}, or label:NAME with a label of pods such as label:team")
    return text


def _label_of(by: str) -> str:
    """Return the name of a label of pods as a label of series, "" if groups are others."""
    label = _LABEL.fullmatch(by)
    return label_names((label[1],))[0] if label else ""


def _labels_of(by: str) -> tuple[str, ...]:
    return {"owner": queries.OWNER, "model": ("model",)}.get(by, ("cluster", by))


def group_questions(by: str, pieces: Sequence[Piece], servers: Servers = ONE_SERVER) -> dict[str, str]:
    """Return the queries for groups, by parts of the period."""
    label, parts, whole = _label_of(by), tuple(enumerate(pieces, 1)), ("model",)
    if not label:
        labels = _labels_of(by)
        questions = {
            f"usage by {by}, part {number}": queries.by_labels(piece, labels, servers)
            for number, piece in parts
        }
        return questions | (owner_questions(_moments(pieces)) if by == "owner" else {})
    return {
        **{
            f"usage by {by}, part {number}": queries.by_pod_label(piece, label, servers)
            for number, piece in parts
        },
        **{f"{_WHOLE}, part {number}": queries.by_labels(piece, whole, servers) for number, piece in parts},
    }


def _moments(pieces: Sequence[Piece]) -> list[float]:
    """Return the ends of pieces, and some times in them: what owned pods then may be gone by now."""
    start, end = pieces[0].start, pieces[-1].end
    step = max((end - start) / _MOST_MOMENTS, DAY)
    moments = [end - number * step for number in range(_MOST_MOMENTS)]
    return [moment for moment in moments if moment > start]


def read_groups(by: str, answers: Answers) -> tuple[Group, ...]:
    """Return the groups, those that held most first, and what is in none last."""
    label = _label_of(by)
    samples = list(_samples(answers, "usage by"))
    rows = _summed(samples, (label,)) if label else _summed(samples, _labels_of(by))
    names = _names(by, rows, owners_above(answers))
    groups: dict[str, _Kinds] = defaultdict(lambda: defaultdict(dict))
    for labels, kinds in rows.items():
        _add(groups[names[labels]], kinds)
    if label:
        whole = _summed(list(_samples(answers, _WHOLE)), ())
        rest = _rest(whole.get((), {}), groups.values())
        if rest:
            groups[""] = rest
    namespaces = {names[row]: row[-1] for row in rows} if by == "namespace" else {}
    made = [
        Group(name=name, kinds=dict(_quantities(kinds)), namespace=namespaces.get(name, ""))
        for name, kinds in groups.items()
    ]
    return tuple(sorted(made, key=lambda group: (not group.name, -(group.total.held or 0.0), group.name)))


def _samples(answers: Answers, start: str) -> Iterator[Sample]:
    for name in answers.names:
        if name.startswith(start):
            yield from answers.samples(name)


def _summed(samples: Sequence[Sample], labels: Sequence[str]) -> dict[tuple[str, ...], _Kinds]:
    """Return the sums of samples by some labels, by kind of device and value."""
    rows: dict[tuple[str, ...], _Kinds] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        values = rows[sample.texts(*labels)][Kind(*sample.texts("model", "profile"))]
        values[sample.text("value")] = values.get(sample.text("value"), 0.0) + sample.value
    return rows


def _add(sums: _Kinds, kinds: Mapping[Kind, Mapping[str, float]]) -> None:
    for kind, values in kinds.items():
        for name, value in values.items():
            sums[kind][name] = sums[kind].get(name, 0.0) + value


def _names(
    by: str, rows: Mapping[tuple[str, ...], object], above: Mapping[tuple[str, ...], tuple[str, str]]
) -> dict[tuple[str, ...], str]:
    """Return the name of each group; that of a cluster is part of it if there are several."""
    labels = _labels_of(by)
    if labels[0] != "cluster" or _label_of(by):
        return {row: row[-1] for row in rows}
    several = len({row[0] for row in rows}) > 1
    names = {}
    for row in rows:
        cluster, name = row[0], row[-1]
        if by == "owner":
            owner = workload_of(above, *row)
            name = f"{row[1]}/{owner[1]} ({owner[0]})" if owner else f"{row[1]} (no known owner)"
        names[row] = f"{cluster}/{name}" if several and cluster and name else name
    return names


def _rest(whole: _Kinds, groups: Iterable[_Kinds]) -> _Kinds:
    """Return what is in none of the groups.

    A pod with devices of several kinds is in its group as one kind; of the others less than nothing is left.
    """
    rest = {kind: dict(values) for kind, values in whole.items()}
    for group in groups:
        for kind, values in group.items():
            for name, value in values.items():
                left = rest.setdefault(kind, {})
                left[name] = left.get(name, 0.0) - value
    return _without_negative(whole, rest)


def _without_negative(whole: _Kinds, rest: _Kinds) -> _Kinds:
    for name in VALUES:
        total = sum(values.get(name, 0.0) for values in whole.values())
        missing = 0.0
        for values in rest.values():
            if name in values and values[name] <= total * _ALMOST:
                missing += values.pop(name)
        for values in sorted(rest.values(), key=lambda values: -values.get(name, 0.0)):
            if name in values and -missing > total * _ALMOST:
                taken = min(values[name], -missing)
                values[name] -= taken
                missing += taken
    return {kind: values for kind, values in rest.items() if values}


def _quantities(kinds: Mapping[Kind, Mapping[str, float]]) -> Iterator[tuple[Kind, Quantities]]:
    for kind, values in sorted(kinds.items(), key=lambda item: (-item[1].get("held", 0.0), item[0])):
        yield kind, Quantities(*(values.get(value) for value in VALUES))
