"""Checking passwords against bcrypt hashes, which is slow by design, within a limited CPU budget.

- Results are cached under a keyed digest, so that a Prometheus with a right or an old password costs nothing.
- All other checks run one at a time in one thread, and take at most a tenth of one core on average.
- Each client has a budget of guesses. Clients without wrong guesses come first, so that one with the right
  password is let in while others guess.
- A user that does not exist takes as long as one that does.
"""

import asyncio
import hmac
import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import bcrypt

Clock = Callable[[], float]
MOST_CLIENTS = 4096


class TokenBucket:
    """A token bucket of size ``most``, refilled by ``rate`` per second; ``clock`` returns seconds."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most = most
        self._rate = rate
        self._clock = clock
        self._left = most
        self._at = clock()

    @property
    def left(self) -> float:
        """The current amount; negative if more was taken than there was."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left

    @property
    def full(self) -> bool:
        """Whether nothing is missing."""
        return self.left >= self._most

    def take(self, amount: float = 1.0) -> None:
        """Take an amount, even if less is left."""
        self._left = self.left - amount

    def give_back(self) -> None:
        """Return 1 to the bucket."""
        self._left = min(self._most, self.left + 1)

    def seconds_until(self, amount: float) -> float:
        """Return the seconds until this amount is left."""
        return max(0.0, (amount - self.left) / self._rate)


def token_buckets(most: float, rate: float, clock: Clock) -> Callable[[str], TokenBucket]:
    """Return a function that returns the bucket of a client; the least recently used ones are dropped."""
    return lru_cache(MOST_CLIENTS)(lambda _client: TokenBucket(most, rate, clock))


log = logging.getLogger(__name__)
# CPU seconds per second on average, and in one burst.
SHARE_OF_CPU = 0.1
CPU_AT_ONCE = 2.0
# Guesses of one client: in one burst, and per second on average.
GUESSES = 5.0
GUESSES_PER_SECOND = 0.1
MOST_WAITING = 16
# Requests that wait for the same check. Limited, because each holds a connection, or memory if its client has
# disconnected.
MOST_SHARING = 32
MOST_KNOWN = 256
# Seconds between log lines about wrong passwords.
_QUIET = 60.0
# bcrypt ignores the bytes of a password after these.
_MOST_PASSWORD = 72


class TooManyGuessesError(Exception):
    """The password was not checked; the client may retry after ``retry`` seconds."""

    def __init__(self, retry: float) -> None:
        super().__init__(retry)
        self.retry = retry


@dataclass(slots=True, kw_only=True, eq=False)
class _Check:
    key: bytes
    password: bytes
    hashed: bytes
    exists: bool
    client: str
    clean: bool  # whether the client has no recent wrong guess
    answer: "asyncio.Future[bool]"
    sharing: int = 0  # number of requests that wait for it


class Passwords:
    """Checks passwords with a CPU budget of ``share`` and ``at_once``."""

    def __init__(self, *, share: float = SHARE_OF_CPU, at_once: float = CPU_AT_ONCE) -> None:
        self._secret = os.urandom(32)
        self._right = _Known()
        self._wrong = _Known()
        self._cpu = TokenBucket(at_once, share, time.monotonic)
        self._guesses_of = token_buckets(GUESSES, GUESSES_PER_SECOND, time.monotonic)
        self._checks: dict[bytes, _Check] = {}
        self._running: asyncio.Task[None] | None = None
        self._logged_at = -math.inf
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="passwords")

    async def are_right(
        self, users: Mapping[bytes, bytes], user: bytes, password: bytes, client: str
    ) -> bool:
        """Return whether this is the password of this user; raises TooManyGuessesError.

        ``users`` are bcrypt hashes by name, at least one.
        """
        hashed = users.get(user)
        # An unknown user is checked too, against the most expensive hash, so that it takes no less time.
        against = hashed or max(users.values(), key=lambda other: other[4:6])
        key = hmac.digest(
            self._secret, repr((hashed is not None, user, against, password)).encode(), "sha256"
        )
        if key in self._right:
            return True
        if key in self._wrong:
            return False
        check = self._checks.get(key)
        if check is None:
            check = self._enqueue(key, password[:_MOST_PASSWORD], against, hashed is not None, client)
        if check.sharing >= MOST_SHARING:
            raise TooManyGuessesError(self._cpu.seconds_until(0) + 1)
        check.sharing += 1
        try:
            # Shielded: a client that disconnects must not cancel it for the others.
            return await asyncio.shield(check.answer)
        finally:
            check.sharing -= 1

    def close(self) -> None:
        """Cancel all checks."""
        if self._running is not None:
            self._running.cancel()
        for check in self._checks.values():
            check.answer.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _enqueue(self, key: bytes, password: bytes, hashed: bytes, exists: bool, client: str) -> _Check:
        guesses = self._guesses_of(client)
        if guesses.left < 1:
            raise TooManyGuessesError(guesses.seconds_until(1))
        clean = guesses.full
        if len(self._checks) >= MOST_WAITING:
            self._make_room(clean)
        guesses.take()
        check = _Check(
            key=key,
            password=password,
            hashed=hashed,
            exists=exists,
            client=client,
            clean=clean,
            answer=asyncio.get_running_loop().create_future(),
        )
        # Retrieved, or asyncio logs an error if no request waits for it any more.
        check.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._checks[key] = check
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="passwords")
        return check

    def _make_room(self, clean: bool) -> None:
        """Drop the last check of a guessing client for one of a clean client; raises TooManyGuessesError."""
        retry = self._cpu.seconds_until(0) + 1
        victim = next((check for check in reversed(self._checks.values()) if not check.clean), None)
        if victim is None or not clean:
            raise TooManyGuessesError(retry)
        del self._checks[victim.key]
        if not victim.answer.done():
            victim.answer.set_exception(TooManyGuessesError(retry))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._checks:
            await asyncio.sleep(self._cpu.seconds_until(0))
            checks = list(self._checks.values())
            check = next((check for check in checks if check.clean), checks[0])
            matches, seconds = await loop.run_in_executor(self._thread, _verify, check)
            self._cpu.take(seconds)
            self._note(check, matches and check.exists)

    def _note(self, check: _Check, right: bool) -> None:
        if right:
            self._right.add(check.key)
            self._guesses_of(check.client).give_back()
        else:
            self._wrong.add(check.key)
            now = time.monotonic()
            if now - self._logged_at >= _QUIET:
                self._logged_at = now
                log.warning(
                    "wrong user name or password from %s; not logged again for a minute", check.client
                )
        self._checks.pop(check.key, None)
        if not check.answer.done():
            check.answer.set_result(right)


class _Known:
    """The digests used most recently."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        if key not in self._keys:
            return False
        self._keys.move_to_end(key)
        return True

    def add(self, key: bytes) -> None:
        self._keys[key] = None
        if len(self._keys) > MOST_KNOWN:
            self._keys.popitem(last=False)


def _verify(check: _Check) -> tuple[bool, float]:
    """Return whether a password matches, compared in constant time, and the CPU seconds of this thread."""
    started = time.thread_time()
    try:
        matches = bcrypt.checkpw(check.password, check.hashed)
    except ValueError:  # some versions of bcrypt reject passwords with a zero byte
        matches = False
    return matches, time.thread_time() - started
