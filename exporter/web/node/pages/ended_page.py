"""The page of a holder that ended: what it held and used at its last poll, and the list of ended holders."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.holder_answers import AnsweredQuestion, efficiency_of
from exporter.formats.text import slices_held
from exporter.history.ended import EndedDevice, EndedHolder
from exporter.history.plan import span_seconds, span_text
from exporter.model import ContainerRef, ContainerRow
from exporter.model.pod_labels import Labels
from exporter.web.kit.elements import Pair, compute_pair, memory_pair
from exporter.web.node.pages.event_list import EventView, hits_of
from exporter.web.node.pages.holder_cells import row_id
from exporter.web.node.pages.holder_page import Fact, date_of, totals_of
from exporter.web.node.pages.scene import Scene
from exporter.web.node.pages.slice_words import isolation_word
from exporter.wording import decimal, duration, gibibytes, hundredths, mode_word

_SHOWN = 30
_LIFE_SHOWN = 3600.0
_UNMEASURED = "it was not measured"
_NO_LIMIT = "its entitlement was not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDeviceView:
    """One device that a holder had."""

    id: str
    gpu: str  # "" if the driver did not list it
    profile: str  # of the MIG device or partition, "" for a whole GPU
    row: ContainerRow
    uuid: str
    slices: str
    mode: str
    isolation: str
    pairs: tuple[tuple[str, Pair], ...]  # use at the last poll and entitlement, by name
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPage:
    """The page of a holder that ended."""

    holder: ContainerRef
    labels: Labels  # of its pod
    facts: tuple[str, ...]  # shown under its name
    answers: tuple[AnsweredQuestion, ...]
    devices: tuple[EndedDeviceView, ...]
    hits: tuple[EventView, ...]
    span: str  # range of the timelines that shows its last hour


class EndedLine(NamedTuple):
    """A line of the list of ended holders."""

    holder: ContainerRef
    when: str
    title: str


class EndedList(NamedTuple):
    """The newest ended holders of a node or a GPU."""

    lines: tuple[EndedLine, ...]
    more: int  # number of those that are not shown
    kept: str  # for how long they are kept


def ended_page(scene: Scene, ref: ContainerRef) -> EndedPage | None:
    """Return the page of a holder that ended; None if it is not kept."""
    ended = scene.ended.find(ref)
    if ended is None:
        return None
    hits = tuple(hits_of(scene, ref))
    return EndedPage(
        holder=ref,
        labels=ended.labels,
        facts=tuple(_facts_of_all(scene, ended)),
        answers=(
            AnsweredQuestion("Does it still hold a GPU?", (("", when(scene, ended)),)),
            AnsweredQuestion("Was its slice used?", _each(ended, _use)),
            AnsweredQuestion("Was there memory left for it?", _each(ended, _memory)),
            AnsweredQuestion("Did a fault hit it?", (("", _fault(hits)),)),
        ),
        devices=tuple(map(_device, ended.devices)),
        hits=hits,
        span=_span(scene, ended),
    )


def ended_list(scene: Scene, uuid: str = "") -> EndedList:
    """Return the newest ended holders that are not there now, of one GPU or of all."""
    present = {row.holder for row in scene.snapshot.containers}
    found = [
        ended
        for ended in scene.ended.newest()
        if ended.holder not in present
        and (not uuid or any(device.row.device.uuid == uuid for device in ended.devices))
    ]
    lines = tuple(
        EndedLine(ended.holder, f"{duration(scene.now - ended.last_seen)} ago", when(scene, ended))
        for ended in found[:_SHOWN]
    )
    return EndedList(lines, len(found) - len(lines), span_text(scene.ended.kept))


def when(scene: Scene, ended: EndedHolder) -> str:
    """Return when a holder ended, and how exactly that is known."""
    ago, seen = duration(scene.now - ended.last_seen), _second(ended.last_seen)
    if ended.gone_at is None:
        return (
            f"Not known: it was last seen at {date_of(ended.last_seen, seconds=True)}, {ago} ago. Since then "
            f"{ended.why_unknown}."
        )
    return (
        f"No: it ended {ago} ago, at {date_of(ended.last_seen, seconds=True)} or up to "
        f"{duration(ended.gone_at - ended.last_seen)} later: the poll at {seen} still had it, and the one at "
        f"{_second(ended.gone_at)} had not."
    )


def _second(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(moment))


def _facts_of_all(scene: Scene, ended: EndedHolder) -> Iterator[str]:
    word = "Last seen" if ended.gone_at is None else "Ended"
    yield f"{word} {duration(scene.now - ended.last_seen)} ago, at {date_of(ended.last_seen, seconds=True)}"
    seen = [device.row.totals.first_seen for device in ended.devices if device.row.totals is not None]
    if seen:
        yield f"first seen {duration(ended.last_seen - min(seen))} before that"
    if len(ended.uids) == 1:
        yield f"pod uid {min(ended.uids)}"
    there = (row.holder for row in scene.snapshot.containers)
    others = {ref.container or "any container" for ref in there if ref[:2] == ended.holder[:2]}
    if others:
        yield f"of its pod {', '.join(sorted(others))} is there now"


def _device(device: EndedDevice) -> EndedDeviceView:
    row = device.row
    return EndedDeviceView(
        id=f"on-{row_id(row.holder, row.device)}",
        gpu="" if device.gpu is None else f"GPU {device.gpu}",
        profile=device.profile,
        row=row,
        uuid=row.device.mig_uuid or row.device.uuid,
        slices=slices_held(row),
        mode=mode_word(row.sharing),
        isolation=isolation_word(row.isolation),
        pairs=(
            ("memory", memory_pair(row.memory_used, _UNMEASURED, row.memory_entitled, _NO_LIMIT)),
            ("compute", compute_pair(row.compute_used, _UNMEASURED, row.compute_entitled, _NO_LIMIT)),
        ),
        facts=tuple(totals_of(row, _NO_LIMIT, _UNMEASURED, _UNMEASURED)),
    )


def _each(
    ended: EndedHolder, answer: Callable[[EndedHolder, ContainerRow], Iterator[str]]
) -> tuple[tuple[str, str], ...]:
    """Return an answer for each device, with its name if there are several."""
    several = len(ended.devices) > 1
    return tuple(
        (_name(device) if several else "", " ".join(answer(ended, device.row))) for device in ended.devices
    )


def _name(device: EndedDevice) -> str:
    gpu = "an unlisted GPU" if device.gpu is None else f"GPU {device.gpu}"
    return f"{gpu}, {device.profile}" if device.profile else gpu


def _use(ended: EndedHolder, row: ContainerRow) -> Iterator[str]:
    totals, efficiency = row.totals, efficiency_of(row)
    if row.slices == 0:
        yield "It used this device without holding a slice of it."
    if row.compute_used is None:
        yield "Not known: its compute was not measured at the last poll."
    elif totals is not None and totals.last_active is not None and not row.compute_used:
        rested = duration(ended.last_seen - totals.last_active)
        if totals.seen_computing:
            yield f"It had not computed for {rested} when it ended."
        else:
            yield f"It never computed in the {rested} of monitoring."
    else:
        yield f"It used {hundredths(row.compute_used)} of a GPU at the last poll."
    if efficiency is not None:
        yield f"Over its life it used {decimal(100 * efficiency, 0)} % of the GPU time it was entitled to."


def _memory(_ended: EndedHolder, row: ContainerRow) -> Iterator[str]:
    used, entitled = row.memory_used, row.memory_entitled
    peak = None if row.totals is None else row.totals.memory_peak
    if used is None:
        yield "Not known: its memory was not measured at the last poll."
    elif entitled is None:
        yield f"At the last poll it used {gibibytes(used)} GiB; it had no known entitlement."
    else:
        enforced = ", which was not enforced" if row.isolation == "none" else ""
        yield f"At the last poll it used {gibibytes(used)} of its {gibibytes(entitled)} GiB{enforced}."
    if peak is not None:
        yield f"Its peak of all polls was {gibibytes(peak)} GiB; between polls it may have been higher."


def _fault(hits: Sequence[EventView]) -> str:
    if not hits:
        return "None is known."
    newest, others = hits[0], f" It is the newest of {len(hits)}." if len(hits) > 1 else ""
    return f"{newest.name}, {newest.ago} ago, while it was on the device. {newest.meaning}{others}"


def _span(scene: Scene, ended: EndedHolder) -> str:
    """Return the shortest range that shows its last hour, or all of its life."""
    seen = [device.row.totals.first_seen for device in ended.devices if device.row.totals is not None]
    begun = max(min(seen, default=0.0), ended.last_seen - _LIFE_SHOWN)
    reaching = (span for span in scene.spans if (span_seconds(span) or 0.0) >= scene.now - begun)
    return next(reaching, scene.spans[-1] if scene.spans else "")
