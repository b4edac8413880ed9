"""Elements that pages repeat, written by hand since a large page has thousands of them."""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup, escape

from exporter.model import ContainerRef
from exporter.web.kit.elements import Bar, Figure, Mark, Pair, PoolKey, Segment, Threshold

__all__ = ["bar_svg", "figure", "holder", "holder_link", "icon", "key", "marks", "pair"]

_KEPT = 4096
_END = 99.0
_PATTERNED = frozenset({"quiet", "idle-memory", "unattributed", "unmeasured"})


@lru_cache(_KEPT)
def icon(name: str) -> Markup:
    """Return the icon of a state; ``name`` is one of ours, never user input."""
    return Markup(f'<svg class="icon c-{name}" aria-hidden="true"><use href="#i-{name}"/></svg>')  # noqa: S704


def figure(value: Figure) -> Markup:
    """Return a number as HTML, or a dash with the reason."""
    if not value.why:
        return escape(value.text)
    title = escape(value.why)
    return Markup(f'<abbr class="unknown" title="not known: {title}">{escape(value.text)}</abbr>')  # noqa: S704


def pair(value: Pair) -> Markup:
    """Return ``used / whole`` with the unit."""
    whole = f"{figure(value.whole)} {value.unit}"
    return Markup(f'{figure(value.used)}<span class="of"> / {whole}</span>')  # noqa: S704


def holder(ref: ContainerRef) -> Markup:
    """Return the name of a pod as HTML."""
    namespace, pod = escape(ref.namespace), escape(ref.pod)
    return Markup(f'<span class="ns">{namespace}/</span><span class="pod">{pod}</span>')  # noqa: S704


@lru_cache(_KEPT)
def holder_link(ref: ContainerRef, root: str) -> Markup:
    """Return the name of a pod as a link to its container's page; ``root`` leads to the node page."""
    return Markup(f'<a class="who" href="{root}{holder_path(ref)}">{holder(ref)}</a>')  # noqa: S704 - quoted


def holder_path(ref: ContainerRef) -> str:
    """Return the path from the node page to the page of a container."""
    parts = (ref.namespace, ref.pod, ref.container)
    return "holder/" + "/".join(quote(part, safe="", errors="replace") for part in parts)


def marks(drawn: Iterable[Mark]) -> Markup:
    """Return the replicas of a pool as HTML."""
    return Markup("".join(map(_mark, drawn)))  # noqa: S704 - names are escaped


@lru_cache(_KEPT)
def _mark(drawn: Mark) -> str:
    name = f' <span class="long">{escape(drawn.name)}</span>' if drawn.name else ""
    look = f"w{drawn.width} m-{drawn.look}"
    return f'<li class="{look}" title="{escape(drawn.title)}">{drawn.label}{name}</li>'


def key(drawn: PoolKey, root: str) -> Markup:
    """Return a line of the list under a pool as HTML."""
    ref = drawn.holder
    container = f'<span class="ns">/{escape(ref.container or "?")}</span>' if drawn.named else ""
    held = f' <span class="held">{drawn.held}</span>' if drawn.held else ""
    used = f"{figure(drawn.memory.used)} GiB · {figure(drawn.compute.used)} GPU"
    number = f'<span class="number m-{drawn.state}">{drawn.number}</span>{icon(drawn.state)}'
    who = f'<span class="who">{holder_link(ref, root)}{container}</span>'
    return Markup(f'<li>{number}{who}{held} <span class="used">{used}</span></li>')  # noqa: S704


def bar_svg(drawn: Bar, silent: bool = False) -> Markup:
    """Return a bar as SVG; ``silent`` hides it from screen readers if its values are next to it as text."""
    label = 'aria-hidden="true"' if silent else f'role="img" aria-label="{escape(drawn.text)}"'
    look = "bar dashed" if drawn.dashed else "bar"
    segment = _unlabelled if silent else _labelled
    tick = "" if drawn.tick is None else f'<rect class="tick" x="{drawn.tick:.2f}%" width="2" height="100%"/>'
    inside = "".join(map(segment, drawn.segments)) + "".join(map(_threshold, drawn.thresholds))
    return Markup(f'<svg class="{look}" {label}>{inside}{tick}</svg>')  # noqa: S704 - names are escaped


def _threshold(drawn: Threshold) -> str:
    # The mark of a limit at the end of the track is drawn inside of it.
    x = min(drawn.x, _END)
    return f'<rect class="limit-{drawn.look}" x="{x:.2f}%" width="3" height="100%"/>'


def _unlabelled(drawn: Segment) -> str:
    x = f' x="{drawn.x:.1f}%"' if drawn.x else ""
    return f'<rect{x} width="{drawn.width:.1f}%" height="100%" class="{_fill(drawn.part.look)}/>'


def _labelled(drawn: Segment) -> str:
    """Return a segment with its title; one with a label is its own SVG, which clips the label."""
    part = drawn.part
    x = f' x="{drawn.x:.1f}%"' if drawn.x else ""
    place = f'{x} width="{drawn.width:.1f}%" height="100%"'
    fill, title = _fill(part.look), f"<title>{escape(part.title)}</title>"
    if not part.label:
        return f'<rect{place} class="{fill}>{title}</rect>'
    name = f'<tspan class="long" dx="5">{escape(part.name)}</tspan>' if part.name else ""
    text = f'<text class="t-{part.look}" x="5" y="50%" dy=".36em">{escape(part.label)}{name}</text>'
    return f'<svg{place}>{title}<rect width="100%" height="100%" class="{fill}/>{text}</svg>'


def _fill(look: str) -> str:
    """Return the end of an attribute ``class``, with a pattern where the look has one."""
    return f'fill f-{look}" fill="url(#p-{look})"' if look in _PATTERNED else f'fill f-{look}"'
