"""Parameters in the query of a URL that are given once, or refused with a sentence that names them."""

from collections.abc import Collection

from aiohttp import web
from multidict import MultiMapping


def given_once(parameters: MultiMapping[str], name: str) -> str | None:
    """Return the value of a parameter, None if it is absent; raises HTTPBadRequest if it is repeated."""
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise web.HTTPBadRequest(text=f"The {name} must be given once.")
    return values[0] if values else None


def one_of(parameters: MultiMapping[str], name: str, options: Collection[str]) -> str | None:
    """Return which option a parameter names, None if it is absent.

    Raises HTTPBadRequest if the value is empty, repeated or not an option.
    """
    values = parameters.getall(name, [])
    if values and (len(values) > 1 or values[0] not in options):
        once = ", given once" if len(values) > 1 else ""
        raise web.HTTPBadRequest(text=f"The {name} must be one of {', '.join(options)}{once}.")
    return values[0] if values else None


def short_text(parameters: MultiMapping[str], name: str, longest: int) -> str | None:
    """Return a text of 1 to ``longest`` characters, None if it is absent; else raises HTTPBadRequest."""
    text = given_once(parameters, name)
    if text is not None and not 1 <= len(text) <= longest:
        raise web.HTTPBadRequest(text=f"The {name} must have 1 to {longest} characters.")
    return text
