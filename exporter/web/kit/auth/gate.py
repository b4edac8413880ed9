"""Authentication and rate limit of requests, and the configured headers of responses."""

import base64
import binascii
import math
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from exporter.web.kit.auth.access import WebAccess
from exporter.web.kit.auth.passwords import Passwords, TokenBucket, TooManyGuessesError
from exporter.web.kit.http.handler import client_of
from exporter.web.kit.http.responses import add_headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHALLENGE = 'Basic realm="gpuslice-exporter", charset="UTF-8"'
# The kubelet has no password; these return nothing but the health of the process.
PROBES = ("/-/healthy", "/-/ready")


class Gate:
    """Checks passwords and the rate of requests, by the current configuration."""

    def __init__(self, access: WebAccess) -> None:
        self._access = access
        self._passwords = Passwords()
        # The limit of requests; it restarts if the file changes the rate.
        self._rate: tuple[float, int] | None = None
        self._requests: TokenBucket | None = None

    def guard(self, app: web.Application) -> None:
        """Guard all routes of an application; call it after ``answer_errors``, which renders refusals."""

        @web.middleware
        async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
            # By its route, since paths have several spellings.
            resource = request.match_info.route.resource
            if resource is None or not resource.canonical.endswith(PROBES):
                await self._ask_for_password(request)
                # After the password: clients without one must not use up the rate of the others.
                self._keep_to_rate()
            return await handler(request)

        app.middlewares.append(ask)
        add_headers(app, lambda: self._access.config.headers)

    def close(self) -> None:
        """Stop checking passwords."""
        self._passwords.close()

    def _keep_to_rate(self) -> None:
        config = self._access.config
        if not config.interval:
            return
        requests = self._bucket(config.interval, config.burst)
        if requests.left < 1:
            raise _too_many("Too many requests: rate_limit is exceeded.", requests.seconds_until(1))
        requests.take()

    def _bucket(self, interval: float, burst: int) -> TokenBucket:
        if self._requests is None or self._rate != (interval, burst):
            self._rate, self._requests = (interval, burst), TokenBucket(burst, 1 / interval, time.monotonic)
        return self._requests

    async def _ask_for_password(self, request: web.Request) -> None:
        users = self._access.config.users
        if not users:
            return
        credentials = _credentials(request.headers.get("Authorization", ""))
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        try:
            if credentials and await self._passwords.are_right(users, *credentials, client_of(peer)):
                return
        except TooManyGuessesError as error:
            raise _too_many("Too many wrong passwords.", error.retry) from None
        sentence = (
            "The user name or password is wrong." if credentials else "A user name and password are required."
        )
        raise web.HTTPUnauthorized(
            text=sentence, headers={"WWW-Authenticate": CHALLENGE, "Cache-Control": "no-store"}
        )


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of an Authorization header (RFC 7617), None if it has none."""
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
