"""PromQL for usage: sums over the records of full hours and days.

The value of an hour is in the record during the next hour, that of a day during the next day. Each query
has its own time (``@``), and takes the largest of rows that differ in the label of a replica only.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from exporter.fleet.usage.period import DAY, HOUR

Span: TypeAlias = Literal["hours", "days"]

_NODES = {"hours": "node:gpuslice_usage_seconds:increase1h", "days": "node:gpuslice_usage_seconds:increase1d"}
_GPUS = {
    "hours": "gpu:gpuslice_observed_seconds:increase1h",
    "days": "gpu:gpuslice_observed_seconds:increase1d",
}
_HOLDERS = {"hours": "container:gpuslice_usage:increase1h", "days": "pod:gpuslice_usage:increase1d"}
_STEPS = {"hours": HOUR, "days": DAY}
# The first hour of a day still has the record of the day before the last.
_RECORDED = {"hours": "[59m] offset -59m30s", "days": "[22h59m] offset -23h59m30s"}
_SEEN = {"hours": "[2h] offset -1h", "days": "[25h] offset -1h"}

_POD = "cluster, namespace, pod"
HOLDER_LABELS = (
    "cluster",
    "namespace",
    "pod",
    "container",
    "node",
    "gpu",
    "uuid",
    "mig_uuid",
    "model",
    "profile",
)
_ROW = {
    "hours": f"{', '.join(HOLDER_LABELS)}, value",
    "days": f"{_POD}, node, model, profile, value",
}
PRICED = "model, profile, value"
OWNER = ("owner_kind", "owner_name")


class Piece(NamedTuple):
    """A stretch of full hours or days that ends at a Unix time."""

    span: Span
    end: float
    steps: int

    @property
    def start(self) -> float:
        """Unix time of its start."""
        return self.end - self.steps * _STEPS[self.span]


class Groups(NamedTuple):
    """What usage is summed by: labels of the records, or labels of pods from another record."""

    labels: tuple[str, ...]
    record: str = ""
    kept: tuple[str, ...] = ()
    """Labels of rows without such labels of a pod."""


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Return adjacent pieces as one."""
    whole: list[Piece] = []
    for piece in pieces:
        if whole and whole[-1].span == piece.span and whole[-1].end == piece.start:
            whole[-1] = piece._replace(steps=whole[-1].steps + piece.steps)
        else:
            whole.append(piece)
    return whole


def balances(piece: Piece) -> str:
    """Return the query for the balances of all GPUs, and what is held beyond them."""
    rows = _recorded(_NODES[piece.span], piece.span, "cluster, node, model, value, class")
    return _summed(f"sum by (value, class) ({rows})", piece)


def known_gpus(pieces: Sequence[Piece]) -> str:
    """Return the query for the number of GPUs that were observed."""
    seen = " or ".join(
        f"last_over_time({_GPUS[piece.span]}[{_range(piece)}] @ {piece.end:.0f} offset -{_delay(piece.span)})"
        for piece in pieces
    )
    return f"count(group by (cluster, uuid) ({seen}))"


def grouped(piece: Piece, groups: Groups) -> tuple[str, ...]:
    """Return the queries for what is held and used by groups, and for the rest that is in none."""
    span = piece.span
    rows = _recorded(_HOLDERS[span], span, _ROW[span])
    if not groups.record:
        return (_summed(f"sum by ({_listed(groups.labels)}{PRICED}) ({rows})", piece),)
    pods = f"sum by ({_POD}, {PRICED}) ({rows})"
    named = f"group by ({_POD}, {', '.join(groups.labels)}) (last_over_time({groups.record}{_SEEN[span]}))"
    chosen = f"topk by ({_POD}) (1, {named})"
    joined = f"({pods}) * on ({_POD}) group_left ({', '.join(groups.labels)}) ({chosen})"
    return (
        _summed(f"sum by ({_listed((*groups.kept, *groups.labels))}{PRICED}) ({joined})", piece),
        _summed(f"sum by ({_listed(groups.kept)}{PRICED}) ({pods} unless on ({_POD}) {named})", piece),
    )


def of_holders(piece: Piece) -> dict[str, str]:
    """Return the queries for what each holder held and used in some hours, and for the labels of pods."""
    questions = {
        value: _summed(_recorded(f'{_HOLDERS["hours"]}{{value="{value}"}}', "hours", _ROW["hours"]), piece)
        for value in ("held", "used")
    }
    seen = f"[{piece.steps + 1}h] @ {piece.end:.0f} offset -1h"
    return questions | {"labels": f"last_over_time(pod:gpuslice_labels:info1h{seen})"}


def by_owner() -> Groups:
    """Return the groups of owners, as kube-state-metrics reports them."""
    return Groups(OWNER, 'pod:gpuslice_owner:info1h{owner_name!=""}', ("cluster", "namespace"))


def by_label(label: str) -> Groups:
    """Return the groups of a label of pods, by its name as a label of series."""
    return Groups((label,), f'pod:gpuslice_labels:info1h{{{label}!=""}}')


def _recorded(record: str, span: Span, labels: str) -> str:
    return f"max by ({labels}) (last_over_time({record}{_RECORDED[span]}))"


def _summed(rows: str, piece: Piece) -> str:
    # Half a minute less: in some versions of Prometheus the first moment of a range is a step too.
    seconds, step = piece.steps * _STEPS[piece.span] - 30, _STEPS[piece.span]
    return f"sum_over_time(({rows})[{seconds:.0f}s:{step:.0f}s] @ {piece.end:.0f})"


def _range(piece: Piece) -> str:
    early = 60 if piece.span == "hours" else 3660
    return f"{piece.steps * _STEPS[piece.span] - early:.0f}s"


def _delay(span: Span) -> str:
    return f"{_STEPS[span] - 30:.0f}s"


def _listed(labels: Sequence[str]) -> str:
    return "".join(f"{label}, " for label in labels)
