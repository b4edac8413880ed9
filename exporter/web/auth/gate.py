"""What a request has to show before it is answered, and what every answer says for it."""

import base64
import binascii
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from exporter.web.auth.passwords import Budget, Passwords, TooManyGuessesError
from exporter.web.auth.reload import WebAccess
from exporter.web.http.handler import client_of
from exporter.web.http.responses import say_also

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHALLENGE = 'Basic realm="gpuslice-exporter", charset="UTF-8"'
# The kubelet asks these, and has no password; they tell nothing but how the program is.
PROBES = ("/-/healthy", "/-/ready")


class Gate:
    """Asks for passwords and keeps to the rate, by the configuration that is in force."""

    def __init__(self, access: WebAccess, passwords: Passwords | None = None) -> None:
        self._access = access
        self._passwords = passwords or Passwords()
        self._rate: tuple[float, int] = (0.0, 0)
        self._requests: Budget | None = None

    def guard(self, app: web.Application) -> None:
        """Stand before all routes of an application, behind what words its errors."""
        app.middlewares.append(self._middleware())
        say_also(app, lambda: self._access.config.headers)

    def close(self) -> None:
        """Check no passwords any more."""
        self._passwords.close()

    def _middleware(self) -> Any:
        @web.middleware
        async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not _is_probe(request):
                await self._ask_for_password(request)
                # After the password, or anybody could use up what those who have one need.
                self._keep_to_rate()
            return await handler(request)

        return ask

    def _keep_to_rate(self) -> None:
        config = self._access.config
        if not config.interval:
            return
        if self._requests is None or self._rate != (config.interval, config.burst):
            self._rate = (config.interval, config.burst)
            self._requests = Budget(config.burst, 1 / config.interval, time.monotonic)
        if self._requests.left < 1:
            raise _too_many("More requests come than rate_limit allows.", self._requests.seconds_until(1))
        self._requests.take()

    async def _ask_for_password(self, request: web.Request) -> None:
        users = self._access.config.users
        if not users:
            return
        said = _credentials(request.headers.get("Authorization", ""))
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        try:
            if said is not None and await self._passwords.are_right(users, *said, client_of(peer)):
                return
        except TooManyGuessesError as error:
            raise _too_many("Too many passwords were tried.", error.retry) from None
        sentence = "A user name and its password are needed here." if said is None else "They are not right."
        raise web.HTTPUnauthorized(
            text=sentence, headers={"WWW-Authenticate": CHALLENGE, "Cache-Control": "no-store"}
        )


def _is_probe(request: web.Request) -> bool:
    """Go by the route that was found, and not by what the request spells."""
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical.endswith(PROBES)


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    """Read user and password from a header; None where it has none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def _too_many(sentence: str, seconds: float) -> web.HTTPTooManyRequests:
    retry = {"Retry-After": str(max(1, math.ceil(seconds))), "Cache-Control": "no-store"}
    return web.HTTPTooManyRequests(text=sentence, headers=retry)
