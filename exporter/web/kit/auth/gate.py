"""Authentication and rate limit of requests, and the configured headers of responses."""

import base64
import binascii
import math
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from exporter.web.kit.auth.access import WebAccess
from exporter.web.kit.auth.passwords import Passwords, TooManyChecksError
from exporter.web.kit.http.responses import add_headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHALLENGE = 'Basic realm="gpuslice-exporter", charset="UTF-8"'
# The kubelet has no password; these return nothing but the health of the process.
PROBES = ("/-/healthy", "/-/ready")
# Seconds until a client may try again whose password was not checked.
RETRY_SECONDS = 2.0


class TokenBucket:
    """``burst`` tokens at most, and a new one every ``interval`` seconds."""

    def __init__(self, interval: float, burst: int) -> None:
        self.interval = interval
        self.burst = burst
        # When all tokens are there again.
        self._full_at = -math.inf

    def take(self) -> float:
        """Take a token, and return 0; if there is none, return the seconds until there is."""
        now = time.monotonic()
        until_full = max(self._full_at - now, 0.0)
        wait = until_full - (self.burst - 1) * self.interval
        if wait > 0:
            return wait
        self._full_at = now + until_full + self.interval
        return 0.0


class Gate:
    """Checks passwords and the rate of requests, by the current configuration."""

    def __init__(self, access: WebAccess) -> None:
        self._access = access
        self._passwords = Passwords()
        self._requests = TokenBucket(0, 0)

    def guard(self, app: web.Application) -> None:
        """Guard all routes of an application, within the middlewares that it has."""

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
        interval, burst = self._access.config.interval, self._access.config.burst
        if not interval:
            return
        if (self._requests.interval, self._requests.burst) != (interval, burst):
            self._requests = TokenBucket(interval, burst)
        seconds = self._requests.take()
        if seconds:
            raise _too_many("Too many requests: rate_limit is exceeded.", seconds)

    async def _ask_for_password(self, request: web.Request) -> None:
        users = self._access.config.users
        if not users:
            return
        credentials = _credentials(request.headers.get("Authorization", ""))
        try:
            if credentials and await self._passwords.are_right(users, *credentials, request.remote or ""):
                return
        except TooManyChecksError:
            raise _too_many("Too many passwords wait to be checked.", RETRY_SECONDS) from None
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
