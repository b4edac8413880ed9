"""The four totals: slices, memory, compute, and what needs attention."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from exporter.metrics import Number
from exporter.model import ContainerRow, GpuRow, NodeRow
from exporter.model.conditions import TABLE
from exporter.web.kit.elements import Bar, BarPart, Card, Figure, Finding, bar
from exporter.web.node.pages.event_list import Fault, recent_faults
from exporter.web.node.pages.scene import Scene, answers, number_of
from exporter.wording import UNKNOWN, gibibytes, held_of_node, hundredths, plural, total_text

_WORDING = {
    "over-share": "{} over its share",
    "unheld": "{} without a slice",
    "idle-memory": "{} idle, holding {} GiB",
    "idle": "{} idle",
    "over-notional": "{} over a notional share",
}
_MOST_NAMED = 2
_UNREAD = "this exporter reads no device of this node"
Sizes = Sequence[Number | None]


def cards(scene: Scene) -> list[Card]:
    """Return the totals of the node."""
    return [_slices(scene), _memory(scene), _compute(scene), _attention(scene)]


def _slices(scene: Scene) -> Card:
    gpus = scene.snapshot.gpus
    if all(gpu.holders is None for gpu in gpus):
        why = scene.why_holders()
        return Card(name="Slices", figure=Figure(UNKNOWN, why), detail="allocations are not known")
    holders = {row.holder for row in scene.snapshot.containers if row.slices != 0}
    held, offered, unit, resource, besides, least, withheld = held_of_node(gpus)
    details = (f"of {resource}" if resource else "", f"by {plural(len(holders), 'container')}", *besides)
    known = offered is not None
    free = f"{'at most ' if least else ''}{max((offered or 0) - held - withheld, 0)} free"
    sizes = [held, None] if least else [held]
    return Card(
        name="Slices",
        figure=Figure(f"{total_text(sizes, str)} held"),
        of=" ".join(filter(None, ("of", str(offered), unit))) if known else "",
        detail=" · ".join(filter(None, details)),
        bars=((_bar("slices held", "held", sizes, [offered]), free),) if known else (),
    )


def _memory(scene: Scene) -> Card:
    gpus = _read(scene)
    if not gpus:
        return Card(name="Memory", figure=Figure(UNKNOWN, _UNREAD))
    memories = [gpu.reading.memory if gpu.reading else None for gpu in gpus]
    used = [memory.used if memory else None for memory in memories]
    whole = [memory.total if memory else None for memory in memories]
    held = [gpu.memory_entitled for gpu in gpus]
    unknown = [size for size, entitled in zip(whole, held, strict=True) if entitled is None]
    return Card(
        name="Memory",
        figure=_figure(used, gibibytes, "GiB used"),
        of=f"of {total_text(whole, gibibytes)}",
        bars=(
            (_bar("memory held", "held", held, whole, unknown), f"{total_text(held, gibibytes)} held"),
            (_bar("memory used", "used", used, whole), _of_held(used, held)),
        ),
        waste=_waste(
            ((row.memory_entitled, row.memory_used) for row in _holding(scene, gpus)), gibibytes, "GiB"
        ),
    )


def _compute(scene: Scene) -> Card:
    gpus = _read(scene)
    if not gpus:
        return Card(name="Compute", figure=Figure(UNKNOWN, _UNREAD))
    held = [
        [
            *(row.compute_entitled for row in scene.rows_of(gpu.identity.uuid) if row.slices != 0),
            *((None,) if gpu.holders is None else ()),
        ]
        for gpu in gpus
    ]
    used = [
        [*(row.compute_used for row in scene.rows_of(gpu.identity.uuid)), gpu.unattributed_utilization]
        for gpu in gpus
    ]
    whole = [1] * (scene.snapshot.node.gpu_count or len(gpus))
    all_held, all_used = list(chain.from_iterable(held)), list(chain.from_iterable(used))
    return Card(
        name="Compute",
        figure=_figure(all_used, hundredths, "GPUs used"),
        of=f"of {len(whole)}",
        bars=(
            (
                _bar("compute held", "held", all_held, whole, [_gap(sizes) for sizes in held]),
                f"{total_text(all_held, hundredths)} held",
            ),
            (
                _bar("compute used", "used", all_used, whole, [_gap(sizes) for sizes in used]),
                _of_held(all_used, all_held),
            ),
        ),
        waste=_waste(
            ((row.compute_entitled, row.compute_used) for row in _holding(scene, gpus)), hundredths, "GPUs"
        ),
    )


def _read(scene: Scene) -> list[GpuRow]:
    """Return the GPUs that are read: devices with known holders only do not count in sums."""
    return [gpu for gpu in scene.snapshot.gpus if not gpu.unread]


def _holding(scene: Scene, gpus: Sequence[GpuRow]) -> list[ContainerRow]:
    return [row for gpu in gpus for row in scene.rows_of(gpu.identity.uuid) if row.slices]


def _waste(
    pairs: Iterable[tuple[Number | None, Number | None]], write: Callable[[Number], str], unit: str
) -> str:
    """Return the sum of unused shares: use beyond one share does not offset the waste of another."""
    sizes = [None if held is None or used is None else max(held - used, 0) for held, used in pairs]
    return (
        f"{total_text(sizes, write)} {unit} held but not used"
        if any(size is not None for size in sizes)
        else ""
    )


def _gap(sizes: Sizes) -> Number:
    """Return the maximum that the unknown values of one GPU can add."""
    known = [size for size in sizes if size is not None]
    return max(1 - sum(known), 0) if len(known) < len(sizes) else 0


def _of_held(used: Sizes, held: Sizes) -> str:
    """Return the used part of what is held, if both are fully known."""
    if None in used or None in held or not _known(held):
        return "used"
    share = _known(used) / _known(held)
    return f"used, {share:.0%} of held" if share <= 1 else "used, more than held"


def _figure(values: Sizes, write: Callable[[Number], str], unit: str) -> Figure:
    text = total_text(values, write)
    return Figure(UNKNOWN, "no GPU of this node reports it") if text == UNKNOWN else Figure(f"{text} {unit}")


def _bar(name: str, look: str, sizes: Sizes, whole: Sizes, unknown: Sizes = ()) -> Bar:
    # Unknown parts are not drawn beyond the whole.
    gap = min(_known(unknown), max(_known(whole) - _known(sizes), 0))
    parts = [BarPart(look, _known(sizes), name), BarPart("unmeasured", gap, "not known")]
    text = f"{name}: {'' if None not in sizes else 'at least '}"
    share = _known(sizes) / _known(whole) if _known(whole) else None
    return bar(f"{text}{UNKNOWN if share is None else f'{share:.0%}'} of the node", parts, _known(whole))


def _known(sizes: Sizes) -> Number:
    return sum(size for size in sizes if size is not None)


def _not_found(node: NodeRow) -> int:
    """Return the number of allocated devices that match no GPU, without claims of unknown drivers."""
    return sum(count for name, count in node.unresolved.items() if name not in node.unknown_drivers)


def _attention(scene: Scene) -> Card:
    states, node = [scene.judged(row).states for row in scene.snapshot.containers], scene.snapshot.node
    counts = (
        (len(_lost(scene)) + len(_unhealthy(scene)), "GPU"),
        (len(_faults(scene)), "fault"),
        (_not_found(node) + len(node.contested), "allocation"),
        (sum(not _WORDING.keys().isdisjoint(of_row) for of_row in states), "holder"),
        (len(scene.failing), "source"),
    )
    nouns = [plural(count, noun) for count, noun in counts if count]
    failing = plural(len(scene.failing), "source")
    sources = (Finding("bad", f"{failing} failing", "#health"),) if scene.failing else ()
    unknown = sum("unknown" in of_row for of_row in states)
    return Card(
        name="Needs attention",
        figure=Figure(nouns[0] if nouns else "nothing"),
        of="".join(f"and {noun} " for noun in nouns[1:]),
        detail=f"state of {unknown} of {plural(len(states), 'holder')} unknown" if unknown else "",
        findings=(*_gpu_findings(scene), *_holder_findings(scene), *sources),
    )


def _lost(scene: Scene) -> list[GpuRow]:
    return [gpu for gpu in _read(scene) if not answers(gpu)]


def _unhealthy(scene: Scene) -> list[GpuRow]:
    """Return the GPUs that answer and endanger work by a condition, or are unhealthy to Kubernetes."""
    return [
        gpu
        for gpu in _read(scene)
        if answers(gpu)
        and (
            any(TABLE[condition].severity == "bad" for condition in gpu.raised)
            or scene.unhealthy_pods(gpu.identity.uuid)
        )
    ]


def _faults(scene: Scene) -> list[Fault]:
    """Return the faults that tenants did not cause themselves."""
    return [fault for fault in recent_faults(scene) if fault.look == "bad"]


def _holder_findings(scene: Scene) -> Iterator[Finding]:
    by_state: dict[str, list[ContainerRow]] = {}
    for row in scene.snapshot.containers:
        for name in scene.judged(row).states:
            by_state.setdefault(name, []).append(row)
    for state, words in _WORDING.items():
        if rows := by_state.get(state):
            size = total_text((row.memory_used for row in rows), gibibytes)
            rows.sort(key=lambda row: -(row.memory_used or 0))
            refs = tuple(dict.fromkeys(row.holder for row in rows))
            shown = refs[:_MOST_NAMED]
            text = words.format(len(rows), size)
            yield Finding(state, text, f"?state={state}#holders", shown, len(refs) - len(shown))


def _gpu_findings(scene: Scene) -> Iterator[Finding]:
    if lost := _lost(scene):
        yield Finding("bad", f"{plural(len(lost), 'GPU')} not answering", f"#gpu-{number_of(lost[0])}")
    if unhealthy := _unhealthy(scene):
        yield Finding("bad", plural(len(unhealthy), "unhealthy GPU"), f"#gpu-{number_of(unhealthy[0])}")
    faults = _faults(scene)
    if faults:
        more = f" and {plural(len(faults) - 1, 'other')}" if len(faults) > 1 else ""
        yield Finding("bad", f"{faults[0].name}{more}", "#health")
    unresolved = _not_found(scene.snapshot.node)
    if unresolved:
        yield Finding("bad", f"{plural(unresolved, 'allocated device')} not found", "#health")
    if contested := scene.snapshot.node.contested:
        yield Finding("bad", f"{plural(len(contested), 'device')} held twice", "#health")
