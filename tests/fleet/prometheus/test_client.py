"""The Prometheus client: what it sends, how it reads responses, and its error messages."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from exporter.fleet.prometheus import Prometheus, PrometheusError
from tests.fleet.prometheus.servers import NOTHING, always, serving
from tests.together.end_to_end.programs import free_port


@asynccontextmanager
async def connected(url, **options):
    """Yield a client of a URL, and close it."""
    prometheus = Prometheus(url, **options)
    try:
        yield prometheus
    finally:
        await prometheus.close()


async def ask(url, **options):
    """Return the answer to one instant query."""
    async with connected(url, **options) as prometheus:
        return await prometheus.query("up")


async def error_of(handler, **options):
    """Return the error message, which is one line, for the responses of a handler."""
    async with serving(handler) as server:
        with pytest.raises(PrometheusError) as caught:
            await ask(server.url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def result(kind, *series, **fields):
    """Return the text of a successful response."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}} | fields)


async def test_an_instant_query_is_posted_as_a_form():
    """A long expression does not have to fit into a URL."""
    expression = "up + " * 40_000 + "up"
    async with serving(always()) as server, connected(server.url) as prometheus:
        assert await prometheus.query(expression) == []
    assert server.paths == ["/api/v1/query"]
    assert server.forms == [{"query": expression}]
    assert server.headers[0]["User-Agent"].startswith("gpuslice-exporter/")


async def test_values_that_are_not_numbers_are_left_out():
    """NaN and infinity are not readings, and a histogram has no single value."""
    samples = [{"metric": {"n": text}, "value": [1, text]} for text in ("1.5", "NaN", "+Inf", "-Inf")]
    histogram = {"metric": {"n": "h"}, "histogram": [1, {"count": "1"}]}
    vector = result("vector", *samples, histogram, warnings=["a store did not answer"], infos=["a hint"])
    async with serving(always(vector)) as server:
        assert await ask(server.url) == [({"n": "1.5"}, 1.5)]


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/api/v1/query"),
        ("/", "/api/v1/query"),
        ("/select/0/prometheus/", "/select/0/prometheus/api/v1/query"),
        ("/p/?extra_label=team%3Da", "/p/api/v1/query?extra_label=team%3Da"),
    ],
)
async def test_path_and_query_of_the_url_are_kept(suffix, path):
    """A proxy has several servers under one host, and some servers choose tenants by the query."""
    async with serving(always()) as server:
        await ask(server.url + suffix)
    assert server.paths == [path]


async def test_name_and_password_of_the_url_are_sent_as_basic_authentication():
    async with serving(always()) as server:
        await ask(server.url.replace("//", "//m%40e:gr%C3%BC%3An@"))
    kind, _, encoded = server.headers[0]["Authorization"].partition(" ")
    assert (kind, base64.b64decode(encoded).decode()) == ("Basic", "m@e:grü:n")
    assert "@" not in server.headers[0]["Host"]


async def test_the_token_file_is_read_for_each_query(tmp_path):
    """Tokens are renewed while the program runs; a token wins over a password in the URL."""
    file = tmp_path / "token"
    url_of_user = "//me:secret@"
    async with (
        serving(always()) as server,
        connected(server.url.replace("//", url_of_user), token_file=file) as prometheus,
    ):
        for token in ("first\n", "second"):
            file.write_text(token)
            await prometheus.query("up")
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines", b"\xff\xfe"])
async def test_nothing_is_sent_without_a_usable_token(tmp_path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    async with serving(always()) as server:
        with pytest.raises(PrometheusError, match=r"^--prometheus-token-file: ") as caught:
            await ask(server.url, token_file=file)
    assert str(file) in str(caught.value)
    assert server.paths == []


NOT_PROMETHEUS = "the server at --prometheus-url does not answer as Prometheus does"
UNUSABLE = {
    "unknown function": (
        always('{"status":"error","errorType":"bad_data","error":"1:1: parse error:\\n unknown"}', 400),
        "Prometheus refuses a query: 1:1: parse error: unknown",
    ),
    "no reason": (always('{"status":"error"}', 422), "Prometheus refuses a query: no reason given"),
    "locked": (
        always("no org id", 401),
        "Prometheus denies access (HTTP status 401): set --prometheus-token-file",
    ),
    "proxy": (
        always("<html><h1>502 Bad Gateway</h1></html>", 502),
        "the server at --prometheus-url returns no result (HTTP status 502 Bad Gateway)",
    ),
    "page": (always("<html>Grafana</html>"), NOT_PROMETHEUS),
    "truncated": (always(NOTHING[:40]), NOT_PROMETHEUS),
    "empty": (always(""), NOT_PROMETHEUS),
    "other JSON": (always("[1]"), NOT_PROMETHEUS),
    "not a number": (always(result("vector", {"metric": {}, "value": [1, "high"]})), NOT_PROMETHEUS),
    "scalar": (always(result("scalar", 1, "1")), "Prometheus answers with a scalar, not a vector"),
    "login": (
        always("", 302, Location="https://me:secret@login.example.com/oauth?state=secret"),
        "--prometheus-url redirects to https://login.example.com/oauth (HTTP",
    ),
    "sub-path": (always("", 307, Location="/prometheus/"), "redirects to /prometheus/"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_an_unusable_response_is_explained_in_one_line(name):
    handler, expected = UNUSABLE[name]
    message = await error_of(handler)
    assert expected in message
    assert "secret" not in message


async def test_redirects_are_not_followed(tmp_path):
    """A token is only for the server in --prometheus-url."""
    token = tmp_path / "token"
    token.write_text("secret")
    async with serving(always()) as other:
        message = await error_of(always("", 308, Location=f"{other.url}/api/v1/query"), token_file=token)
        assert other.paths == []
    assert other.url in message


async def test_the_deadline_covers_a_response_that_trickles():
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    assert await error_of(trickle, deadline=0.2) == "Prometheus did not answer within 0.2 s"


async def test_the_size_of_a_response_is_bounded(monkeypatch):
    monkeypatch.setattr("exporter.fleet.prometheus.MOST_BYTES", 1 << 20)
    message = await error_of(always(" " * (2 << 20)))
    assert message == "a response of Prometheus is larger than 1 MiB"


async def test_a_connection_that_breaks():
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(NOTHING.encode())
        request.transport.close()
        return response

    assert await error_of(broken) == "Prometheus cannot be reached: the connection ended during the response"


async def test_a_server_that_cannot_be_reached():
    """The message has the system's reason, without the URL and its password."""
    with pytest.raises(PrometheusError) as caught:
        await ask(f"http://me:secret@127.0.0.1:{free_port()}")
    assert str(caught.value) == "Prometheus cannot be reached: Connection refused"
    with pytest.raises(PrometheusError, match="its name cannot be resolved"):
        await ask("http://me:secret@prometheus.invalid:9090")


async def test_queries_share_a_connection():
    peers = set()

    async def answer(request: web.Request) -> web.Response:
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text=NOTHING)

    async with serving(answer) as server, connected(server.url) as prometheus:
        for _ in range(5):
            await prometheus.query("up")
    assert len(peers) == 1
