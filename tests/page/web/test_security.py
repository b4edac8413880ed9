"""Hostile requests, and the security headers of every answer."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientResponse, ClientSession, web

from exporter.config import ListenAddress
from exporter.demo.scenario import catalog
from exporter.web.kit.application import build_app
from exporter.web.kit.http.responses import security_headers
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.site import site_of
from tests.together.end_to_end.serving import Served, serving
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENARIO = "t4-timeslicing"
GPU = catalog.load(SCENARIO).gpus[0].uuid
PREFIX = "/nodes/gpuslice"
HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
# What stands in routes for a name, and one that is there.
NAMES = {
    "uuid": GPU,
    "namespace": "team-a",
    "pod": "infer-0",
    "container": "server",
    "hash": "x",
    "name": "app.css",
}
BAD = "<script>alert(1)</script>"
ERRORS = ("/nowhere", "/gpu/none", "/static/", "/static/x/none.js", f"/{BAD}", "/api/v1/snapshot?format=xml")
TRICKS = (
    "/static/../app.py",
    "/static/x/../../app.py",
    "/static/x/..%2f..%2fapp.py",
    "/static/x/%2e%2e/%2e%2e/app.py",
    "/static/x//etc/passwd",
    "/static/x/%2fetc%2fpasswd",
    "/static/x/..%5c..%5capp.py",
    "/static/x/app.css%00",
    "/static/x/app.css%00.py",
    "/../../../../etc/passwd",
    "//etc/passwd",
    "//example.com/",
    "/\\example.com/",
    "/%2f%2fexample.com/",
    "/%2e%2e/",
    "/gpu/..%2f..%2fetc%2fpasswd",
    "/gpu/%2e%2e/",
    "/gpu/a%2fb%2fc",
    "/gpu/%ff%fe",
    "/gpu/%0d%0aX-Evil:%201",
    f"/gpu/{'a' * 7000}",
    f"/{'a/' * 3500}",
    f"/static/x/{'../' * 2000}app.py",
    "/.env",
    "/?a=%00&a=b&=&&%",
    f"{PREFIX}/../{PREFIX}/../etc/passwd",
    f"{PREFIX}//example.com/",
    f"{PREFIX}%2f%2fexample.com",
    "http://example.com/nowhere",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An application that is served at ``url`` (without a slash at its end), with its routes."""

    url: str
    app: web.Application
    client: ClientSession

    async def get(self, path: str, **headers: str) -> tuple[ClientResponse, bytes]:
        """Get a path; what redirects is not followed."""
        spelt = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.get(self.url + path, headers=spelt, allow_redirects=False) as response:
            return response, await response.read()

    async def raw(self, *lines: str, body: bytes = b"") -> bytes:
        """Send lines unchanged; return all that comes back until the connection is closed."""
        at = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
        answer = await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
        writer.close()
        return answer

    def paths(self) -> list[str]:
        """Return the paths of all routes, filled in with existing names."""
        found = dict.fromkeys(route.resource.canonical for route in self.app.router.routes())
        return [path.format(**NAMES) for path in found]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    """Serve a node that was polled once."""
    async with serving(catalog.load(SCENARIO)) as running:
        await running.poll(0)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(served: Served) -> AsyncIterator[Site]:
    """Serve that node below a prefix too."""
    app = make_app(site_of(lambda: served.poller.snapshot), prefix=PREFIX)
    async with _serve(app, served.client) as made:
        yield made


@asynccontextmanager
async def _serve(app: web.Application, client: ClientSession) -> AsyncIterator[Site]:
    server = Server(app, ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        yield Site(url=url.removesuffix("/"), app=app, client=client)
    finally:
        await server.stop()


def _assert_secure(response: ClientResponse) -> None:
    for name, value in security_headers().items():
        assert response.headers[name] == value, (response.url, name)


async def test_the_policy_allows_this_site_only() -> None:
    headers = security_headers()
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))

    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    sources = {source for sources in policy.values() for source in sources.split()}
    allowed = {"'none'", "'self'", "data:", "blob:", "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"}
    assert sources <= allowed
    assert {"data:", "blob:"}.isdisjoint(policy["script-src"].split())
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("ancestors", "source", "older"),
    [
        (("self",), "'self'", "SAMEORIGIN"),
        (("https://grafana.example.com",), "https://grafana.example.com", None),
        (("self", "http://grafana:3000"), "'self' http://grafana:3000", None),
    ],
)
async def test_named_origins_may_frame_the_page(
    served: Served, ancestors: tuple[str, ...], source: str, older: str | None
) -> None:
    """X-Frame-Options cannot name origins and is left out then."""
    app = make_app(site_of(lambda: served.poller.snapshot), frame_ancestors=ancestors)
    async with _serve(app, served.client) as site:
        response, _ = await site.get("/", Accept=HTML)
        policy = response.headers["Content-Security-Policy"]
        assert policy.endswith(f"frame-ancestors {source}")
        assert response.headers.get("X-Frame-Options") == older


async def test_every_route_has_the_security_headers(site: Site) -> None:
    paths = site.paths()
    assert {"/", "/metrics", "/live/", "/api/v1/openapi.json", f"{PREFIX}/metrics", PREFIX} <= set(paths)
    for path in paths:
        for accept in ("*/*", HTML):
            headers = {"Accept": accept, "Accept-Encoding": "gzip"}
            # A stream has no end: its headers are enough.
            async with site.client.get(site.url + path, headers=headers, allow_redirects=False) as response:
                assert response.status != 500, path
                _assert_secure(response)
            async with site.client.head(site.url + path, headers=headers, allow_redirects=False) as head:
                assert head.status == response.status, path
                assert await head.read() == b""
                _assert_secure(head)


async def test_304_has_the_security_headers(site: Site) -> None:
    for path in ("/api/v1/snapshot", "/static/x/app.css", "/api/v1/openapi.json"):
        first, _ = await site.get(path, Accept_Encoding="gzip")
        again, body = await site.get(path, Accept_Encoding="gzip", If_None_Match=first.headers["ETag"])
        assert (again.status, body) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
        assert again.headers["Vary"] == first.headers["Vary"]
        assert "Content-Encoding" not in again.headers
        _assert_secure(again)


@pytest.mark.parametrize("path", ERRORS)
@pytest.mark.parametrize("prefix", ["", PREFIX])
async def test_errors_are_pages_for_browsers_and_lines_or_json_for_programs(
    site: Site, prefix: str, path: str
) -> None:
    """Nothing of the request is repeated."""
    page, body = await site.get(prefix + path, Accept=HTML)
    data, document = await site.get(prefix + path, Accept="application/json")
    line, text = await site.get(prefix + path, Accept="*/*")

    assert page.status == line.status == data.status == (400 if "format" in path else 404)
    for response in (page, line, data):
        _assert_secure(response)
        assert "Accept" in response.headers["Vary"]
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert line.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert text.endswith(b".\n")
    assert text.count(b"\n") == 1
    assert json.loads(document) == {"error": text.decode().strip()}
    for content in (body, text, document):
        assert b"alert" not in content
    back = re.search(r'<a href="([./]+)">', body.decode())
    assert back is not None
    assert page.url.join(type(page.url)(back[1])).path == f"{prefix}/"


@pytest.mark.parametrize("accept", ["*/*", HTML])
async def test_hostile_paths_find_nothing(site: Site, accept: str) -> None:
    for trick in TRICKS:
        answer = await site.raw(
            f"GET {trick} HTTP/1.1", "Host: here", f"Accept: {accept}", "Connection: close"
        )
        head, _, body = answer.partition(b"\r\n\r\n")

        assert head.split()[1] in ({b"200"} if trick.startswith("/?") else {b"400", b"404"}), trick
        assert b"location:" not in head.lower()
        assert b"x-evil" not in head.lower()
        assert b"import " not in body
        assert b"root:" not in body
        assert b"example.com" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_only_get_and_head_are_answered(site: Site, method: str) -> None:
    for path in ("/", "/metrics", "/live/", "/static/x/app.css", "/nowhere", PREFIX):
        answer = await site.raw(f"{method} {path} HTTP/1.1", "Host: here", "Connection: close")
        head = answer.partition(b"\r\n\r\n")[0].decode()

        assert head.split()[1] == "405", path
        assert "Allow: GET,HEAD" in head
        assert "X-Content-Type-Options: nosniff" in head


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: 5",), b"hello"),
        (("Content-Length: 1000000000",), b""),
        (("Transfer-Encoding: chunked",), b"5\r\nhello\r\n0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b""),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), b"5\r\nhello\r\n0\r\n\r\n"),
        (("Content-Length: -1",), b""),
        (("Content-Length: 5", "Content-Length: 6"), b"hello!"),
    ],
)
async def test_a_request_with_a_body_is_refused(site: Site, headers: tuple[str, ...], body: bytes) -> None:
    behind = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" if body else b""
    answer = await site.raw("GET / HTTP/1.1", "Host: here", *headers, body=body + behind)

    assert answer.split()[1] in (b"413", b"400")
    assert answer.count(b"HTTP/1.") == 1
    assert b"gpuslice_" not in answer


async def test_a_content_length_of_zero_is_allowed(site: Site) -> None:
    answer = await site.raw("GET /-/healthy HTTP/1.1", "Host: here", "Content-Length: 0", "Connection: close")

    assert answer.split()[1] == b"200"


@pytest.mark.parametrize(
    "path", ["/", f"/gpu/{GPU}", "/metrics", "/api/v1/snapshot", "/-/healthy", "/-/ready"]
)
async def test_the_prefix_serves_the_same(site: Site, path: str) -> None:
    for accept in ("*/*", HTML):
        plain, _ = await site.get(path, Accept=accept)
        below, _ = await site.get(PREFIX + path, Accept=accept)
        assert plain.status == below.status == 200
        assert plain.headers["Content-Type"] == below.headers["Content-Type"]


@pytest.mark.parametrize("query", ["", "?q=a%20b&sort=-memory", "?q=//example.com", "?%0d%0aX-Evil:%201"])
async def test_the_prefix_without_a_slash_redirects_relatively(site: Site, query: str) -> None:
    """And keeps the query."""
    answer = await site.raw(f"GET {PREFIX}{query} HTTP/1.1", "Host: evil.example.com", "Connection: close")
    head = answer.partition(b"\r\n\r\n")[0].decode().splitlines()

    assert head[0].split()[1] == "307"
    assert f"Location: gpuslice/{query}" in head
    assert not any(line.startswith("X-Evil") for line in head)
    followed, body = await site.get(PREFIX + "/" + query, Accept=HTML)
    assert followed.status == 200
    assert body.startswith(b"<!DOCTYPE html>")


async def test_a_prefix_may_be_the_start_of_another_path(served: Served) -> None:
    for prefix in ("/gpu", "/static", "/api/v1/snapshot", "/metrics"):
        app = make_app(site_of(lambda: served.poller.snapshot), prefix=prefix)
        async with _serve(app, served.client) as site:
            for path in ("/metrics", "/api/v1/snapshot", "/-/healthy", f"{prefix}/", f"{prefix}/metrics"):
                assert (await site.get(path))[0].status == 200, path


@pytest.mark.parametrize("accept", ["*/*", HTML])
async def test_internal_errors_are_in_the_log_only(
    served: Served, caplog: pytest.LogCaptureFixture, accept: str
) -> None:
    async def fail(_request: web.Request) -> web.Response:
        raise ValueError("the inner secret")

    async def fail_later(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        raise ValueError("the later secret")

    async def fine(_request: web.Request) -> web.Response:
        return web.Response(text="fine")

    app = build_app([web.get("/fail", fail), web.get("/later", fail_later), web.get("/fine", fine)])
    async with _serve(app, served.client) as site:
        with caplog.at_level(logging.WARNING):
            failed, body = await site.get("/fail", Accept=accept)
        assert failed.status == 500
        assert b"secret" not in body
        assert b"Traceback" not in body
        assert len(caplog.records) == 1
        assert "the inner secret" in caplog.text
        _assert_secure(failed)

        caplog.clear()
        begun = await site.raw("GET /later HTTP/1.1", "Host: here")
        assert begun.count(b"HTTP/1.1 ") == 1
        assert b"secret" not in begun
        assert not begun.endswith(b"0\r\n\r\n")
        assert len(caplog.records) == 1

        good, text = await site.get("/fine")
        assert (good.status, text) == (200, b"fine")


async def test_unsafe_characters_of_node_names_stay_out_of_headers(served: Served) -> None:
    snapshot = served.poller.snapshot
    hostile = replace(snapshot, node=replace(snapshot.node, name='a"; x=\r\n../ü'))
    async with _serve(make_app(site_of(lambda: hostile)), served.client) as site:
        response, _ = await site.get("/api/v1/snapshot?format=csv")
        disposition = response.headers["Content-Disposition"]
        assert disposition == 'attachment; filename="gpuslice-a___x___..__.csv"'


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /\xe9 HTTP/1.1", b"400 Bad Request"),
        ("GET / HTTP/9.9", b"400 Bad Request"),
        (f"GET /{'a' * 40_000} HTTP/1.1", b"414 Request-URI Too Long"),
    ],
)
async def test_malformed_http_leaves_no_log_line(
    site: Site, caplog: pytest.LogCaptureFixture, line: str, status: bytes
) -> None:
    with caplog.at_level(logging.INFO):
        answer = await site.raw(line, "Host: x")
    assert b" " + status in answer
    assert caplog.records == []
