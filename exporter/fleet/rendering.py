"""The cluster as JSON data, and as text for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from exporter.fleet import IDLE, NAMESPACES, Fleet, IdleHolder, Namespace, Node, SickGpu, in_order
from exporter.fleet.amounts import (
    Share,
    Units,
    held_words,
    named,
    shown_units,
    slices_json,
    total_amount,
    total_share,
    total_unhealthy,
    total_units,
    whole,
    words,
)
from exporter.formats.wording import UNKNOWN, aligned, decimal, duration, gibibytes, plural, printable

# The maximum number of rows of each list in a terminal.
_LINES = 20


def fleet_json(fleet: Fleet) -> dict[str, Any]:
    """Return the cluster as JSON data. An amount has its value, null if unknown, and its completeness."""
    return {
        "timestamp": fleet.at,
        "window_seconds": fleet.window,
        "totals": {
            "nodes": len(fleet.nodes),
            "nodes_not_answering": len(fleet.silent),
            **_sums(fleet.nodes),
        },
        "nodes": [node_json(node) for node in fleet.nodes],
        "namespaces": None if fleet.namespaces is None else [_namespace(row) for row in fleet.namespaces],
        "idle_holders": {
            **fleet.idle_totals._asdict(),
            "listed": None if fleet.idle is None else [_idle(row) for row in in_order(fleet.idle, IDLE)],
        },
        "sick_gpus": [_sick(gpu) for gpu in fleet.sick] if fleet.sick or fleet.all_sick else None,
        "problems": [{"question": name, "error": error} for name, error in fleet.problems],
    }


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
    size = total_amount(node.memory_total for node in nodes).text(gibibytes)
    memory = total_share(node.memory for node in nodes)
    compute = total_share(node.compute for node in nodes)
    return " · ".join(
        (
            plural(len(nodes), "node") + (f" ({silent} not answering)" if silent else ""),
            gpu_count(nodes),
            *(held_words(name, part) for name, part in named(shown_units(*total_slices(nodes)))),
            f"memory {memory.held.text(gibibytes)} GiB held",
            f"{memory.used.text(gibibytes)} GiB used of {size} GiB",
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
    end = [
        f"Total: {total_line(fleet.nodes)}",
        *(f"! not known: {name}: {printable(error)}" for name, error in fleet.problems),
    ]
    blocks = (node_table(fleet.nodes), _namespaces(fleet), _idle_lines(fleet), _sick_lines(fleet), end)
    return "\n".join("".join(f"{line}\n" for line in block) for block in map(list, blocks) if block)


def node_table(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the lines of a table of nodes."""
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
    return aligned(rows)


def _namespaces(fleet: Fleet) -> Iterator[str]:
    if fleet.namespaces is None:
        yield "Namespaces that hold GPUs are not known."
        return
    rows = [("NAMESPACE", "HOLDERS", "MEMORY USED / HELD", "UNUSED", "COMPUTE USED / HELD", "UNUSED")]
    rows += [
        (
            printable(row.name),
            UNKNOWN if row.holders is None else str(row.holders),
            share_words(row.memory, gibibytes, "GiB"),
            f"{row.memory.wasted.text(gibibytes)} GiB",
            share_words(row.compute, gpus, "GPU"),
            f"{row.compute.wasted.text(gpus)} GPU",
        )
        for row in in_order(fleet.namespaces, NAMESPACES)[:_LINES]
    ]
    yield from aligned(rows)
    yield from _more(len(fleet.namespaces) - _LINES)


def _idle_lines(fleet: Fleet) -> Iterator[str]:
    if fleet.idle is None:
        yield "Idle holders are not known."
        return
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
        for row in in_order(fleet.idle, IDLE)[:_LINES]
    ]
    if fleet.idle:
        yield from aligned(rows)
        yield from _more((fleet.idle_totals.holders or len(fleet.idle)) - len(rows) + 1)


def _sick_lines(fleet: Fleet) -> Iterator[str]:
    for gpu in fleet.sick:
        name = f"{printable(str(gpu.node))} GPU {printable(gpu.gpu or gpu.uuid)}"
        yield f"{'!' if gpu.severity == 'bad' else '-'} {name}: {printable('; '.join(gpu.reasons))}"
    if not fleet.all_sick:
        yield f"{'Other unhealthy' if fleet.sick else 'Unhealthy'} GPUs are not known."


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"and {count} more"
