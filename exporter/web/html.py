"""Writing HTML: templates with escaping on, and nothing in their output that hides or turns text around."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from exporter import __version__
from exporter.formats.wording import printable
from exporter.web.http import assets
from exporter.web.pages.page_pieces import Drawing, Opened

if TYPE_CHECKING:
    from jinja2 import Environment

# Nearly all of a page; leaving it out first is several times as fast as looking at each character.
_USUAL = bytes((ord("\n"), *range(0x20, 0x7F)))
# Stands where a piece goes, and in no text that has been looked at.
_PLACE = Markup("\0")
_UNSEEN = re.compile(r"[^\n\x20-\x7e]")


def piece(template: str, name: str, *parts: Any) -> str:
    """Write one element with the macro ``name`` of a template."""
    return escape_controls(str(_macro(template, name)(*parts)))


def page(drawing: Drawing, root: str, opened: Opened | None = None) -> str:
    """Write a whole page; ``root`` leads from it to the page of the node, so that any sub-path will do.

    Without ``opened`` it stays as it is.
    """
    put: list[str] = []

    def place(html: str) -> Markup:
        put.append(html)
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
    # Pieces have been looked at when they were written, and are most of a page.
    between = [escape_controls(text) for text in layout.split(_PLACE)]
    return "".join(chain.from_iterable(zip(between, (*put, ""), strict=True)))


def error_page(status: int, phrase: str, sentence: str, root: str) -> str:
    """Write the page that says why there is none; ``root`` leads to the page of the node."""
    template = environment().get_template("error.html")
    return escape_controls(template.render(status=status, phrase=phrase, sentence=sentence, root=root))


def escape_controls(html: str) -> str:
    """Show control and bidi characters, which could hide or turn a name around, as escapes."""
    unusual = html.encode("utf-8", "surrogatepass").translate(None, _USUAL)
    if unusual.decode("utf-8", "surrogatepass").isprintable():
        return html
    return _UNSEEN.sub(lambda found: printable(found.group()), html)


@cache
def environment() -> "Environment":
    """Return the templates; the first to ask has what writes them imported."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    from exporter.web.pages import markup  # noqa: PLC0415 - as above

    made = Environment(
        loader=PackageLoader("exporter.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {name: getattr(markup, name) for name in markup.__all__}
    made.globals |= {"asset": assets.asset, "modules": assets.modules}
    return made


@cache
def _macro(template: str, name: str) -> Callable[..., Markup]:
    macro: Callable[..., Markup] = getattr(environment().get_template(template).module, name)
    return macro
