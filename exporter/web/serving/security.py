"""What browsers are told to keep a page of ours to: itself."""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

# Plotly adds a style element that is empty; this is the hash of nothing.
_EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": f"'self' {_EMPTY}",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "font-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
_UNUSED = ("camera", "display-capture", "geolocation", "microphone", "payment", "usb")


def security_headers(frame_ancestors: Sequence[str] = ()) -> Mapping[str, str]:
    """Make the headers of every answer; ``frame_ancestors`` are ``self`` and origins that may frame it."""
    ancestors = ["'self'" if origin == "self" else origin for origin in frame_ancestors] or ["'none'"]
    policy = _POLICY | {"frame-ancestors": " ".join(ancestors)}
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in _UNUSED),
        # Which versions of what answer here is told to nobody who does not ask /metrics.
        "Server": "gpuslice-exporter",
    }
    # The older header knows no list of origins; where there is one, browsers go by the policy.
    if not frame_ancestors:
        headers["X-Frame-Options"] = "DENY"
    elif set(frame_ancestors) == {"self"}:
        headers["X-Frame-Options"] = "SAMEORIGIN"
    return headers


Headers = Callable[[], Mapping[str, str]]
_SAID = web.AppKey("_SAID", list[Headers])


def secure(app: web.Application, frame_ancestors: Sequence[str] = ()) -> None:
    """Put the headers on every answer of an application, just before it is sent: on streams too."""
    ours = security_headers(frame_ancestors)
    app[_SAID] = [lambda: ours]

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(headers_of(app))
        # Browsers heed this only over HTTPS and from their own machine, and complain about it elsewhere;
        # where they heed it they also say how they fetch.
        if "Sec-Fetch-Mode" in request.headers:
            response.headers["Cross-Origin-Opener-Policy"] = "same-origin"

    app.on_response_prepare.append(add)


def say_also(app: web.Application, headers: Headers) -> None:
    """Put further headers on every answer of an application that is secured, in place of those before."""
    app[_SAID].append(headers)


def headers_of(app: web.Application) -> Mapping[str, str]:
    """Give what every answer of an application says now."""
    first, *others = app.get(_SAID) or (dict,)
    if not others:
        return first()
    return {name: value for headers in (first, *others) for name, value in headers().items()}
