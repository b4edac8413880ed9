"""Parameters of requests: the form of the response, and values given once."""

from collections.abc import Collection, Mapping

from aiohttp import web
from multidict import MultiMapping

from exporter.exposition.negotiation import media_quality


def prefers_html(request: web.Request) -> bool:
    """Return whether the client accepts HTML, as browsers do, and does not prefer plain text."""
    accept = request.headers.get("Accept", "")
    html = media_quality(accept, "text/html")
    return html > 0 and html >= media_quality(accept, "text/plain")


def requested_format(request: web.Request, formats: Mapping[str, str]) -> str:
    """Return the format that the parameter ``format`` names, else the one that the client prefers.

    ``formats`` are content types by name; the first is the default. Raises HTTPBadRequest for another name.
    """
    accept = request.headers.get("Accept", "")
    return one_of(request.query, "format", formats) or max(
        formats, key=lambda name: media_quality(accept, formats[name].partition(";")[0])
    )


def require_json(request: web.Request) -> None:
    """Raise HTTPBadRequest if the parameter ``format`` names another format than JSON, the only one."""
    one_of(request.query, "format", ("json",))


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


def short_texts(parameters: MultiMapping[str], name: str, longest: int) -> tuple[str, ...]:
    """Return different texts of 1 to ``longest`` characters, which are repeated or separated by commas.

    Raises HTTPBadRequest for an empty or a longer one.
    """
    texts = [text for value in parameters.getall(name, []) for text in value.split(",")]
    if not all(1 <= len(text) <= longest for text in texts):
        raise web.HTTPBadRequest(
            text=f"The {name} must have 1 to {longest} characters; separate several with commas."
        )
    return tuple(dict.fromkeys(texts))


def short_text(parameters: MultiMapping[str], name: str, longest: int) -> str | None:
    """Return a text of 1 to ``longest`` characters, None if it is absent; else raises HTTPBadRequest."""
    text = given_once(parameters, name)
    if text is not None and not 1 <= len(text) <= longest:
        raise web.HTTPBadRequest(text=f"The {name} must have 1 to {longest} characters.")
    return text
