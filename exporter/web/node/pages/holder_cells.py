"""The cells of the table of holders as HTML, without templates: a large node has thousands of cells.

Cells that many rows share are cached where that saves time.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import escape

from exporter.formats.holder_answers import efficiency_of
from exporter.formats.labels import label_texts, short_labels
from exporter.formats.memory_limits import limits_text
from exporter.metrics import Number
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuRow
from exporter.model.pod_labels import Labels
from exporter.model.states import STATE_WORDS, HolderState, Judgement
from exporter.web.kit import markup
from exporter.web.kit.elements import Figure, with_limits
from exporter.web.node.pages.picture.cells import Amounts, limits_of, use_bar
from exporter.web.node.pages.scene import Scene, number_of
from exporter.web.node.pages.slice_words import isolation_text, isolation_word, slice_of
from exporter.wording import (
    UNKNOWN,
    decimal,
    duration,
    gibibytes,
    hundredths,
    mode_word,
)

_KEPT = 4096
# A smaller use is drawn as this share of its track, so that it stays visible.
_LEAST_DRAWN = 0.001
_NEVER_MEASURED = "no measured use"
_UNSEEN = "not enough data yet"
_NOT_KEPT = "no history of the last hour yet"


class HolderLine(NamedTuple):
    """A row of the table."""

    scene: Scene
    row: ContainerRow
    state: HolderState
    gpu: GpuRow | None  # None if the driver does not list it


class TableCell(NamedTuple):
    """The content of a cell as HTML."""

    html: str
    title: str | None = None  # its tooltip, escaped
    look: str = ""  # its classes besides the alignment of the column


def line_of(scene: Scene, row: ContainerRow) -> HolderLine:
    """Return a row with its state."""
    return HolderLine(scene, row, scene.state(row), scene.gpus.get(row.device.uuid))


def row_id(ref: ContainerRef, device: DeviceKey) -> str:
    """Return the id of a row's element: stable while the container has the device.

    Ids are short, because they compress badly; two rows may have the same one.
    """
    name = "\0".join((*ref, *device))
    return f"h-{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def holder(line: HolderLine) -> TableCell:
    """Return its name with a link to its page, and the labels of its pod: the head of its row."""
    ref = line.row.holder
    if ref.container:
        container = f'<span class="ct">{escape(ref.container)}</span>'
    else:
        container = (
            '<abbr class="ct" title="the containers of this pod cannot be distinguished">any container</abbr>'
        )
    labels = _labels(line.scene.labels.of(line.row))
    return TableCell(f"{markup.holder_link(ref, line.scene.root)} {container}{labels}")


@lru_cache(_KEPT)
def _labels(labels: Labels) -> str:
    """Return the labels of a pod in short, all of them in the tooltip."""
    if not labels:
        return ""
    title = escape(", ".join(label_texts(labels)))
    return f' <span class="pod-labels" title="{title}">{escape(short_labels(labels))}</span>'


def state_text(judged: Judgement) -> str:
    """Return the states of a holder as text."""
    return ", ".join(map(STATE_WORDS.__getitem__, judged.states))


def state(line: HolderLine) -> TableCell:
    """Return its state, with a reason if it is unknown."""
    word = state_text(line.scene.judged(line.row))
    if line.state == "unknown":
        word = f'<abbr title="{escape(line.scene.why_compute(line.row))}">{word}</abbr>'
    return TableCell(f"{markup.icon(line.state)}{word}", look=f"state c-{line.state}")


def quiet(line: HolderLine) -> TableCell:
    """Return its quiet or idle time; empty for an active holder."""
    if line.row.compute_used is None:
        return TableCell(_unknown(line.scene.why_compute(line.row)))
    quiet_for = line.scene.judged(line.row).quiet_for
    return TableCell("" if quiet_for is None else duration(quiet_for))


def quiet_of(line: HolderLine) -> float | None:
    """Return the seconds that a holder has been quiet or idle: 0 if active, None if unknown."""
    judged = line.scene.judged(line.row)
    return None if judged.activity == "unknown" else judged.quiet_for or 0.0


def gpu(line: HolderLine) -> TableCell:
    """Return its GPU, with a link to the GPU's page."""
    number = "" if line.gpu is None else number_of(line.gpu)
    return _gpu(*line.row.device, number, line.scene.root)


@lru_cache(_KEPT)
def _gpu(gpu_uuid: str, mig_uuid: str, number: str, root: str) -> TableCell:
    uuid = escape(mig_uuid or gpu_uuid)
    if number:
        path = quote(gpu_uuid, safe="", errors="replace")
        shown = f'<a href="{root}gpu/{path}">{escape(number)}</a>'
    else:
        shown = f'<abbr class="unknown" title="the driver does not list {uuid}">{UNKNOWN}</abbr>'
    return TableCell(shown, title=uuid)


def part(line: HolderLine) -> TableCell:
    """Return what it holds of the GPU."""
    return _part(slice_of(line.scene, line.row), line.row.resource)


@lru_cache(_KEPT)
def _part(held: Figure, resource: str) -> TableCell:
    return TableCell(markup.figure(held), title=escape(resource))


def sharing(line: HolderLine) -> TableCell:
    return TableCell(escape(mode_word(line.row.sharing)))


def isolation(line: HolderLine) -> TableCell:
    return _isolation(line.row.isolation, isolation_text(line.row))


@lru_cache(_KEPT)
def _isolation(name: str, text: str) -> TableCell:
    word, title = escape(isolation_word(name)), escape(text)
    return TableCell(f'<abbr title="{title}">{word}</abbr>')


def memory(line: HolderLine) -> TableCell:
    row = line.row
    used, held = row.memory_used, row.memory_entitled
    amount = _unknown(line.scene.why_memory(row)) if used is None else _escaped(gibibytes(used))
    whole = _unknown(line.scene.why_entitled(row)) if held is None else _escaped(gibibytes(held))
    device = line.scene.device_memory(row) if held is None else None
    drawn = _use(line.state, used, held, device.total if device else None, limits_of(row))
    title = escape(limits_text(row)) or None
    return TableCell(f'{drawn}{amount}<span class="of"> / {whole} GiB</span>', title, look="measure")


def compute(line: HolderLine) -> TableCell:
    row = line.row
    used, held = row.compute_used, row.compute_entitled
    amount = _unknown(line.scene.why_compute(row)) if used is None else _escaped(hundredths(used))
    whole = _unknown(line.scene.why_entitled(row)) if held is None else _escaped(hundredths(held))
    drawn = _use(line.state, used, held, 1)
    return TableCell(f'{drawn}{amount}<span class="of"> / {whole} GPU</span>', look="measure")


def efficiency(line: HolderLine) -> TableCell:
    """Return its efficiency: used / entitled since it was first seen, while measured."""
    share = efficiency_of(line.row)
    if share is None:
        return TableCell(_unknown(_why_no_efficiency(line)))
    return TableCell(_escaped(f"{decimal(100 * share, 0)} %"))


def _why_no_efficiency(line: HolderLine) -> str:
    row, totals = line.row, line.row.totals
    if row.compute_entitled is None:
        return line.scene.why_entitled(row)
    if row.compute_used is None:
        return line.scene.why_compute(row)
    return _UNSEEN if totals is None or totals.used_gpu_seconds is not None else _NEVER_MEASURED


def hour(line: HolderLine) -> TableCell:
    """Return its last hour, a dash if there is no history."""
    scene, row = line.scene, line.row
    drawn = scene.sparkline(row) if scene.sparkline else ""
    if not drawn:
        drawn = _unknown(_NOT_KEPT if row.compute_used is not None else scene.why_compute(row))
    return TableCell(drawn, look="hour")


def processes(line: HolderLine) -> TableCell:
    count = line.row.processes
    return TableCell(_unknown(line.scene.why_memory(line.row)) if count is None else str(count))


def age(line: HolderLine) -> TableCell:
    """Return the time since it was first seen."""
    seconds = age_of(line)
    return TableCell(_unknown(_UNSEEN) if seconds is None else duration(seconds))


def age_of(line: HolderLine) -> float | None:
    """Return the seconds since a container was first seen on the device."""
    totals = line.row.totals
    return None if totals is None else max(line.scene.snapshot.timestamp - totals.first_seen, 0.0)


@lru_cache(_KEPT)
def _unknown(why: str) -> str:
    return markup.figure(Figure(UNKNOWN, why))


def _escaped(number: str) -> str:
    """Return a number as HTML: tiny ones begin with ``<``."""
    return number.replace("<", "&lt;")


def _use(
    state: HolderState,
    used: Number | None,
    entitled: Number | None,
    device: Number | None,
    limits: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Return the bar of a use on its track: the entitlement, or else the device; ``limits`` are marked."""
    track = device if entitled is None else entitled
    marked = tuple((look, round(size / track, 3)) for look, size in limits.items()) if track else ()
    if used is None or not track:
        return _bar(state, None, entitled is None, marked)
    share = used / track
    if 0 < share < _LEAST_DRAWN:
        share = _LEAST_DRAWN
    return _bar(state, round(share, 3), entitled is None, marked)


@lru_cache(_KEPT)
def _bar(look: str, share: float | None, dashed: bool, limits: tuple[tuple[str, float], ...]) -> str:
    drawn = use_bar("", look, share, None if dashed else 1, Amounts(1, None, None))
    return str(markup.bar_svg(with_limits(drawn, dict(limits)), silent=True))
