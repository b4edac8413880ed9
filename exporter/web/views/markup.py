"""Marks that stand on pages over and over, written by hand since a large page has thousands of them."""

from markupsafe import Markup, escape

from exporter.model import ContainerRef
from exporter.web.views.bars import Bar, Segment
from exporter.web.views.scene import Figure, Pair

__all__ = ["bar", "figure", "holder", "icon", "pair"]

_PATTERNED = frozenset({"idle-memory", "unattributed", "unmeasured"})


def icon(name: str) -> Markup:
    """Draw the mark of a state; ``name`` is one of ours, never from outside."""
    return Markup(f'<svg class="icon c-{name}" aria-hidden="true"><use href="#i-{name}"/></svg>')  # noqa: S704


def figure(value: Figure) -> Markup:
    """Write a number, or a dash that says why there is none."""
    if not value.why:
        return escape(value.text)
    title = escape(value.why)
    return Markup(f'<abbr class="unknown" title="not known: {title}">{escape(value.text)}</abbr>')  # noqa: S704


def pair(value: Pair) -> Markup:
    """Write a use beside what it is a part of."""
    whole = f"{figure(value.whole)} {escape(value.unit)}"
    return Markup(f'{figure(value.used)}<span class="of"> / {whole}</span>')  # noqa: S704


def holder(ref: ContainerRef) -> Markup:
    """Write the name of a pod."""
    namespace, pod = escape(ref.namespace), escape(ref.pod)
    return Markup(f'<span class="ns">{namespace}/</span><span class="pod">{pod}</span>')  # noqa: S704


def bar(drawn: Bar, silent: bool = False) -> Markup:
    """Draw a bar; a ``silent`` one is not read out, because its numbers stand beside it as text."""
    said = 'aria-hidden="true"' if silent else f'role="img" aria-label="{escape(drawn.text)}"'
    look = "bar dashed" if drawn.dashed else "bar"
    segment = _plain if silent else _labelled
    tick = "" if drawn.tick is None else f'<rect class="tick" x="{drawn.tick:.2f}%" width="2" height="100%"/>'
    inside = "".join(map(segment, drawn.segments))
    return Markup(f'<svg class="{look}" {said}>{inside}{tick}</svg>')  # noqa: S704 - names are escaped


def _plain(drawn: Segment) -> str:
    x = f' x="{drawn.x:.2f}%"' if drawn.x else ""
    return f'<rect{x} width="{drawn.width:.2f}%" height="100%" class="{_fill(drawn.part.look)}/>'


def _labelled(drawn: Segment) -> str:
    part = drawn.part
    gap = '<rect class="gap" width="1.5" height="100%"/>' if drawn.x else ""
    text = ""
    if part.label:
        name = f'<tspan class="long" dx="5">{escape(part.name)}</tspan>' if part.name else ""
        text = f'<text class="t-{part.look}" x="5" y="50%" dy=".36em">{escape(part.label)}{name}</text>'
    place = f'x="{drawn.x:.2f}%" width="{drawn.width:.2f}%" height="100%"'
    return (
        f"<svg {place}><title>{escape(part.title)}</title>"
        f'<rect width="100%" height="100%" class="{_fill(part.look)}/>{gap}{text}</svg>'
    )


def _fill(look: str) -> str:
    """Return the end of an attribute ``class``, with a pattern where the look has one."""
    return f'fill f-{look}" fill="url(#p-{look})"' if look in _PATTERNED else f'fill f-{look}"'
