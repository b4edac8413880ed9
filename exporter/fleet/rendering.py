"""The cluster as JSON data, and as text for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from exporter.fleet import IDLE, NAMESPACES, Fleet, IdleHolder, Namespace, Node, SickGpu, in_order
from exporter.fleet.amounts import (
    Amount,
    Share,
    Units,
    held_words,
    named,
    shown_units,
    size_of,
    slices_json,
    total_amount,
    total_share,
    total_unhealthy,
    total_units,
    whole,
    words,
)
from exporter.wording import UNKNOWN, aligned, decimal, duration, gibibytes, plural, printable

# The maximum number of rows of each list in a terminal.
_LINES = 20


UNRECORDED = (
    "New nodes and new rules have them after a minute. If they stay away, load all groups of "
    "alerts/rules/gpuslice-recording.yaml"
)
"""What to do if nodes have no records."""


def fleet_json(fleet: Fleet) -> dict[str, Any]:
    """Return the cluster as JSON data. An amount has its value, null if unknown, and its completeness."""
    none_idle = fleet.idle is not None and fleet.idle_holders == Amount(0, 1)
    idle = in_order(fleet.idle or (), IDLE)
    return {
        "timestamp": fleet.at,
        "window_seconds": fleet.window,
        "totals": {
            "nodes": len(fleet.nodes),
            "nodes_not_answering": len(fleet.silent),
            **_sums(fleet.nodes),
        },
        "nodes": [node_json(node) for node in fleet.nodes],
        "namespaces": _listed(map(_namespace, fleet.namespaces or ()), whole=fleet.all_namespaces),
        "all_namespaces": fleet.all_namespaces,
        "idle_holders": {
            **fleet.idle_totals._asdict(),
            "listed": _listed(map(_idle, idle), whole=none_idle),
        },
        "sick_gpus": _listed(map(_sick, fleet.sick), whole=fleet.all_sick),
        "all_sick": fleet.all_sick,
        "problems": [{"question": name, "error": error} for name, error in fleet.problems],
    }


def _listed(rows: Iterable[dict[str, Any]], *, whole: bool) -> list[dict[str, Any]] | None:
    """Return a list; None in place of an empty one that is not known to be all."""
    return list(rows) or ([] if whole else None)


def _sums(nodes: tuple[Node, ...]) -> dict[str, Any]:
    return {
        "gpus": total_amount(node.gpus for node in nodes).as_dict(),
        **slices_json(*total_slices(nodes)),
        "memory_total_bytes": total_amount(node.memory_total for node in nodes).as_dict(),
        "memory_bytes": total_share(node.memory for node in nodes).as_dict(),
        "compute_gpus": total_share(node.compute for node in nodes).as_dict(),
    }


def node_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON data."""
    return {
        "node": node.key.name,
        "cluster": node.key.cluster or None,
        "job": node.target.job,
        "instance": node.target.instance,
        "answers": not node.silent,
        "reason": node.silent or None,
        "data_age_seconds": node.age,
        "models": None if node.models is None else dict(node.models),
        "sharing": None if node.sharing is None else list(node.sharing),
        "driver_released": node.released,
        **_sums((node,)),
    }


def _namespace(row: Namespace) -> dict[str, Any]:
    return {
        "namespace": row.name,
        "holders": row.holders,
        "all_holders": row.all_holders,
        "memory_bytes": row.memory.as_dict(),
        "compute_gpus": row.compute.as_dict(),
        "gpu_hours": row.hours.as_dict(),
    }


def _idle(row: IdleHolder) -> dict[str, Any]:
    return {
        "node": row.node.name,
        "cluster": row.node.cluster or None,
        "namespace": row.holder.namespace,
        "pod": row.holder.pod,
        "container": row.holder.container or None,
        "uuid": row.uuid,
        "mig_uuid": row.mig_uuid or None,
        "gpu": row.gpu or None,
        "resource": row.resource or None,
        "quiet_seconds": row.seconds,
        "memory_held_bytes": row.memory_held,
        "memory_used_bytes": row.memory_used,
        "compute_held_gpus": row.compute_held,
    }


def _sick(gpu: SickGpu) -> dict[str, Any]:
    return {
        "node": gpu.node.name,
        "cluster": gpu.node.cluster or None,
        "uuid": gpu.uuid,
        "gpu": gpu.gpu or None,
        "model": gpu.model or None,
        "severity": gpu.severity,
        "reasons": list(gpu.reasons),
    }


def gpus(value: float) -> str:
    """Return shares of physical GPUs as text."""
    return decimal(value, 2)


def share_words(share: Share, write: Callable[[float], str], unit: str) -> str:
    """Return used / held as text."""
    return f"{share.used.text(write)} / {share.held.text(write)} {unit}"


def total_line(nodes: tuple[Node, ...]) -> str:
    """Return the totals over nodes as one line."""
    silent = sum(bool(node.silent) for node in nodes)
    memory = total_share(node.memory for node in nodes)
    size = size_of(total_amount(node.memory_total for node in nodes), memory.held, memory.used)
    compute = total_share(node.compute for node in nodes)
    return " · ".join(
        (
            plural(len(nodes), "node") + (f" ({silent} not answering)" if silent else ""),
            gpu_count(nodes),
            *(held_words(name, part) for name, part in named(shown_units(*total_slices(nodes)))),
            f"memory {memory.held.text(gibibytes)} GiB held",
            f"{memory.used.text(gibibytes)} GiB used of {size.text(gibibytes)} GiB",
            f"compute {compute.held.text(gpus)} GPUs held, {compute.used.text(gpus)} GPUs used",
        )
    )


def total_slices(nodes: tuple[Node, ...]) -> tuple[Units, tuple[Units, ...] | None]:
    """Return the sum of slices, and the sums of units by resource."""
    slices = Units(
        "",
        total_amount(node.slices.held for node in nodes),
        total_amount(node.slices.offered for node in nodes),
        total_unhealthy(node.slices for node in nodes),
    )
    return slices, total_units(node.units for node in nodes)


def gpu_count(nodes: tuple[Node, ...]) -> str:
    """Return the number of GPUs of all nodes as text."""
    count = total_amount(node.gpus for node in nodes).text(whole)
    return f"{count} GPU" if count == "1" else f"{count} GPUs"


def age_words(node: Node) -> str:
    """Return the age of a node's data as text; older data than ``queries.SEEN`` has no age."""
    return "more than 15 min" if node.age is None else duration(node.age)


def fleet_text(fleet: Fleet) -> str:
    """Return the cluster as text for a terminal: nodes, namespaces, idle holders, unhealthy GPUs, totals."""
    end = [f"Total: {total_line(fleet.nodes)}", *unknown_lines(fleet.nodes, fleet.problems)]
    blocks = (node_table(fleet.nodes), _namespaces(fleet), _idle_lines(fleet), _sick_lines(fleet), end)
    return "\n".join("".join(f"{line}\n" for line in block) for block in map(list, blocks) if block)


def unknown_lines(nodes: Sequence[Node], problems: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what is not known, and why: nodes without records, and failed queries."""
    without = sum(node.unrecorded for node in nodes)
    if without and not problems:
        yield f"! records of {plural(without, 'node')} are missing. {UNRECORDED}."
    for name, error in problems:
        yield f"! not known: {name}: {printable(error)}"


def node_table(nodes: Sequence[Node], width: int | None = None) -> Iterator[str]:
    """Yield the rows of a table of nodes; those wider than ``width`` characters are wrapped."""
    rows = [("NODE", "GPUS", "SLICES HELD", "MEMORY USED / HELD", "COMPUTE USED / HELD", "DATA")]
    for node in nodes:
        name = printable(str(node.key))
        if node.silent:
            dashes = (UNKNOWN,) * 4
            rows.append((name, *dashes, f"not answering for {age_words(node)}: {node.silent}"))
            continue
        rows.append(
            (
                name,
                node.gpus.text(whole),
                words(shown_units(node.slices, node.units)),
                share_words(node.memory, gibibytes, "GiB"),
                share_words(node.compute, gpus, "GPU"),
                f"{age_words(node)} ago",
            )
        )
    return aligned(rows, width)


def _namespaces(fleet: Fleet) -> Iterator[str]:
    if not fleet.namespaces and not fleet.all_namespaces:
        yield "Namespaces that hold GPUs are not known."
        return
    namespaces = fleet.namespaces or ()
    rows = [("NAMESPACE", "HOLDERS", "MEMORY USED / HELD", "UNUSED", "COMPUTE USED / HELD", "UNUSED")]
    rows += [
        (
            printable(row.name),
            row.holder_count.text(whole),
            share_words(row.memory, gibibytes, "GiB"),
            f"{row.memory.wasted.text(gibibytes)} GiB",
            share_words(row.compute, gpus, "GPU"),
            f"{row.compute.wasted.text(gpus)} GPU",
        )
        for row in in_order(namespaces, NAMESPACES)[:_LINES]
    ]
    yield from aligned(rows)
    yield from _more(len(namespaces) - _LINES)
    if not fleet.all_namespaces:
        yield "Other namespaces that hold GPUs are not known."


def _idle_lines(fleet: Fleet) -> Iterator[str]:
    rows = [("IDLE HOLDER", "NODE", "GPU", "HOLDS", "MEMORY USED", "IDLE FOR")]
    rows += [
        (
            printable("/".join(filter(None, row.holder))),
            printable(str(row.node)),
            printable(row.gpu or row.uuid),
            f"{gibibytes(row.memory_held)} GiB, {decimal(row.compute_held, 2)} GPU",
            f"{gibibytes(row.memory_used)} GiB",
            UNKNOWN if row.seconds is None else duration(row.seconds),
        )
        for row in in_order(fleet.idle or (), IDLE)[:_LINES]
    ]
    if fleet.idle:
        yield from aligned(rows)
        yield from _more(int(fleet.idle_holders.total) - len(rows) + 1)
    if fleet.idle_unlisted:
        yield fleet.idle_unlisted


def _sick_lines(fleet: Fleet) -> Iterator[str]:
    for gpu in fleet.sick:
        name = f"{printable(str(gpu.node))} GPU {printable(gpu.gpu or gpu.uuid)}"
        yield f"{'!' if gpu.severity == 'bad' else '-'} {name}: {printable('; '.join(gpu.reasons))}"
    if not fleet.all_sick:
        yield f"{'Other unhealthy' if fleet.sick else 'Unhealthy'} GPUs are not known."


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"and {count} more"
