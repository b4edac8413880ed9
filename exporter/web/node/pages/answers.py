"""The answers on the page of a holder: use, memory left, faults, and which slice would fit."""

from collections.abc import Iterator, Sequence

from exporter.formats.advice import advice_paragraphs
from exporter.formats.holder_answers import AnsweredQuestion, HolderFacts, memory_answer, use_answer
from exporter.model import ContainerRow, GpuRow
from exporter.model.conditions import TABLE
from exporter.model.kubelet import is_unhealthy
from exporter.web.node.pages.event_list import EventView
from exporter.web.node.pages.scene import Scene, answers, name_of


def answers_of(
    scene: Scene, rows: Sequence[ContainerRow], names: Sequence[str], hits: Sequence[EventView]
) -> list[AnsweredQuestion]:
    """Return the answers for all rows, each with its name if there are several."""
    facts = [_facts(scene, row, name) for row, name in zip(rows, names, strict=True)]
    return [
        use_answer(facts),
        memory_answer(facts),
        AnsweredQuestion("Has a fault hit it?", (("", " ".join(_faults(scene, rows, hits))),)),
        AnsweredQuestion("Which slice would fit it?", tuple(_fits(scene, rows))),
    ]


def _facts(scene: Scene, row: ContainerRow, name: str) -> HolderFacts:
    return HolderFacts(
        row=row,
        judged=scene.judged(row),
        at=scene.snapshot.timestamp,
        name=name,
        others=[other for other in scene.rows(row.device) if other is not row],
        memory=scene.device_memory(row),
        why_compute=scene.why_compute(row),
        why_memory=scene.why_memory(row),
        why_entitled=scene.why_entitled(row),
    )


def _fits(scene: Scene, rows: Sequence[ContainerRow]) -> Iterator[tuple[str, str]]:
    advices = scene.advise(scene.snapshot, rows[0].holder)
    for advice in advices:
        model = advice.window.device.model if len(advices) > 1 else ""
        for place, paragraph in enumerate(advice_paragraphs(advice)):
            yield ("" if place else model), paragraph
    if not advices:
        yield "", _why_no_advice(rows)


def _why_no_advice(rows: Sequence[ContainerRow]) -> str:
    if any(row.slices for row in rows):
        return "Not known: seen for less than 5 minutes."
    if any(row.slices is None for row in rows):
        return "Not known: its allocation is not known."
    return "None: it holds no slice."


def _faults(scene: Scene, rows: Sequence[ContainerRow], hits: Sequence[EventView]) -> Iterator[str]:
    gpus = [scene.gpus.get(uuid) for uuid in dict.fromkeys(row.device.uuid for row in rows)]
    troubles = list(_troubles(scene, rows, gpus))
    yield from troubles
    if hits:
        newest = hits[0]
        others = f" It is the newest of {len(hits)}." if len(hits) > 1 else ""
        yield f"{newest.name}, {newest.ago} ago, while it was on the device. {newest.meaning}{others}"
    elif any(gpu is not None and gpu.unread for gpu in gpus):
        yield "This exporter does not read the events of its device."
    elif all(gpu is not None and gpu.watched for gpu in gpus):
        none = "the driver has reported none since this exporter first saw it."
        yield f"Of events {none}" if troubles else f"No: {none}"
    else:
        yield "Events of its device are not reported here; check the node's kernel log."


def _troubles(scene: Scene, rows: Sequence[ContainerRow], gpus: Sequence[GpuRow | None]) -> Iterator[str]:
    """Yield what is wrong with its GPUs now."""
    for gpu in gpus:
        if gpu is None or gpu.unread:
            continue
        if not answers(gpu):
            yield f"{name_of(gpu)} does not answer."
            continue
        for condition, raised in gpu.raised.items():
            yield f"{name_of(gpu)} {TABLE[condition].title}: {'; '.join(raised.causes)}."
    for row in rows:
        gpu = scene.gpus.get(row.device.uuid)
        if gpu is not None and is_unhealthy(row.health):
            yield f"Kubernetes reports its slice of {name_of(gpu)} as {row.health}."
