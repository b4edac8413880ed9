"""Writing HTML: templates with escaping on, and nothing in their output that hides or turns text around."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from exporter import __version__
from exporter.formats_words import printable
from exporter.web.drawing import Drawing
from exporter.web.views import markup

_UNSEEN = re.compile(r"[^\n\x20-\x7e]")


def piece(template: str, name: str, *parts: Any) -> str:
    """Write one element with the macro ``name`` of a template."""
    return seen(str(_macro(template, name)(*parts)))


def page(drawing: Drawing, root: str) -> str:
    """Write a whole page; ``root`` leads from it to the page of the node, so that any sub-path will do."""
    text = (
        environment()
        .get_template(drawing.layout)
        .render(
            drawing=drawing,
            root=root,
            version=__version__,
            piece=lambda name: Markup(drawing.pieces[name]),  # noqa: S704 - written by piece()
            **drawing.facts,
        )
    )
    return seen(text)


def seen(html: str) -> str:
    """Show control and bidi characters, which could hide or turn a name around, as escapes."""
    if html.replace("\n", "").isprintable():
        return html
    return _UNSEEN.sub(lambda found: printable(found.group()), html)


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("exporter.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {name: getattr(markup, name) for name in markup.__all__}
    return made


@cache
def _macro(template: str, name: str) -> Callable[..., Markup]:
    macro: Callable[..., Markup] = getattr(environment().get_template(template).module, name)
    return macro
