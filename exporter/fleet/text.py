"""The cluster, and nodes with their GPUs and holders, as text for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from exporter.fleet.amounts import Amount, Share, named, shown_units, size_of, whole, words
from exporter.fleet.gpus import Gpu, Holder
from exporter.fleet.model import Fleet, IdleHolder, Namespace, Node, NodeSums, in_order, total_of_nodes
from exporter.fleet.targets import some_names
from exporter.fleet.watch import Inspection
from exporter.formats.text import holder_name, slices_held, state_words
from exporter.model.conditions import TABLE
from exporter.wording import UNKNOWN, aligned, decimal, duration, gibibytes, hundredths, plural, printable

Record = TypeVar("Record")
Columns: TypeAlias = Sequence[tuple[str, Callable[[Record], str]]]  # headings, and how a record is written

# The maximum number of rows of each list of the cluster.
_MOST_ROWS = 20
# What to do if nodes have no records.
UNRECORDED = (
    "New nodes and new rules have them after a minute. If they stay away, load all groups of "
    "alerts/rules/gpuslice-recording.yaml"
)


def fleet_text(fleet: Fleet) -> str:
    """Return the cluster: nodes, namespaces, idle holders, unhealthy GPUs, totals."""
    blocks = (
        _scope(fleet.only),
        _nodes(fleet.nodes, None),
        _namespaces(fleet),
        _idle_holders(fleet),
        _sick_gpus(fleet),
        _end(fleet.nodes, fleet.total, fleet.problems),
    )
    texts = ["".join(f"{line}\n" for line in block) for block in blocks]
    return "\n".join(filter(None, texts))


def inspection_text(inspection: Inspection, *, details: bool, width: int | None = None) -> str:
    """Return nodes, or GPUs and their holders, in aligned columns.

    Rows that are wider than ``width`` characters are wrapped.
    """
    nodes = tuple(node for node, _ in inspection.nodes)
    lines = [*(_gpus(inspection, width) if inspection.gpus else _nodes(nodes, width))]
    if details and inspection.only:
        lines += ["", *_scope(inspection.only)]
    if details:
        lines += ["", *_holders(inspection, width)]
    lines += ["", *_end(nodes, total_of_nodes(nodes), inspection.problems)]
    return "".join(f"{line}\n" for line in lines)


def _scope(only: Sequence[str]) -> Iterator[str]:
    if only:
        yield f"Only holders in {some_names(only)} are listed. Nodes, GPUs and totals are of all namespaces."


def unrecorded_nodes(nodes: Iterable[Node], problems: Sequence[object]) -> int:
    """Return the number of nodes without records, 0 if failed queries explain them."""
    return 0 if problems else sum(node.unrecorded for node in nodes)


def gpu_count(gpus: Amount) -> str:
    """Return a number of GPUs."""
    count = gpus.text(whole)
    return f"{count} GPU" if count == "1" else f"{count} GPUs"


def age_words(node: Node) -> str:
    """Return the age of a node's data; data that is too old to be queried has no age."""
    return "more than 15 min" if node.age is None else duration(node.age)


def silent_words(node: Node) -> str:
    """Return since when a node does not answer, and why."""
    return f"not answering for {age_words(node)}: {node.silent}"


def _end(nodes: Sequence[Node], total: NodeSums, problems: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the totals, and what is not known: nodes without records, and failed queries."""
    silent = sum(bool(node.silent) for node in nodes)
    memory, compute = total.memory, total.compute
    size = size_of(total.memory_total, memory.held, memory.used)
    parts = (
        plural(len(nodes), "node") + (f" ({silent} not answering)" if silent else ""),
        gpu_count(total.gpus),
        *(
            f"{name or 'slices'} {part.held.text(whole)} held{part.of_size}"
            for name, part in named(shown_units(total.slices, total.units))
        ),
        f"memory {memory.held.text(gibibytes)} GiB held",
        f"{memory.used.text(gibibytes)} GiB used of {size.text(gibibytes)} GiB",
        f"compute {compute.held.text(hundredths)} GPUs held, {compute.used.text(hundredths)} GPUs used",
    )
    yield f"Total: {' · '.join(parts)}"
    without = unrecorded_nodes(nodes, problems)
    if without:
        yield f"! records of {plural(without, 'node')} are missing. {UNRECORDED}."
    for name, error in problems:
        yield f"! not known: {name}: {printable(error)}"


def _used_of_held(share: Share, write: Callable[[float], str], unit: str) -> str:
    return f"{share.used.text(write)} / {share.held.text(write)} {unit}"


def _headings(columns: Columns[Record]) -> tuple[str, ...]:
    return tuple(heading for heading, _ in columns)


def _cells(columns: Columns[Record], record: Record) -> tuple[str, ...]:
    return tuple(text(record) for _, text in columns)


_NODE: Columns[Node] = (
    ("NODE", lambda node: printable(str(node.key))),
    ("GPUS", lambda node: node.gpus.text(whole)),
    ("SLICES HELD", lambda node: words(shown_units(node.slices, node.units))),
    ("MEMORY USED / HELD", lambda node: _used_of_held(node.memory, gibibytes, "GiB")),
    ("COMPUTE USED / HELD", lambda node: _used_of_held(node.compute, hundredths, "GPU")),
    ("DATA", lambda node: f"{age_words(node)} ago"),
)


def _nodes(nodes: Iterable[Node], width: int | None) -> Iterator[str]:
    rows = [_headings(_NODE)]
    for node in nodes:
        if node.silent:
            dashes = (UNKNOWN,) * 4
            rows.append((printable(str(node.key)), *dashes, silent_words(node)))
        else:
            rows.append(_cells(_NODE, node))
    return aligned(rows, width)


_NAMESPACE: Columns[Namespace] = (
    ("NAMESPACE", lambda namespace: printable(namespace.name)),
    ("HOLDERS", lambda namespace: namespace.holder_count.text(whole)),
    ("MEMORY USED / HELD", lambda namespace: _used_of_held(namespace.memory, gibibytes, "GiB")),
    ("UNUSED", lambda namespace: f"{namespace.memory.wasted.text(gibibytes)} GiB"),
    ("COMPUTE USED / HELD", lambda namespace: _used_of_held(namespace.compute, hundredths, "GPU")),
    ("UNUSED", lambda namespace: f"{namespace.compute.wasted.text(hundredths)} GPU"),
)


def _namespaces(fleet: Fleet) -> Iterator[str]:
    namespaces = in_order("namespaces", fleet.namespaces or ())
    if namespaces or (fleet.all_namespaces and not fleet.only):
        yield from _first_rows(_NAMESPACE, namespaces, len(namespaces))
    if fleet.unlisted_namespaces:
        yield printable(fleet.unlisted_namespaces)
    elif not fleet.all_namespaces:
        yield f"{'Other namespaces' if namespaces else 'Namespaces'} that hold GPUs are not known."


_IDLE: Columns[IdleHolder] = (
    ("IDLE HOLDER", lambda idle: printable("/".join(filter(None, idle.holder)))),
    ("NODE", lambda idle: printable(str(idle.node))),
    ("GPU", lambda idle: printable(idle.gpu or idle.uuid)),
    ("HOLDS", lambda idle: f"{gibibytes(idle.memory_held)} GiB, {decimal(idle.compute_held, 2)} GPU"),
    ("MEMORY USED", lambda idle: f"{gibibytes(idle.memory_used)} GiB"),
    ("IDLE FOR", lambda idle: UNKNOWN if idle.seconds is None else duration(idle.seconds)),
)


def _idle_holders(fleet: Fleet) -> Iterator[str]:
    if fleet.idle:
        yield from _first_rows(_IDLE, in_order("idle", fleet.idle), int(fleet.idle_holders.total))
    if fleet.idle_unlisted:
        yield fleet.idle_unlisted


def _first_rows(columns: Columns[Record], records: Sequence[Record], count: int) -> Iterator[str]:
    """Yield a table of the first of ``count`` records."""
    shown = records[:_MOST_ROWS]
    yield from aligned([_headings(columns), *(_cells(columns, record) for record in shown)])
    if count > len(shown):
        yield f"and {count - len(shown)} more"


def _sick_gpus(fleet: Fleet) -> Iterator[str]:
    for gpu in fleet.sick:
        name = f"{printable(str(gpu.node))} GPU {printable(gpu.gpu or gpu.uuid)}"
        yield f"{'!' if gpu.severity == 'bad' else '-'} {name}: {printable('; '.join(gpu.reasons))}"
    if not fleet.all_sick:
        yield f"{'Other unhealthy' if fleet.sick else 'Unhealthy'} GPUs are not known."


_GPU: Columns[Gpu] = (
    ("GPU", lambda gpu: printable(gpu.index or gpu.uuid)),
    ("MODEL", lambda gpu: f"{printable(gpu.model or UNKNOWN)}{_wrong(gpu)}"),
    ("SHARING", lambda gpu: printable(gpu.sharing or UNKNOWN)),
    ("SLICES HELD", lambda gpu: words(shown_units(gpu.slices, gpu.units))),
    (
        "MEMORY HELD / TOTAL",
        lambda gpu: f"{gpu.memory_held.text(gibibytes)} / {gpu.memory_total.text(gibibytes)} GiB",
    ),
    ("MEMORY USED", lambda gpu: f"{gpu.memory_used.text(gibibytes)} GiB"),
    ("COMPUTE HELD", lambda gpu: f"{gpu.compute_held.text(hundredths)} GPU"),
    ("COMPUTE USED", lambda gpu: f"{gpu.compute_used.text(hundredths)} GPU"),
)


def _wrong(gpu: Gpu) -> str:
    wrong = [TABLE[name].title for name in gpu.conditions or () if name != "lost"]
    if gpu.up is False:
        wrong.insert(0, "not answering")
    return f" ({', '.join(wrong)})" if wrong else ""


def _gpus(inspection: Inspection, width: int | None) -> Iterator[str]:
    rows = [("NODE", *_headings(_GPU))]
    for node, gpus in inspection.nodes:
        name = printable(str(node.key))
        if gpus:
            rows += [("" if place else name, *_cells(_GPU, gpu)) for place, gpu in enumerate(gpus)]
            continue
        why = "its GPUs are not known" if gpus is None else "no GPU"
        if node.silent:
            why = silent_words(node)
        # In place of the model; a node that does not answer has no number of GPUs.
        rows.append((name, node.gpus.text(whole), why, *("" for _ in _GPU[2:])))
    return aligned(rows, width)


_HOLDER: Columns[Holder] = (
    ("HOLDER", lambda holder: holder_name(holder.row)),
    ("GPU", lambda holder: printable(holder.gpu)),
    ("SLICES", lambda holder: slices_held(holder.row)),
    (
        "MEMORY USED / HELD",
        lambda holder: f"{gibibytes(holder.row.memory_used)} / {gibibytes(holder.row.memory_entitled)} GiB",
    ),
    (
        "COMPUTE USED / HELD",
        lambda holder: (
            f"{decimal(holder.row.compute_used, 2)} / {decimal(holder.row.compute_entitled, 2)} GPU"
        ),
    ),
    ("STATE", lambda holder: state_words(holder.judged)),
    # The namespace of a claim is that of the pod.
    ("CLAIM", lambda holder: ", ".join(dict.fromkeys(printable(claim.name) for claim in holder.row.claims))),
    ("HEALTH", lambda holder: printable(holder.row.health)),
)
# Columns that are left out if no holder has a text in them.
_OPTIONAL = ("CLAIM", "HEALTH")


def _holders(inspection: Inspection, width: int | None) -> Iterator[str]:
    holders: list[tuple[str, Holder]] = []
    unknown = []
    for node, gpus in inspection.nodes:
        name = printable(str(node.key))
        for gpu in gpus or ():
            holders += [(name, holder) for holder in gpu.holders or ()]
        if not node.silent and (gpus is None or not all(gpu.all_holders for gpu in gpus)):
            unknown.append(name)
    if holders:
        columns = [
            (heading, text)
            for heading, text in _HOLDER
            if heading not in _OPTIONAL or any(text(holder) for _, holder in holders)
        ]
        rows = [(name, *_cells(columns, holder)) for name, holder in holders]
        yield from aligned([("NODE", *_headings(columns)), *rows], width)
    elif not unknown:
        pod = f"pod in {some_names(inspection.only)}" if inspection.only else "pod"
        yield f"No known {pod} holds or uses a GPU."
    if unknown:
        yield f"{'Other holders' if holders else 'Holders'} are not known on {some_names(unknown)}."
