"""Every status that a described route can answer with is described: each is provoked on each route."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from exporter.doctor import Check, Report
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.pages import openapi as hub
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.web.kit.live.broadcaster import Ticker
from exporter.web.node.app import make_app
from exporter.web.node.openapi import operations as node
from tests.fleet.shown import usage_pages
from tests.fleet.waiting_cluster import waiting_pages
from tests.page.web.access import RIGHT, Site, serving
from tests.page.web.certificates import CHEAP
from tests.page.web.views_reading import gpu, holder, snapshot
from tests.site import site_of
from tests.waiting import LIMIT_SECONDS

ADVICE = AdviceRead(found=ClusterAdvice(at=1.0, advices=()), read_at=1.0, error="", reads=1)
REPORT = Report("node", (Check("driver", "OK", "driver 550.90.07"),))
USERS = f"basic_auth_users:\n  ann: {CHEAP}\n"
RATE = "rate_limit:\n  interval: 1h\n  burst: 1\n"
KINDS = {"node": node, "hub": hub}


def _app(kind: str) -> web.Application:
    if kind == "node":
        return make_app(site_of(lambda: snapshot([gpu()], [holder("a")]), report=lambda: REPORT))
    look = FleetRead(reads=1, error="away", failing_since=1.0, advice=ADVICE)
    pages = FleetPages(lambda: look, NodeUrl())
    return make_hub_app(pages, Ticker(), waiting=waiting_pages(), usage=usage_pages())


def _declared(kind: str, path: str) -> set[int]:
    document = KINDS[kind].document()
    return {int(status) for status in document["paths"][path]["get"]["responses"]}


async def _status(site: Site, path: str, version: str = "HTTP/1.1", **headers: str) -> int:
    """Return the status for a path."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    said = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} {version}\r\nHost: here\r\n{said}\r\n".encode())
    try:
        return int((await asyncio.wait_for(reader.readline(), LIMIT_SECONDS)).split()[1])
    finally:
        writer.transport.abort()


@asynccontextmanager
async def _serving(kind: str, folder: Path, config: str = "") -> AsyncIterator[Site]:
    file = folder / "web-config.yml"
    file.write_text(config)
    async with serving(file if config else None, _app(kind)) as site:
        yield site


@pytest.mark.parametrize("kind", KINDS)
async def test_refused_requests_have_a_described_status(kind: str, tmp_path: Path) -> None:
    """A body, an expectation, another version of HTTP, a head that is too large, and no HTTP."""
    async with _serving(kind, tmp_path) as site:
        for path in KINDS[kind].OPERATIONS:
            refused = {
                413: await _status(site, path, Content_Length="5"),
                417: await _status(site, path, Expect="wonders"),
                505: await _status(site, path, "HTTP/2.0"),
                414: await _status(site, f"{path}?x={'x' * 40_000}"),
                431: await _status(site, path, X="x" * 40_000),
                400: await _status(site, path, X="x\0"),
            }
            assert set(refused) == set(refused.values()) <= _declared(kind, path), path


@pytest.mark.parametrize("kind", KINDS)
async def test_304_is_described_where_there_are_etags(kind: str, tmp_path: Path) -> None:
    async with _serving(kind, tmp_path) as site:
        for path in KINDS[kind].OPERATIONS:
            declared = _declared(kind, path)
            assert await _status(site, path) in declared, path
            assert (await _status(site, path, If_None_Match="*") == 304) == (304 in declared), path


@pytest.mark.parametrize("kind", KINDS)
async def test_401_and_429_are_described_except_for_health_checks(kind: str, tmp_path: Path) -> None:
    for path in KINDS[kind].OPERATIONS:
        async with _serving(kind, tmp_path, USERS + RATE) as site:
            stranger = await _status(site, path)
            known = [await _status(site, path, **RIGHT) for _ in range(2)]
            declared = _declared(kind, path)
            assert (stranger == 401) == (known[1] == 429) == ({401, 429} <= declared), path
            assert {stranger, *known} <= declared, path
