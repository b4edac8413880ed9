"""Authentication and rate limit of requests, and the configured headers of responses."""

import asyncio
import base64
import binascii
import hmac
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from aiohttp import web

from exporter.web.kit.auth.access import WebAccess
from exporter.web.kit.http.connections import RareWarning
from exporter.web.kit.http.responses import add_headers

log = logging.getLogger(__name__)
MOST_KNOWN = 256
MOST_WAITING = 32
# bcrypt ignores the bytes of a password after these.
_MOST_PASSWORD = 72
# Seconds until a client may try again whose password was not checked.
RETRY_SECONDS = 2.0
CHALLENGE = 'Basic realm="gpuslice-exporter", charset="UTF-8"'
# The kubelet has no password; these return nothing but the health of the process.
PROBES = ("/-/healthy", "/-/ready")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TooManyChecksError(Exception):
    """The password was not checked, because too many others wait to be checked."""


class Passwords:
    """Checks passwords one at a time."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._right: dict[bytes, None] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0
        # One thread, since a check goes on when its client disconnects.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="passwords")
        self._warn = RareWarning(log)

    async def are_right(
        self, users: Mapping[bytes, bytes], user: bytes, password: bytes, client: str
    ) -> bool:
        """Return whether this is the password of this user; raises TooManyChecksError.

        ``users`` are bcrypt hashes by name, at least one.
        """
        # An unknown user is checked too, against the most expensive hash, so that it takes no less time.
        exists = user in users
        hashed = users[user] if exists else max(users.values(), key=lambda other: other[4:6])
        password = password[:_MOST_PASSWORD]
        key = hmac.digest(self._secret, repr((exists, user, hashed, password)).encode(), "sha256")
        if key in self._right:
            return True
        if self._waiting >= MOST_WAITING:
            raise TooManyChecksError
        self._waiting += 1
        try:
            async with self._turn:
                # Another request may have checked it meanwhile.
                if key in self._right or (await self._matches(password, hashed) and exists):
                    self._remember(key)
                    return True
        finally:
            self._waiting -= 1
        self._warn("wrong user name or password from %s; not logged again for a minute", client)
        return False

    def close(self) -> None:
        """Drop all checks that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _remember(self, key: bytes) -> None:
        self._right[key] = None
        if len(self._right) > MOST_KNOWN:
            del self._right[next(iter(self._right))]

    async def _matches(self, password: bytes, hashed: bytes) -> bool:
        """Return whether a password matches, compared in constant time."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, bcrypt.checkpw, password, hashed
            )
        except ValueError:  # some versions of bcrypt reject passwords with a zero byte
            return False


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
