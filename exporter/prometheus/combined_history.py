"""The past of a node as far back as anybody knows: from memory, and before that from a Prometheus."""

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

# So short a span memory has in finer steps than scrapes, even where it has only a part of it.
SHORT: Final = 600.0
# A span that could not be told is asked for again after this, and nobody waits for it.
RETRY_AFTER: Final = 15.0
# The last step still changes, so an answer is good for a part of it only.
_PART_OF_STEP: Final = 0.25
_LONGEST_GOOD: Final = 60.0
# Before the first poll no GPU is known to ask for, and a Prometheus may be just about to begin.
_LONGEST_EMPTY: Final = 5.0
_MOST_ANSWERS: Final = 8
_MOST_AWAY: Final = 32


class _Question(NamedTuple):
    span: float
    end: float | None
    points: int
    wanted: Wanted


class _Away(NamedTuple):
    """Why a span could not be told, and when to ask for it again."""

    why: str
    until: float


@dataclass(slots=True)
class _Answer:
    """An answer that is under way, or there and good until then."""

    task: "asyncio.Task[Past]"
    until: float = field(default=float("inf"))


class LongerHistory:
    """Tells what memory has from ``near``, which keeps ``kept`` seconds, and all else from ``far``.

    Where ``far`` does not answer, or there is none, the past is what memory has, with a note that says so.
    ``clock`` measures seconds, ``wall`` tells Unix time.
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
        # By the span, because one that takes too long says nothing of shorter ones.
        self._away: dict[float, _Away] = {}

    async def read(self, *, span: float, end: float | None, points: int, wanted: Wanted) -> Past:
        """Tell of ``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps."""
        asked = _Question(span, end, points, wanted)
        if self._is_near(asked):
            return await self._near.read(span=span, end=end, points=points, wanted=wanted)
        if self._far is None:
            return await self._shortened(asked, "longer spans need --prometheus-url")
        away = self._away.get(span)
        if away is not None:
            if self._clock() >= away.until:
                self._ask(self._far, asked)
            return await self._shortened(asked, away.why)
        try:
            # One reader that goes away must not take the answer from the others.
            past = await asyncio.shield(self._ask(self._far, asked))
        except PrometheusError as error:
            return await self._shortened(asked, str(error))
        if past.tracks:
            return past
        return await self._shortened(asked, past.note)

    async def close(self) -> None:
        """Leave questions that are under way and close the connections to Prometheus."""
        tasks = [answer.task for answer in self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._far is not None:
            await self._far.close()

    def _is_near(self, asked: _Question) -> bool:
        """Whether memory has all of it, or as much as anybody."""
        now = self._wall()
        start = (now if asked.end is None else asked.end) - asked.span
        if start < now - self._kept:
            return False
        return self._far is None or asked.span <= SHORT or start >= self._began

    def _ask(self, far: PrometheusHistory, asked: _Question) -> "asyncio.Task[Past]":
        """Ask, or share the answer that somebody else has or waits for."""
        now = self._clock()
        good = {question: answer for question, answer in self._answers.items() if now < answer.until}
        self._answers = dict(list(good.items())[-_MOST_ANSWERS:])
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
            longest = _LONGEST_GOOD if past.tracks else _LONGEST_EMPTY
            answer.until = self._clock() + min(past.step * _PART_OF_STEP, longest)
            self._away.pop(asked.span, None)
            return
        answer.until = 0.0
        if isinstance(error, PrometheusError):
            self._away.pop(asked.span, None)
            self._away[asked.span] = _Away(str(error), self._clock() + RETRY_AFTER)
            # Programs may ask for any span; the one that failed the longest ago is forgotten.
            for span in list(self._away)[:-_MOST_AWAY]:
                del self._away[span]

    async def _shortened(self, asked: _Question, why: str) -> Past:
        """Tell what memory has of it; raises NotKeptError where that is nothing."""
        now = self._wall()
        ago = 0.0 if asked.end is None else max(0.0, now - asked.end)
        span = min(asked.span, self._kept - ago)
        try:
            past = await self._near.read(
                span=span if span > 0 else asked.span, end=asked.end, points=asked.points, wanted=asked.wanted
            )
        except NotKeptError as error:
            raise NotKeptError(f"{error}; {why}") from None
        note = f"Shown is what is in memory, {span_text(self._kept)} at most: {why}"
        return replace(past, note="; ".join(filter(None, (note, past.note))))
