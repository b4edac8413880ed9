"""History from memory, and of longer ranges from a Prometheus."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from exporter.history.past import NotKeptError, Past, PastReader, Wanted
from exporter.history.ring import span_text
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


class _Question(NamedTuple):
    span: float
    end: float | None
    points: int
    wanted: Wanted


class _Failure(NamedTuple):
    why: str
    until: float  # time of the next try


@dataclass(slots=True)
class _Answer:
    task: "asyncio.Task[Past]"
    until: float = field(default=float("inf"))  # time until which the result is valid


class LongerHistory:
    """Reads the last ``kept`` seconds from ``near`` (memory), and all else from ``far`` (Prometheus).

    If ``far`` fails or is None, the result is what memory has, with a note. ``clock`` returns monotonic
    seconds, ``wall`` the Unix time.
    """

    def __init__(
        self,
        near: PastReader,
        far: PrometheusHistory | None,
        *,
        kept: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._near = near
        self._far = far
        self._kept = kept
        self._clock = clock
        self._wall = wall
        self._began = wall()
        self._answers: dict[_Question, _Answer] = {}
        # By range, because shorter ones may work if one takes too long.
        self._failures: dict[float, _Failure] = {}

    async def read(self, *, span: float, end: float | None, points: int, wanted: Wanted) -> Past:
        """Return ``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps.

        Raises NotKeptError if neither source has any of it.
        """
        asked = _Question(span, end, points, wanted)
        if self._is_near(asked):
            return await self._near.read(span=span, end=end, points=points, wanted=wanted)
        if self._far is None:
            return await self._shortened(asked, "longer spans need --prometheus-url")
        failure = self._failures.get(span)
        if failure is not None:
            if self._clock() >= failure.until:
                self._ask(self._far, asked)
            return await self._shortened(asked, failure.why)
        try:
            # Shielded: a client that disconnects must not cancel the query for the others.
            past = await asyncio.shield(self._ask(self._far, asked))
        except PrometheusError as error:
            return await self._shortened(asked, str(error))
        if past.tracks:
            return past
        return await self._shortened(asked, past.note)

    async def close(self) -> None:
        """Cancel pending queries and close the connections to Prometheus."""
        tasks = [answer.task for answer in self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._far is not None:
            await self._far.close()

    def _is_near(self, asked: _Question) -> bool:
        """Return whether memory has all of a range, or as much as Prometheus."""
        now = self._wall()
        start = (now if asked.end is None else asked.end) - asked.span
        if start < now - self._kept:
            return False
        return self._far is None or asked.span <= SHORT or start >= self._began

    def _ask(self, far: PrometheusHistory, asked: _Question) -> "asyncio.Task[Past]":
        """Return the task of a query, started unless it is pending or its result is still valid."""
        now = self._clock()
        valid = {question: answer for question, answer in self._answers.items() if now < answer.until}
        self._answers = dict(list(valid.items())[-_MOST_ANSWERS:])
        answer = self._answers.get(asked)
        if answer is None:
            reading = far.read(span=asked.span, end=asked.end, points=asked.points, wanted=asked.wanted)
            answer = self._answers[asked] = _Answer(asyncio.ensure_future(reading))
            answer.task.add_done_callback(partial(self._settle, asked, answer))
        return answer.task

    def _settle(self, asked: _Question, answer: _Answer, task: "asyncio.Task[Past]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            past = task.result()
            longest = _LONGEST_VALID if past.tracks else _LONGEST_EMPTY
            answer.until = self._clock() + min(past.step * _PART_OF_STEP, longest)
            self._failures.pop(asked.span, None)
            return
        answer.until = 0.0
        if isinstance(error, PrometheusError):
            self._failures.pop(asked.span, None)
            self._failures[asked.span] = _Failure(str(error), self._clock() + RETRY_AFTER)
            # Clients may request any range, so the oldest failure is dropped.
            for span in list(self._failures)[:-_MOST_FAILURES]:
                del self._failures[span]

    async def _shortened(self, asked: _Question, why: str) -> Past:
        """Return what memory has of a range; raises NotKeptError if it has nothing."""
        now = self._wall()
        ago = 0.0 if asked.end is None else max(0.0, now - asked.end)
        span = min(asked.span, self._kept - ago)
        try:
            past = await self._near.read(
                span=span if span > 0 else asked.span, end=asked.end, points=asked.points, wanted=asked.wanted
            )
        except NotKeptError as error:
            raise NotKeptError(f"{error}; {why}") from None
        note = f"Only history from memory is shown, at most {span_text(self._kept)}: {why}"
        return replace(past, note="; ".join(filter(None, (note, past.note))))
