"""The page and the API of usage: read from Prometheus when asked, and kept until there is another hour."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from exporter.config.parse import SettingsError
from exporter.fleet.pages.usage_page import usage_drawing
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.usage.documents import usage_csv, usage_json
from exporter.fleet.usage.focus import focus_days, require_account, require_prices
from exporter.fleet.usage.grouping import parse_by
from exporter.fleet.usage.model import Usage
from exporter.fleet.usage.period import (
    Period,
    last_recorded_hour,
    parse_month,
    parse_since,
    period_of_month,
    period_since,
)
from exporter.fleet.usage.prices import Prices
from exporter.fleet.usage.reading import read_usage
from exporter.fleet.usage.text import usage_text
from exporter.web.kit.html import page
from exporter.web.kit.http.responses import CONTENT_TYPES, reply
from exporter.web.kit.parameters import given_once, prefers_html, requested_format, short_text
from exporter.web.kit.render_queue import AT_ONCE, RenderQueue, TaskCache

TYPES = {"json": CONTENT_TYPES["json"], "csv": CONTENT_TYPES["csv"], "focus": CONTENT_TYPES["csv"]}
"""The formats of usage, and their content types."""
LONGEST = 100
_DEFAULT = parse_since("30d")
_MOST_KEPT = 32
_VARY = "Accept, Accept-Encoding"


class Choice(NamedTuple):
    """What of usage is asked for."""

    month: str = ""
    """Such as 2026-10, "" for the last 30 days."""
    by: str = "namespace"

    def period(self, at: float) -> Period:
        """Return the period at a Unix time; raises SettingsError."""
        return period_of_month(parse_month(self.month), at) if self.month else period_since(_DEFAULT, at)


class UsagePages:
    """Reads usage once for each choice and hour.

    ``only`` are the namespaces that may be shown, () for all.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        prices: Prices | None = None,
        only: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._prices = prices
        self._only = only
        self._clock = clock
        self._cache = TaskCache(_MOST_KEPT)
        self._turns = RenderQueue()
        self._bills = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the page and of the API."""
        return web.get("/usage", self.page), web.get("/api/v1/usage", self.document)

    async def page(self, request: web.Request) -> web.Response:
        """Return usage: to browsers as a page, to programs as text."""
        choice = self._choice(request)
        usage = await self._read(choice)
        if prefers_html(request):
            drawing = usage_drawing(usage, self._prices, choice.month, self._clock())
            body = page(drawing, "").encode()
            return await reply(request, body, "text/html; charset=utf-8", vary=_VARY)
        body = usage_text(usage, self._prices).encode()
        return await reply(request, body, CONTENT_TYPES["text"], vary=_VARY)

    async def document(self, request: web.Request) -> web.StreamResponse:
        """Return usage in the requested format."""
        form, choice = requested_format(request, TYPES), self._choice(request)
        if form == "focus":
            return await self._bill(request, choice)
        usage = await self._read(choice)
        if form == "json":
            body = json.dumps(usage_json(usage, self._prices)).encode()
            return await reply(request, body, TYPES[form], vary=_VARY)
        if usage.groups is None:
            raise _unavailable("; ".join(usage.problems))
        headers = _saved_as(f"usage-{choice.month or '30-days'}.csv")
        body = usage_csv(usage, self._prices).encode()
        return await reply(request, body, TYPES[form], vary=_VARY, headers=headers)

    def _choice(self, request: web.Request) -> Choice:
        month, by = given_once(request.query, "month"), short_text(request.query, "by", LONGEST)
        with _refused("month"):
            if month is not None:
                parse_month(month)
        with _refused("by"):
            chosen = Choice(month or "", parse_by(by or "namespace"))
        if self._only and chosen.by != "namespace":
            raise web.HTTPNotFound(text="This hub shows some namespaces only, and usage by namespace only.\n")
        return chosen

    async def _read(self, choice: Choice) -> Usage:
        key = (choice, last_recorded_hour(self._clock()))
        if key not in self._cache.tasks:
            self._turns.refuse_where_full()
        with _answered():
            task = self._cache.start(key, lambda: self._usage(choice), self._turns)
            usage = await task.wait()
        if usage.problems:
            # What failed may be known a moment later, not after an hour only.
            self._cache.drop(key, task)
        return usage

    async def _in_turn(self, days: AsyncIterator[tuple[str, str]]) -> AsyncIterator[tuple[str, str]]:
        """Yield the days of a bill; each is read when it is its turn, however many bills are asked for."""
        while True:
            async with self._bills:
                day = await anext(days, None)
            if day is None:
                return
            yield day

    async def _usage(self, choice: Choice) -> Usage:
        at = self._clock()
        usage = await read_usage(self._prometheus, at, choice.period(at), choice.by)
        return replace(usage, only=self._only)

    async def _bill(self, request: web.Request, choice: Choice) -> web.StreamResponse:
        with _answered():
            prices = require_account(self._prices)
            require_prices(await self._read(choice._replace(by="namespace")), prices)
            at = self._clock()
            days = self._in_turn(focus_days(self._prometheus, at, choice.period(at), prices, self._only))
            header, _ = await anext(days)
        headers = _saved_as(f"focus-{choice.month or '30-days'}.csv")
        response = web.StreamResponse(headers={"Content-Type": TYPES["focus"], **headers})
        await response.prepare(request)
        if request.method != "HEAD":
            await _written(response, header, days)
        return response


async def _written(response: web.StreamResponse, header: str, days: AsyncIterator[tuple[str, str]]) -> None:
    """Write a bill day by day; a failed day ends the connection, so that the file is not taken for whole."""
    await response.write(header.encode())
    async for text, _ in days:
        await response.write(text.encode())
    await response.write_eof()


@contextmanager
def _refused(name: str) -> Iterator[None]:
    """Raise HTTPBadRequest for a parameter with another value than the allowed ones."""
    try:
        yield
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"The {name} must be {error}.\n") from None


@contextmanager
def _answered() -> Iterator[None]:
    """Raise HTTPNotFound for what there is not, HTTPServiceUnavailable for what cannot be read."""
    try:
        yield
    except (SettingsError, MissingSeriesError) as error:
        raise web.HTTPNotFound(text=f"{error}\n") from None
    except PrometheusError as error:
        raise _unavailable(str(error)) from None


def _unavailable(why: str) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=f"{why}\n", headers={"Cache-Control": "no-store"})


def _saved_as(name: str) -> Mapping[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
