"""Checking passwords against bcrypt hashes, which is slow by design, at a price that is limited.

- What was found right or wrong once is known by a digest under a key of this process; nothing is computed
  again for a Prometheus that scrapes, nor for one with an old password.
- All other checks run one after the other in one thread, and take a tenth of one core in the long run.
- A client that guesses gets a few guesses, and then one every now and then. Clients without failures come
  before those with some, so that one with the right password gets in while others guess.
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

import bcrypt

Clock = Callable[[], float]
MOST_CLIENTS = 4096


class Budget:
    """Holds up to ``most``, and gets ``rate`` per second; ``clock`` gives seconds."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most = most
        self._rate = rate
        self._clock = clock
        self._left = most
        self._at = clock()

    @property
    def left(self) -> float:
        """How much is there now; less than nothing where more was taken than there was."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left

    @property
    def full(self) -> bool:
        """Whether all is there."""
        return self.left >= self._most

    def take(self, amount: float = 1.0) -> None:
        """Take an amount, which need not be there."""
        self._left = self.left - amount

    def give_back(self, amount: float = 1.0) -> None:
        """Undo that."""
        self._left = min(self._most, self.left + amount)

    def seconds_until(self, amount: float) -> float:
        """Tell how long it takes until so much is there."""
        return max(0.0, (amount - self.left) / self._rate)


class Budgets:
    """A budget for each client; those who have not taken from it for the longest time are forgotten."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most = most
        self._rate = rate
        self._clock = clock
        self._of: OrderedDict[str, Budget] = OrderedDict()

    def of(self, client: str) -> Budget:
        """Give the budget of a client."""
        budget = self._of.setdefault(client, Budget(self._most, self._rate, self._clock))
        self._of.move_to_end(client)
        if len(self._of) > MOST_CLIENTS:
            self._of.popitem(last=False)
        return budget


log = logging.getLogger(__name__)
# Of one core, in the long run, and at once: seconds of CPU.
SHARE_OF_CPU = 0.1
CPU_AT_ONCE = 2.0
# Guesses of one client: at once, and per second in the long run.
GUESSES = 5.0
GUESSES_PER_SECOND = 0.1
MOST_WAITING = 16
# Requests that wait for the same check. Together they leave places to others, since each of them holds a
# connection, or, when its client has gone, memory.
MOST_SHARING = 32
MOST_KNOWN = 256
# That somebody guesses is worth a line so often, in seconds.
_QUIET = 60.0
# bcrypt looks at no more of a password than this, in bytes.
_MOST_PASSWORD = 72


class TooManyGuessesError(Exception):
    """Not checked now; ``retry`` is when to come again, in seconds."""

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
    clean: bool
    answer: "asyncio.Future[bool]"
    sharing: int = 0


class Passwords:
    """Knows which passwords are right; ``clock`` gives seconds."""

    def __init__(
        self, *, share: float = SHARE_OF_CPU, at_once: float = CPU_AT_ONCE, clock: Clock = time.monotonic
    ) -> None:
        self._secret = os.urandom(32)
        self._right = _Known()
        self._wrong = _Known()
        self._cpu = Budget(at_once, share, clock)
        self._guesses = Budgets(GUESSES, GUESSES_PER_SECOND, clock)
        self._checks: dict[bytes, _Check] = {}
        self._running: asyncio.Task[None] | None = None
        self._clock = clock
        self._told = -math.inf
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="passwords")

    async def are_right(
        self, users: Mapping[bytes, bytes], user: bytes, password: bytes, client: str
    ) -> bool:
        """Tell whether this is the password of this user; raises TooManyGuessesError.

        ``users`` have bcrypt hashes, and there is at least one.
        """
        hashed = users.get(user)
        # Checked in vain for a user that does not exist; the dearest, so that it takes no less time.
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
            # One who goes away must not take the answer from the others who wait for it.
            return await asyncio.shield(check.answer)
        finally:
            check.sharing -= 1

    def close(self) -> None:
        """Check nothing any more."""
        if self._running is not None:
            self._running.cancel()
        for check in self._checks.values():
            check.answer.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _enqueue(self, key: bytes, password: bytes, hashed: bytes, exists: bool, client: str) -> _Check:
        guesses = self._guesses.of(client)
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
        # Nobody may be waiting any more; that is no error.
        check.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._checks[key] = check
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="passwords")
        return check

    def _make_room(self, clean: bool) -> None:
        """Send the last one who guesses away for one who does not; raises TooManyGuessesError."""
        retry = self._cpu.seconds_until(0) + 1
        victim = next((each for each in reversed(self._checks.values()) if not each.clean), None)
        if victim is None or not clean:
            raise TooManyGuessesError(retry)
        del self._checks[victim.key]
        if not victim.answer.done():
            victim.answer.set_exception(TooManyGuessesError(retry))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._checks:
            await asyncio.sleep(self._cpu.seconds_until(0))
            check = next((each for each in self._checks.values() if each.clean), None)
            check = check or next(iter(self._checks.values()))
            matches, seconds = await loop.run_in_executor(self._thread, _verify, check)
            self._cpu.take(seconds)
            self._note(check, matches and check.exists)

    def _note(self, check: _Check, right: bool) -> None:
        if right:
            self._right.add(check.key)
            self._guesses.of(check.client).give_back()
        else:
            self._wrong.add(check.key)
            self._tell(check.client)
        self._checks.pop(check.key, None)
        if not check.answer.done():
            check.answer.set_result(right)

    def _tell(self, client: str) -> None:
        now = self._clock()
        if now - self._told >= _QUIET:
            self._told = now
            log.warning("wrong user name or password from %s; not logged again for a minute", client)


class _Known:
    """The newest of what is known, by its digest."""

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
    """Compare in constant time; the seconds are those of this thread's CPU."""
    started = time.thread_time()
    try:
        matches = bcrypt.checkpw(check.password, check.hashed)
    except ValueError:  # some versions refuse what no password has, such as a zero byte
        matches = False
    return matches, time.thread_time() - started
