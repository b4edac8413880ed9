"""Nodes, and containers on them, as CSV for a spreadsheet.

Names of columns are those of the JSON, and for containers those of a node's CSV. An unknown value is an empty
cell, never 0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exporter.fleet.amounts import Amount, whole
from exporter.fleet.gpus import Gpu, Holder
from exporter.fleet.model import Node
from exporter.fleet.targets import some_names
from exporter.fleet.text import silent_words
from exporter.fleet.watch import Inspection
from exporter.formats.json_csv import csv_text
from exporter.wording import printable

_FLAGS = {True: "true", False: "false", None: None}
_PLACE = ("cluster", "node")
_IDENTITY = (*_PLACE, "job", "instance", "answers", "reason", "data_age_seconds", "models", "sharing")
_AMOUNTS = (
    *("gpus", "slices_held", "slices_offered"),
    *("memory_total_bytes", "memory_held_bytes", "memory_used_bytes", "memory_wasted_bytes"),
    *("compute_held_gpus", "compute_used_gpus", "compute_wasted_gpus"),
)
NODE_COLUMNS = (*_IDENTITY, "driver_released", *_AMOUNTS, "units", "lower_bounds")
HOLDER_COLUMNS = (
    *(*_PLACE, "gpu", "uuid", "mig_uuid", "namespace", "pod", "container", "resource", "sharing"),
    *("isolation", "model", "health", "claim", "slices", "memory_entitled_bytes", "memory_used_bytes"),
    *("compute_entitled_ratio", "compute_used_ratio", "other_states", "state", "quiet_seconds"),
)


def nodes_csv(nodes: Iterable[Node]) -> str:
    """Return one line for each node. ``lower_bounds`` names the columns whose sums lack unknown parts."""
    return _table(NODE_COLUMNS, map(_node, nodes))


def holders_csv(inspection: Inspection) -> str:
    """Return one line for each container on a device, of all nodes; what is not known has no line."""
    return _table(
        HOLDER_COLUMNS,
        (
            _holder(node, gpu, holder)
            for node, gpus in inspection.nodes
            for gpu in gpus or ()
            for holder in gpu.holders or ()
        ),
    )


def missing_holders(inspection: Inspection) -> Iterator[str]:
    """Yield what ``holders_csv`` does not have, as sentences."""
    unknown = []
    for node, gpus in inspection.nodes:
        if node.silent:
            yield f"holders on {printable(str(node.key))}: {silent_words(node)}"
        elif gpus is None or not all(gpu.all_holders for gpu in gpus):
            unknown.append(str(node.key))
    if unknown:
        yield f"all holders on {some_names(unknown)}"


def _table(columns: tuple[str, ...], records: Iterable[Mapping[str, Any]]) -> str:
    return csv_text(columns, ([record[name] for name in columns] for record in records))


def _node(node: Node) -> dict[str, Any]:
    amounts, units = _amounts(node), node.units or ()
    bounds = [name for name, amount in amounts.items() if amount.missing and amount.value is not None]
    if any(part.held.missing or part.size.missing for part in units):
        bounds.append("units")
    return {
        "cluster": node.key.cluster or None,
        "node": node.key.name,
        "job": node.target.job,
        "instance": node.target.instance,
        "answers": _FLAGS[not node.silent],
        "reason": node.silent or None,
        "data_age_seconds": node.age,
        "models": None
        if node.models is None
        else [f"{count} {model or 'of an unknown model'}" for model, count in node.models],
        "sharing": None if node.sharing is None else list(node.sharing),
        "driver_released": _FLAGS[node.released],
        **{name: _number(amount) for name, amount in amounts.items()},
        # In ASCII: a spreadsheet may take the file for another encoding than UTF-8.
        "units": [f"{part.resource} {_count(part.held)} of {_count(part.size)}" for part in units],
        "lower_bounds": bounds,
    }


def _number(amount: Amount) -> float | None:
    """Return a value, whole ones without a decimal point as in a node's CSV."""
    value = amount.value
    return int(value) if value is not None and float(value).is_integer() else value


def _count(amount: Amount) -> str:
    return "unknown" if amount.value is None else whole(amount.value)


def _amounts(node: Node) -> dict[str, Amount]:
    memory, compute = node.memory, node.compute
    values = (
        *(node.gpus, node.slices.held, node.slices.size),
        *(node.memory_total, memory.held, memory.used, memory.wasted),
        *(compute.held, compute.used, compute.wasted),
    )
    return dict(zip(_AMOUNTS, values, strict=True))


def _holder(node: Node, gpu: Gpu, holder: Holder) -> dict[str, Any]:
    row, judged = holder.row, holder.judged
    return {
        "cluster": node.key.cluster or None,
        "node": node.key.name,
        "gpu": gpu.index or None,
        "uuid": row.device.uuid,
        "mig_uuid": row.device.mig_uuid or None,
        "namespace": row.holder.namespace,
        "pod": row.holder.pod,
        "container": row.holder.container or None,
        "resource": row.resource or None,
        "sharing": row.sharing or None,
        "isolation": row.isolation or None,
        "model": gpu.model or None,
        "health": row.health or None,
        "claim": [claim._asdict() for claim in row.claims],
        "slices": row.slices,
        "memory_entitled_bytes": row.memory_entitled,
        "memory_used_bytes": row.memory_used,
        "compute_entitled_ratio": row.compute_entitled,
        "compute_used_ratio": row.compute_used,
        "other_states": list(judged.also),
        "state": judged.state,
        "quiet_seconds": judged.quiet_for,
    }
