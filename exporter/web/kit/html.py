"""A page in pieces, and their HTML: values are escaped, and so are control and bidi characters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from exporter import __version__
from exporter.web.kit import markup
from exporter.web.kit.http import assets
from exporter.wording import UNKNOWN, printable

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One page at one moment."""

    layout: str  # the template around the pieces
    title: str  # of the window
    pieces: Mapping[str, str]  # element ids to HTML
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids of children, in order
    facts: Mapping[str, Any] = field(default_factory=dict)  # other, constant variables of the layout


class Opened(NamedTuple):
    """What an open page needs in order to stay up to date."""

    live: str  # address of its stream, relative to the page
    tag: str  # name of the snapshot shown
    timestamp: float  # Unix time of that snapshot
    now: float  # Unix time of the server
    interval: float  # seconds between snapshots


# Most of a page. Removing these first is several times as fast as checking each character.
_USUAL = bytes((ord("\n"), *range(0x20, 0x7F)))
# Placeholder of a piece; escaped text does not contain it.
_PLACE = Markup("\0")
_UNUSUAL = re.compile(r"[^\n\x20-\x7e]")


def piece(template: str, name: str, *parts: Any) -> str:
    """Return one element as HTML, by the macro ``name`` of a template."""
    return escape_controls(str(getattr(_module(template), name)(*parts)))


def page(drawing: Drawing, root: str, opened: Opened | None = None) -> str:
    """Return a whole page; ``root`` is the relative path from it to the node page.

    Without ``opened`` the page does not update itself.
    """
    placed: list[str] = []

    def place(html: str) -> Markup:
        placed.append(html)
        return _PLACE

    pieces = drawing.pieces
    layout = (
        environment()
        .get_template(drawing.layout)
        .render(
            drawing=replace(drawing, title=escape_controls(drawing.title)),
            root=root,
            opened=opened,
            version=__version__,
            piece=lambda name: place(pieces[name]),
            children=lambda name: place("\n".join([pieces[child] for child in drawing.lists[name]])),
            **drawing.facts,
        )
    )
    # Pieces, which are most of a page, are escaped already.
    between = [escape_controls(text) for text in layout.split(_PLACE)]
    return "".join(chain.from_iterable(zip(between, (*placed, ""), strict=True)))


def error_page(status: int, phrase: str, sentence: str, root: str) -> str:
    """Return the page of an error; ``root`` is the relative path from it to the node page."""
    template = environment().get_template("error.html")
    return escape_controls(template.render(status=status, phrase=phrase, sentence=sentence, root=root))


def escape_controls(html: str) -> str:
    """Return HTML with control and bidi characters, which could hide or reverse text, as visible escapes."""
    unusual = html.encode("utf-8", "surrogatepass").translate(None, _USUAL)
    if unusual.decode("utf-8", "surrogatepass").isprintable():
        return html
    return _UNUSUAL.sub(lambda match: printable(match.group()), html)


@cache
def environment() -> "Environment":
    """Return the templates; jinja2 is imported on first use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    templates = Environment(
        loader=PackageLoader("exporter.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {name: getattr(markup, name) for name in markup.__all__}
    templates.globals |= {
        "unknown": UNKNOWN,
        "asset": assets.asset,
        "modules": assets.modules,
        "page_version": assets.version,
    }
    return templates


@cache
def _module(template: str) -> Any:
    return environment().get_template(template).module
