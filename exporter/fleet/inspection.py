"""The output of ``inspect``: nodes with their GPUs and holders, as text and as JSON data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.fleet import Node, Target, devices, nodes
from exporter.fleet.amounts import shown_units, slices_json, whole, words
from exporter.fleet.devices import Gpu, Holder, read_gpus
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.queries import ask
from exporter.fleet.rendering import age_words, gpus, node_json, node_table, total_line, unknown_lines
from exporter.fleet.targets import Targets, UnknownNameError, read_clock, read_targets_at, some_names
from exporter.formats.text import holder_name, slices_held, state_words
from exporter.model import ContainerRow
from exporter.model.conditions import TABLE
from exporter.wording import UNKNOWN, aligned, decimal, gibibytes, printable

_HEADINGS = (
    "GPU",
    "MODEL",
    "SHARING",
    "SLICES HELD",
    "MEMORY HELD / TOTAL",
    "MEMORY USED",
    "COMPUTE HELD",
    "COMPUTE USED",
)
_HOLDER_HEADINGS = ("HOLDER", "GPU", "SLICES", "MEMORY USED / HELD", "COMPUTE USED / HELD", "STATE")


class _Column(NamedTuple):
    heading: str
    text: Callable[[ContainerRow], str]


def _claims(row: ContainerRow) -> str:
    """Return the claims by which a container holds a device; their namespace is that of the pod."""
    return ", ".join(dict.fromkeys(printable(claim.name) for claim in row.claims))


# Columns that are left out if no holder has a text in them.
_MORE = {"claims": _Column("CLAIM", _claims), "health": _Column("HEALTH", lambda row: printable(row.health))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Nodes, with their GPUs if these were asked for."""

    at: float  # Unix time of Prometheus
    nodes: tuple[tuple[Node, tuple[Gpu, ...] | None], ...]  # GPUs are None if unknown
    gpus: bool  # whether GPUs were asked for
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors


async def inspect(
    prometheus: Prometheus, names: Sequence[str], *, details: bool, idle_after: float
) -> Inspection:
    """Return all nodes or the named ones; these, or all with ``details``, with their GPUs and holders.

    Raises PrometheusError, MissingSeriesError and UnknownNameError.
    """
    at = await read_clock(prometheus)
    wanted = _wanted(await read_targets_at(prometheus, at), names)
    answers = await ask(prometheus, nodes.QUESTIONS, at)
    gpus_too = details or bool(names)
    asked = {node.key.name for node in wanted if not node.silent} if gpus_too else ()
    of_gpus = await ask(prometheus, devices.questions(asked), at)
    gpus = read_gpus(of_gpus, at, idle_after) if asked else None
    return Inspection(
        at=at,
        nodes=tuple(
            (node, None if gpus is None or node.silent else _of_node(node, gpus))
            for node in nodes.read_nodes(answers, wanted)
        ),
        gpus=gpus_too,
        problems=tuple({**answers.problems, **of_gpus.problems}.items()),
    )


def _of_node(node: Node, gpus: Mapping[Target, tuple[Gpu, ...]]) -> tuple[Gpu, ...] | None:
    """Return the GPUs of a node; None if it has GPUs and none is reported."""
    return gpus.get(node.target) or (() if node.gpus.value == 0 else None)


def _wanted(targets: Targets, names: Sequence[str]) -> Sequence[Node]:
    if not names:
        return targets.nodes
    known = {name for node in targets.nodes for name in (str(node.key), node.key.name)}
    missing = [name for name in names if name not in known]
    if missing:
        nodes_known = [str(node.key) for node in targets.nodes]
        raise UnknownNameError(f"no node {printable(missing[0])!r}; there are {some_names(nodes_known)}")
    return [node for node in targets.nodes if {str(node.key), node.key.name} & set(names)]


def inspection_text(inspection: Inspection, *, details: bool, width: int | None = None) -> str:
    """Return it as text for a terminal, in aligned columns: nodes, or GPUs and their holders.

    Rows that are wider than ``width`` characters are wrapped.
    """
    all_nodes = tuple(node for node, _ in inspection.nodes)
    rows = (row for node, of_node in inspection.nodes for row in _node_rows(node, of_node))
    table = aligned([("NODE", *_HEADINGS), *rows], width) if inspection.gpus else node_table(all_nodes, width)
    lines = [*table]
    if details:
        lines += ["", *_details(inspection, width)]
    lines += ["", f"Total: {total_line(all_nodes)}", *unknown_lines(all_nodes, inspection.problems)]
    return "".join(f"{line}\n" for line in lines)


def _node_rows(node: Node, of_node: Sequence[Gpu] | None) -> Iterator[tuple[str, ...]]:
    name, rest = printable(str(node.key)), len(_HEADINGS) - 1
    if node.silent:
        yield (name, UNKNOWN, f"not answering for {age_words(node)}: {node.silent}", *("",) * (rest - 1))
        return
    if not of_node:
        why = "its GPUs are not known" if of_node is None else "no GPU"
        yield (name, node.gpus.text(whole), why, *("",) * (rest - 1))
    for place, gpu in enumerate(of_node or ()):
        yield ("" if place else name, *_gpu_row(gpu))


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    memory = f"{gpu.memory_held.text(gibibytes)} / {gpu.memory_total.text(gibibytes)} GiB"
    wrong = [TABLE[name].title for name in gpu.conditions or () if name != "lost"]
    if gpu.up is False:
        wrong.insert(0, "not answering")
    return (
        printable(gpu.index or gpu.uuid),
        printable(gpu.model or UNKNOWN) + (f" ({', '.join(wrong)})" if wrong else ""),
        printable(gpu.sharing or UNKNOWN),
        words(shown_units(gpu.slices, gpu.units)),
        memory,
        f"{gpu.memory_used.text(gibibytes)} GiB",
        f"{gpu.compute_held.text(gpus)} GPU",
        f"{gpu.compute_used.text(gpus)} GPU",
    )


def _details(inspection: Inspection, width: int | None) -> Iterator[str]:
    shown = _shown(inspection)
    rows: list[tuple[str, ...]] = [("NODE", *_HOLDER_HEADINGS, *(_MORE[name].heading for name in shown))]
    unknown = []
    for node, of_node in inspection.nodes:
        name = printable(str(node.key))
        rows += [
            (name, *_holder_row(gpu, holder), *(_MORE[more].text(holder.row) for more in shown))
            for gpu in of_node or ()
            for holder in gpu.holders or ()
        ]
        if not node.silent and (of_node is None or not all(gpu.all_holders for gpu in of_node)):
            unknown.append(name)
    if len(rows) > 1:
        yield from aligned(rows, width)
    elif not unknown:
        yield "No known pod holds or uses a GPU."
    if unknown:
        yield f"{'Other holders' if len(rows) > 1 else 'Holders'} are not known on {some_names(unknown)}."


def _shown(inspection: Inspection) -> tuple[str, ...]:
    """Return the further columns for which one of the holders has a text."""
    rows = [
        holder.row for _, of_node in inspection.nodes for gpu in of_node or () for holder in gpu.holders or ()
    ]
    return tuple(name for name, column in _MORE.items() if any(map(column.text, rows)))


def _holder_row(gpu: Gpu, holder: Holder) -> tuple[str, ...]:
    row = holder.row
    return (
        holder_name(row),
        printable(gpu.index or gpu.uuid),
        slices_held(row),
        f"{gibibytes(row.memory_used)} / {gibibytes(row.memory_entitled)} GiB",
        f"{decimal(row.compute_used, 2)} / {decimal(row.compute_entitled, 2)} GPU",
        state_words(holder.judged),
    )


def inspection_json(inspection: Inspection, *, details: bool) -> dict[str, Any]:
    """Return it as JSON data; unknown values are null."""
    return {
        "timestamp": inspection.at,
        "nodes": [
            node_json(node)
            | (
                {"devices": None if of_node is None else [_gpu(gpu, details) for gpu in of_node]}
                if inspection.gpus
                else {}
            )
            for node, of_node in inspection.nodes
        ],
        "problems": [{"question": name, "error": error} for name, error in inspection.problems],
    }


def _gpu(gpu: Gpu, details: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "uuid": gpu.uuid,
        "gpu": gpu.index or None,
        "model": gpu.model or None,
        "sharing": gpu.sharing or None,
        "up": gpu.up,
        "conditions": None if gpu.conditions is None else list(gpu.conditions),
        **slices_json(gpu.slices, gpu.units),
        "memory_total_bytes": gpu.memory_total.as_dict(),
        "memory_held_bytes": gpu.memory_held.as_dict(),
        "memory_used_bytes": gpu.memory_used.as_dict(),
        "compute_held_gpus": gpu.compute_held.as_dict(),
        "compute_used_gpus": gpu.compute_used.as_dict(),
    }
    if details:
        data["holders"] = None if gpu.holders is None else [_holder(holder) for holder in gpu.holders]
        data["all_holders"] = gpu.all_holders
    return data


def _holder(holder: Holder) -> dict[str, Any]:
    row = holder.row
    return {
        "namespace": row.holder.namespace,
        "pod": row.holder.pod,
        "container": row.holder.container or None,
        "mig_uuid": row.device.mig_uuid or None,
        "resource": row.resource or None,
        "isolation": row.isolation or None,
        "slices": row.slices,
        "memory_entitled_bytes": row.memory_entitled,
        "memory_used_bytes": row.memory_used,
        "compute_entitled_ratio": row.compute_entitled,
        "compute_used_ratio": row.compute_used,
        # Only nodes with claims, or a kubelet that reports health, have these; else they are unknown.
        "claims": [claim._asdict() for claim in row.claims] or None,
        "health": row.health or None,
        "state": holder.judged.state,
        "other_states": list(holder.judged.also),
        "quiet_seconds": holder.judged.quiet_for,
    }
