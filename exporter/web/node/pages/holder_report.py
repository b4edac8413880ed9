"""The page of a holder as text, for programs such as curl."""

from collections.abc import Iterator, Sequence

from exporter.formats.holder_text import HolderReport, Part, report_text
from exporter.formats.labels import label_texts
from exporter.model import ContainerRef, ContainerRow
from exporter.web.kit.elements import Figure
from exporter.web.node.pages.ended_page import EndedDeviceView, EndedPage, ended_page
from exporter.web.node.pages.event_list import EventView
from exporter.web.node.pages.holder_page import Fact, HeldView, HolderPage, holder_page
from exporter.web.node.pages.scene import Scene
from exporter.wording import duration


def holder_text(scene: Scene, namespace: str, pod: str, container: str) -> str | None:
    """Return the page of a holder as text, also of one that ended; None if neither is known."""
    ref = ContainerRef(namespace, pod, container)
    page = holder_page(scene, ref)
    if page is not None:
        return report_text(_report(scene, page, [_held(device) for device in page.devices]))
    ended = ended_page(scene, ref)
    if ended is None:
        return None
    return report_text(_report(scene, ended, [_had(device) for device in ended.devices]))


def _report(scene: Scene, page: HolderPage | EndedPage, devices: Sequence[Part]) -> HolderReport:
    holder = page.holder
    snapshot, read = scene.snapshot, duration(scene.now - scene.snapshot.timestamp)
    demo = ("DEMO: simulated node; no value here was measured.",) if snapshot.demo else ()
    labels = [f"labels: {', '.join(label_texts(page.labels))}"] if page.labels else []
    name = f"{holder.namespace}/{holder.pod} {holder.container or '(any container)'}"
    return HolderReport(
        title=f"{name} · {snapshot.node.name} · read {read} ago",
        facts=(*demo, *page.facts, *labels),
        answers=page.answers,
        parts=(*devices, *_events(page.hits)),
    )


def _events(hits: Sequence[EventView]) -> Iterator[Part]:
    if hits:
        lines = [f"{hit.at} {hit.name} on {hit.gpu}: {hit.meaning} {hit.action}".rstrip() for hit in hits]
        yield Part("Events that hit it", lines)


def _held(device: HeldView) -> Part:
    return Part(f"{device.gpu or 'an unlisted GPU'} · {device.slice.text}", list(_held_lines(device)))


def _held_lines(device: HeldView) -> Iterator[str]:
    yield _slice(device.row, device.uuid, device.mode, device.isolation)
    for claim, of_pool in device.claims:
        yield f"claim {claim} ({of_pool})"
    if device.row.health:
        yield f"health reported by the kubelet: {device.row.health}"
    yield f"state: {', '.join(filter(None, (device.state_word, device.since)))}"
    for gauge, source in device.measures:
        pair = gauge.pair
        yield f"{gauge.name}: {pair.used.text} / {pair.whole.text} {pair.unit} ({source})"
    yield _facts(device.facts)
    for other in device.neighbours:
        name = f"{other.holder.namespace}/{other.holder.pod}/{other.holder.container or '?'}"
        yield f"also on this device: {name}, {other.memory}, {other.compute}, {other.state_word}"
    if not device.neighbours:
        yield "no other known container on this device"
    if device.rest:
        yield device.rest


def _had(device: EndedDeviceView) -> Part:
    names = (device.gpu or "an unlisted GPU", device.profile, device.slices, "until it ended")
    uses = (
        f"{name} at its last poll: {pair.used.text} / {pair.whole.text} {pair.unit}"
        for name, pair in device.pairs
    )
    slice_line = _slice(device.row, device.uuid, device.mode, device.isolation)
    return Part(" · ".join(filter(None, names)), [slice_line, *uses, _facts(device.facts)])


def _slice(row: ContainerRow, uuid: str, mode: str, isolation: str) -> str:
    words = (row.model, mode, row.resource, f"isolation {isolation}", uuid)
    return " · ".join(filter(None, words))


def _facts(facts: Sequence[Fact]) -> str:
    return " · ".join(f"{fact.name} {_known(fact.figure)}" for fact in facts)


def _known(figure: Figure) -> str:
    return f"{figure.text} ({figure.why})" if figure.why else figure.text
