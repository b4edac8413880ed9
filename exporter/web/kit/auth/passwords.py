"""Checking passwords against bcrypt hashes, which is slow by design.

- Right passwords are cached under a keyed digest, so that only the first request of a client is slow.
- All others are checked one at a time, in a thread; few may wait for that.
- A user that does not exist takes as long as one that does.
"""

import asyncio
import hmac
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt

from exporter.web.kit.http.rare_warning import RareWarning

log = logging.getLogger(__name__)
MOST_KNOWN = 256
MOST_WAITING = 32
# bcrypt ignores the bytes of a password after these.
_MOST_PASSWORD = 72


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
