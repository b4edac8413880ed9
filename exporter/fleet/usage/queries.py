"""PromQL for usage: sums over the records of full hours and days.

The value of an hour is in the record during the next hour, that of a day during the next day. Each query
has its own time (``@``), and takes the largest of rows that differ in the label of a replica only. Rows of
different shards add up.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from exporter.fleet.usage.period import DAY, HOUR
from exporter.fleet.usage.servers import ONE_SERVER, Servers

Span: TypeAlias = Literal["hours", "days"]

_BALANCES = {
    "hours": "node:gpuslice_usage_seconds:increase1h",
    "days": "cluster:gpuslice_usage_seconds:increase1d",
}
_GPUS = {
    "hours": "gpu:gpuslice_observed_seconds:increase1h",
    "days": "gpu:gpuslice_observed_seconds:increase1d",
}
_HOLDERS = "container:gpuslice_usage:increase1h"
_STEPS = {"hours": HOUR, "days": DAY}
# The first hour of a day still has the record of the day before the last.
_RECORDED = {"hours": "[59m] offset -59m30s", "days": "[22h59m] offset -23h59m30s"}
_REPLICATED = {"hours": "cluster, node, model, value, class", "days": "cluster, model, value, class"}
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
PRICED = "model, profile, value"
_HOLDER = f"{', '.join(HOLDER_LABELS)}, value"
OWNER = ("cluster", "namespace", "owner_kind", "owner_name")
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Piece(NamedTuple):
    """A stretch of full hours or days that ends at a Unix time."""

    span: Span
    end: float
    steps: int

    @property
    def start(self) -> float:
        """Unix time of its start."""
        return self.end - self.steps * _STEPS[self.span]


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Return adjacent pieces as one."""
    whole: list[Piece] = []
    for piece in pieces:
        if whole and whole[-1].span == piece.span and whole[-1].end == piece.start:
            whole[-1] = piece._replace(steps=whole[-1].steps + piece.steps)
        else:
            whole.append(piece)
    return whole


def balances(piece: Piece, servers: Servers = ONE_SERVER) -> str:
    """Return the query for the balances of all GPUs, and what is held beyond them."""
    rows = _recorded(_BALANCES[piece.span], piece.span, _REPLICATED[piece.span], servers)
    return _summed(f"sum by (value, class) ({rows})", piece)


def known_gpus(pieces: Sequence[Piece]) -> str:
    """Return the query for the number of GPUs that were observed."""
    return f"count(group by (cluster, uuid) ({_observed(pieces)}))"


def servers_of(pieces: Sequence[Piece]) -> str:
    """Return the query for the labels that servers add, by node."""
    return f"count({_observed(pieces)}) without (gpu, uuid, model)"


def _observed(pieces: Sequence[Piece]) -> str:
    return " or ".join(
        f"last_over_time({_GPUS[piece.span]}[{_range(piece)}] @ {piece.end:.0f} offset -{_delay(piece.span)})"
        for piece in pieces
    )


def by_labels(piece: Piece, labels: Sequence[str], servers: Servers = ONE_SERVER) -> str:
    """Return the query for what is held and used by cluster, namespace, owner, node or model."""
    level = "namespace"
    if "node" in labels:
        level = "node"
    elif labels == OWNER or piece.span == "hours":
        level = "owner"
    of = {"owner": ", ".join(OWNER)}.get(level, f"cluster, {level}")
    record = f"{level}:gpuslice_usage:increase1{piece.span[0]}"
    rows = _recorded(record, piece.span, f"{of}, {PRICED}", servers)
    return _summed(f"sum by ({', '.join((*labels, PRICED))}) ({rows})", piece)


def by_pod_label(piece: Piece, label: str, servers: Servers = ONE_SERVER) -> str:
    """Return the query for what is held and used by the pods with a label, by its name in Prometheus."""
    record = f'labels:gpuslice_usage:increase1{piece.span[0]}{{{label}!=""}}'
    # Rows have labels of any name.
    rows = f"max without ({_listed(servers.replicas)}) (last_over_time({record}{_RECORDED[piece.span]}))"
    return _summed(f"sum by ({label}, {PRICED}) ({rows})", piece)


def of_holders(piece: Piece, values: Sequence[str] = ("held",)) -> dict[str, str]:
    """Return the queries for these values of each holder in some hours, and for the labels of pods."""
    questions = {
        value: _summed(_recorded(f'{_HOLDERS}{{value="{value}"}}', "hours", _HOLDER), piece)
        for value in values
    }
    seen = f"[{piece.steps + 1}h] @ {piece.end:.0f} offset -1h"
    return questions | {"labels": f"last_over_time(pod:gpuslice_labels:info1h{seen})"}


def _recorded(record: str, span: Span, labels: str, servers: Servers = ONE_SERVER) -> str:
    named = ", ".join(filter(None, (labels, _listed(servers.shards))))
    return f"max by ({named}) (last_over_time({record}{_RECORDED[span]}))"


def _listed(names: Sequence[str]) -> str:
    """Return names of labels for a query; Prometheus 3 allows any text as a name, in quotes."""
    return ", ".join(name if _PLAIN.fullmatch(name) else json.dumps(name) for name in names)


def _summed(rows: str, piece: Piece) -> str:
    # Half a minute less: in some versions of Prometheus the first moment of a range is a step too.
    seconds, step = piece.steps * _STEPS[piece.span] - 30, _STEPS[piece.span]
    return f"sum_over_time(({rows})[{seconds:.0f}s:{step:.0f}s] @ {piece.end:.0f})"


def _range(piece: Piece) -> str:
    early = 60 if piece.span == "hours" else 3660
    return f"{piece.steps * _STEPS[piece.span] - early:.0f}s"


def _delay(span: Span) -> str:
    return f"{_STEPS[span] - 30:.0f}s"
