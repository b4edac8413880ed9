"""History from memory, and of longer ranges from a Prometheus."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from exporter.history import Ask, NotKeptError, Past, PastReader
from exporter.history.spans import span_text
from exporter.prometheus.answers import PrometheusError
from exporter.prometheus.past_queries import PrometheusHistory

# Seconds. Memory has ranges up to this in finer steps than scrapes, even if it has only a part of them.
SHORT: Final = 600.0
# Seconds until a range that failed is queried again, in the background.
RETRY_AFTER: Final = 15.0
# The last step still changes, so an answer is valid for this part of a step.
_PART_OF_STEP: Final = 0.25
_LONGEST_VALID: Final = 60.0
# Before the first poll there is no GPU to query, and a new Prometheus may be about to scrape.
_LONGEST_EMPTY: Final = 5.0
_MOST_ANSWERS: Final = 8
_MOST_FAILURES: Final = 32


class _Failure(NamedTuple):
    why: str
    until: float  # time of the next try


@dataclass(slots=True)
class _Answer:
    task: "asyncio.Task[Past]"
    until: float = field(default=float("inf"))  # time until which the result is valid


@dataclass(eq=False)
class LongerHistory:
    """Reads the last ``kept`` seconds from ``near`` (memory), and all else from ``far`` (Prometheus).

    If ``far`` fails or is None, the result is what memory has, with a note. ``clock`` returns monotonic
    seconds, ``wall`` the Unix time.
    """

    near: PastReader
    far: PrometheusHistory | None
    _: KW_ONLY
    kept: float
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _answers: dict[Ask, _Answer] = field(default_factory=dict, init=False)
    # By range, because shorter ones may work if one takes too long.
    _failures: dict[float, _Failure] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._began = self.wall()

    async def read(self, ask: Ask) -> Past:
        """Return the requested history; raises NotKeptError if neither source has any of it."""
        if self._is_near(ask):
            return await self.near.read(ask)
        if self.far is None:
            return await self._shortened(ask, "longer spans need --prometheus-url")
        failure = self._failures.get(ask.span)
        if failure is not None:
            if self.clock() >= failure.until:
                self._ask(self.far, ask)
            return await self._shortened(ask, failure.why)
        try:
            # Shielded: a client that disconnects must not cancel the query for the others.
            past = await asyncio.shield(self._ask(self.far, ask))
        except PrometheusError as error:
            return await self._shortened(ask, str(error))
        return past if past.tracks else await self._shortened(ask, past.note)

    async def close(self) -> None:
        """Cancel pending queries and close the connections to Prometheus."""
        tasks = [answer.task for answer in self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.far is not None:
            await self.far.close()

    def _is_near(self, ask: Ask) -> bool:
        """Return whether memory has all of a range, or as much as Prometheus."""
        now = self.wall()
        start = (now if ask.end is None else ask.end) - ask.span
        if start < now - self.kept:
            return False
        return self.far is None or ask.span <= SHORT or start >= self._began

    def _ask(self, far: PrometheusHistory, ask: Ask) -> "asyncio.Task[Past]":
        """Return the task of a query, started unless it is pending or its result is still valid."""
        now = self.clock()
        valid = {question: answer for question, answer in self._answers.items() if now < answer.until}
        self._answers = dict(list(valid.items())[-_MOST_ANSWERS:])
        answer = self._answers.get(ask)
        if answer is None:
            answer = self._answers[ask] = _Answer(asyncio.ensure_future(far.read(ask)))
            answer.task.add_done_callback(partial(self._settle, ask, answer))
        return answer.task

    def _settle(self, ask: Ask, answer: _Answer, task: "asyncio.Task[Past]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            past = task.result()
            longest = _LONGEST_VALID if past.tracks else _LONGEST_EMPTY
            answer.until = self.clock() + min(past.step * _PART_OF_STEP, longest)
            self._failures.pop(ask.span, None)
            return
        answer.until = 0.0
        if isinstance(error, PrometheusError):
            self._failures.pop(ask.span, None)
            self._failures[ask.span] = _Failure(str(error), self.clock() + RETRY_AFTER)
            # Clients may request any range, so the oldest failure is dropped.
            for span in list(self._failures)[:-_MOST_FAILURES]:
                del self._failures[span]

    async def _shortened(self, ask: Ask, why: str) -> Past:
        """Return what memory has of a range; raises NotKeptError if it has nothing."""
        now = self.wall()
        ago = 0.0 if ask.end is None else max(0.0, now - ask.end)
        span = min(ask.span, self.kept - ago)
        try:
            past = await self.near.read(replace(ask, span=span if span > 0 else ask.span))
        except NotKeptError as error:
            raise NotKeptError(f"{error}; {why}") from None
        note = f"Only history from memory is shown, at most {span_text(self.kept)}: {why}"
        return replace(past, note="; ".join(filter(None, (note, past.note))))
