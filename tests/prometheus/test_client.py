"""The client of Prometheus: what it asks, what it makes of answers, and what it says where there is none."""

import asyncio
import base64
import json

import pytest
from aiohttp import web

from exporter.prometheus import Prometheus, PrometheusError
from tests.end_to_end.programs import free_port
from tests.prometheus.answering import NOTHING, answering, saying


async def ask(url, expression="up", **options):
    """Ask one instant query and close the client."""
    prometheus = Prometheus(url, **options)
    try:
        return await prometheus.query(expression)
    finally:
        await prometheus.close()


async def complaint(handler, **options):
    """Return what is said where a server answers like this; it is one line."""
    async with answering(handler) as server:
        with pytest.raises(PrometheusError) as caught:
            await ask(server.url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def result(kind, *series, **besides):
    """Write an answer of Prometheus."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}} | besides)


async def test_an_instant_query_is_posted_as_a_form():
    """However long an expression is, it does not have to fit into a URL."""
    expression = "up + " * 40_000 + "up"
    async with answering(saying()) as server:
        assert await ask(server.url, expression) == []
    assert server.paths == ["/api/v1/query"]
    assert server.forms == [{"query": expression}]
    assert server.headers[0]["User-Agent"].startswith("gpuslice-exporter/")


async def test_times_are_told_to_the_millisecond():
    """Steps need not be whole seconds."""
    async with answering(saying(result("matrix"))) as server:
        prometheus = Prometheus(server.url)
        assert await prometheus.query_range("up", start=1.5, end=2.25, step=0.25) == []
        await prometheus.close()
    assert server.forms == [{"query": "up", "start": "1.500", "end": "2.250", "step": "0.250"}]


async def test_what_is_no_number_is_left_out():
    """NaN and infinities say nothing of a node, and a histogram has no value."""
    vector = result(
        "vector",
        *(
            {"metric": {"n": str(n)}, "value": [1, text]}
            for n, text in enumerate(("1.5", "NaN", "+Inf", "-Inf"))
        ),
        {"metric": {"n": "h"}, "histogram": [1, {"count": "1"}]},
        warnings=["a store did not answer"],
        infos=["not a counter"],
    )
    async with answering(saying(vector)) as server:
        assert await ask(server.url) == [({"n": "0"}, 1.5)]
    matrix = result(
        "matrix",
        {"metric": {}, "values": [[1, "NaN"], [2, "2"], [3, "+Inf"], [4.5, "0"]]},
        {"metric": {"n": "h"}, "histograms": [[1, {"count": "1"}]]},
    )
    async with answering(saying(matrix)) as server:
        prometheus = Prometheus(server.url)
        found = await prometheus.query_range("up", start=1, end=5, step=1)
        await prometheus.close()
    assert found == [({}, ((2.0, 2.0), (4.5, 0.0))), ({"n": "h"}, ())]


@pytest.mark.parametrize("path", ["", "/", "/prometheus", "/prometheus/", "/select/0/prometheus"])
async def test_paths_below_others(path):
    """Behind a proxy, or with several tenants, the root of a server is not that of its host."""
    async with answering(saying()) as server:
        await ask(server.url + path)
    assert server.paths == [f"{path.rstrip('/')}/api/v1/query"]


async def test_what_else_the_url_asks_for_is_kept():
    """Some servers choose tenants by the query of the URL."""
    async with answering(saying()) as server:
        await ask(f"{server.url}/p/?extra_label=team%3Da")
    assert server.paths == ["/p/api/v1/query?extra_label=team%3Da"]


async def test_a_name_and_password_in_the_url():
    """They are sent as such, decoded, and do not stand in the address."""
    async with answering(saying()) as server:
        await ask(server.url.replace("//", "//m%40e:gr%C3%BC%3An@"))
    kind, _, encoded = server.headers[0]["Authorization"].partition(" ")
    assert (kind, base64.b64decode(encoded).decode()) == ("Basic", "m@e:grü:n")
    assert "@" not in server.headers[0]["Host"]


async def test_a_token_is_read_for_each_question(tmp_path):
    """Tokens are replaced while the program runs; they win over a password in the URL."""
    file = tmp_path / "token"
    file.write_text("first\n")
    async with answering(saying()) as server:
        prometheus = Prometheus(server.url.replace("//", "//me:secret@"), token_file=file)
        await prometheus.query("up")
        file.write_text("second")
        await prometheus.query("up")
        await prometheus.close()
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines", b"\xff\xfe"])
async def test_a_token_that_cannot_be_used(tmp_path, content):
    """It is named with the option, and nothing is asked without it."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    async with answering(saying()) as server:
        with pytest.raises(PrometheusError, match=r"^--prometheus-token-file: ") as caught:
            await ask(server.url, token_file=file)
    assert str(file) in str(caught.value)
    assert server.paths == []


REFUSALS = {
    "unknown function": (
        saying('{"status":"error","errorType":"bad_data","error":"1:1: parse error:\\n unknown"}', 400),
        "Prometheus refuses a query: 1:1: parse error: unknown",
    ),
    "no reason": (saying('{"status":"error"}', 422), "Prometheus refuses a query: no reason given"),
    "locked": (
        saying("no org id", 401),
        "Prometheus denies access (HTTP status 401): set --prometheus-token-file",
    ),
    "proxy": (
        saying("<html><h1>502 Bad Gateway</h1></html>", 502),
        "the server at --prometheus-url returns no result (HTTP status 502 Bad Gateway)",
    ),
    "page": (
        saying("<html>Grafana</html>"),
        "the server at --prometheus-url does not answer as Prometheus does",
    ),
    "cut off": (saying(NOTHING[:40]), "the server at --prometheus-url does not answer as Prometheus does"),
    "nothing": (saying(""), "the server at --prometheus-url does not answer as Prometheus does"),
    "other JSON": (saying("[1]"), "the server at --prometheus-url does not answer as Prometheus does"),
    "no number": (
        saying(result("vector", {"metric": {}, "value": [1, "high"]})),
        "the server at --prometheus-url does not answer as Prometheus does",
    ),
    "scalar": (saying(result("scalar", 1, "1")), "Prometheus answers with a scalar, not a vector"),
    "login": (
        saying("", 302, Location="https://me:secret@login.example.com/oauth?state=secret"),
        "--prometheus-url redirects to https://login.example.com/oauth (HTTP",
    ),
    "sub-path": (saying("", 307, Location="/prometheus/"), "redirects to /prometheus/"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_answers_that_are_none(name):
    """Whatever is in the way, one sentence says what."""
    handler, expected = REFUSALS[name]
    said = await complaint(handler)
    assert expected in said
    assert "secret" not in said


async def test_no_redirect_is_followed(tmp_path):
    """A token is for the server that is named, and for no other."""
    token = tmp_path / "token"
    token.write_text("secret")
    async with answering(saying()) as other:
        said = await complaint(saying("", 308, Location=f"{other.url}/api/v1/query"), token_file=token)
        assert other.paths == []
    assert other.url in said


async def test_a_server_that_hangs():
    """The deadline is for all of an answer, also for one that trickles."""

    async def trickle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" ")
            await asyncio.sleep(0.01)

    assert await complaint(trickle, deadline=0.2) == "Prometheus did not answer within 0.2 s"


async def test_an_answer_without_end(monkeypatch):
    """Memory is bounded, whatever is sent."""
    monkeypatch.setattr("exporter.prometheus.MOST_BYTES", 1 << 20)
    said = await complaint(saying(" " * (2 << 20)))
    assert said == "a response of Prometheus is larger than 1 MiB"


async def test_a_connection_that_breaks():
    """An answer that ends before its length is none."""

    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(NOTHING.encode())
        request.transport.close()
        return answer

    assert await complaint(broken) == "Prometheus cannot be reached: the connection ended during the response"


async def test_nobody_there():
    """What the system says is said, without the URL and its password."""
    with pytest.raises(PrometheusError) as caught:
        await ask(f"http://me:secret@127.0.0.1:{free_port()}")
    assert str(caught.value) == "Prometheus cannot be reached: Connection refused"
    with pytest.raises(PrometheusError, match="its name cannot be resolved"):
        await ask("http://me:secret@prometheus.invalid:9090")


async def test_questions_share_connections():
    """A client keeps its connections from one question to the next."""
    peers = set()

    async def answer(request: web.Request) -> web.Response:
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text=NOTHING)

    async with answering(answer) as server:
        prometheus = Prometheus(server.url)
        for _ in range(5):
            await prometheus.query("up")
        await prometheus.close()
    assert len(peers) == 1
