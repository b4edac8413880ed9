"""Statuses, headers and bodies of every route."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientResponse
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.demo.scenario import NvmlError, catalog
from exporter.web.kit.http.assets import asset
from tests.core.golden.page import Page
from tests.together.end_to_end.serving import OPENMETRICS, PROMETHEUS_3, TEXT, Served, serving

SCENARIO = "t4-timeslicing"
GPU = catalog.load(SCENARIO).gpus[0].uuid
ROUTES = (
    "/",
    f"/gpu/{GPU}",
    "/metrics",
    "/api/v1/snapshot",
    "/-/healthy",
    "/-/ready",
    f"/{asset('app.css')}",
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CONTENT_TYPES = {
    "": "text/plain; version=0.0.4; charset=utf-8",
    "*/*": "text/plain; version=0.0.4; charset=utf-8",
    "text/html,application/xhtml+xml,*/*;q=0.8": "text/plain; version=0.0.4; charset=utf-8",
    TEXT: "text/plain; version=0.0.4; charset=utf-8",
    OPENMETRICS: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    PROMETHEUS_3: "application/openmetrics-text; version=1.0.0; charset=utf-8",
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    """Serve a time-sliced node that was polled once. A test that polls has a node of its own."""
    async with serving(catalog.load(SCENARIO)) as running:
        await running.poll(0)
        yield running


async def _get(served: Served, path: str, **headers: str) -> tuple[ClientResponse, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with served.client.get(served.url + path, headers=sent) as response:
        return response, await response.read()


async def _raw(served: Served, request_line: str) -> bytes:
    """Send a request line unchanged."""
    at = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    writer.write(f"{request_line}\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def _assert_secure(response: ClientResponse) -> None:
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("accept", CONTENT_TYPES)
async def test_metrics_have_the_format_of_accept(served: Served, accept: str) -> None:
    response, body = await _get(served, "/metrics", Accept=accept)

    assert response.status == 200
    assert response.headers["Content-Type"] == CONTENT_TYPES[accept]
    assert {"accept", "accept-encoding"} == set(response.headers["Vary"].lower().split(", "))
    parse = parse_openmetrics if "openmetrics" in CONTENT_TYPES[accept] else parse_text
    assert "gpuslice_gpu_up" in {family.name for family in parse(body.decode())}


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
async def test_metrics_are_compressed_if_the_client_accepts_it(served: Served, accept: str) -> None:
    plain, body = await _get(served, "/metrics", Accept=accept, Accept_Encoding="identity")
    refused, same = await _get(served, "/metrics", Accept=accept, Accept_Encoding="gzip;q=0")
    zipped, smaller = await _get(served, "/metrics", Accept=accept, Accept_Encoding="gzip, deflate")

    assert "Content-Encoding" not in plain.headers
    assert "Content-Encoding" not in refused.headers
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(smaller) == body == same
    assert len(smaller) < len(body) / 4


@pytest.mark.parametrize("path", [*ROUTES, "/nowhere", "/gpu/GPU-none", "/static/none.css", "/static/"])
async def test_every_answer_has_the_security_headers(served: Served, path: str) -> None:
    response, _ = await _get(served, path)

    assert response.status == (200 if path in ROUTES else 404)
    _assert_secure(response)


@pytest.mark.parametrize("path", ROUTES)
async def test_head_is_get_without_its_body(served: Served, path: str) -> None:
    got, body = await _get(served, path, Accept_Encoding="identity")
    async with served.client.head(served.url + path, headers={"Accept-Encoding": "identity"}) as head:
        assert await head.read() == b""
        assert head.status == got.status
        assert head.headers["Content-Type"] == got.headers["Content-Type"]
        # HTML has ages, so that the length may change.
        ages = path == "/" or path.startswith("/gpu/")
        assert ages or head.headers["Content-Length"] == str(len(body))
        _assert_secure(head)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics"])
async def test_other_methods_than_get_and_head_are_refused(served: Served, method: str, path: str) -> None:
    async with served.client.request(method, served.url + path, data=b"x" * 100_000) as response:
        assert response.status == 405
        assert set(response.headers["Allow"].split(",")) == {"GET", "HEAD"}
        _assert_secure(response)


async def test_a_known_snapshot_is_not_sent_again() -> None:
    """With its tag the answer is 304 and empty, until there is a new snapshot."""
    async with serving(catalog.load(SCENARIO)) as served:
        await served.poll(0)
        first, body = await _get(served, "/api/v1/snapshot")
        tag = first.headers["ETag"]
        again, nothing = await _get(served, "/api/v1/snapshot", If_None_Match=tag)
        await served.poll(5)
        later, other = await _get(served, "/api/v1/snapshot", If_None_Match=tag)

    assert (again.status, nothing, again.headers["ETag"]) == (304, b"", tag)
    _assert_secure(again)
    assert (later.status, later.headers["Cache-Control"]) == (200, "no-cache")
    assert later.headers["ETag"] != tag
    assert json.loads(other)["sequence"] == json.loads(body)["sequence"] + 1


async def test_unknown_use_is_null_in_json() -> None:
    """Nothing is NaN."""
    async with serving(catalog.load("gke")) as served:
        await served.poll(0)
        response, body = await _get(served, "/api/v1/snapshot")

    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    snapshot = json.loads(body, parse_constant=_no_constant)
    assert len(snapshot["containers"]) == 4
    for container in snapshot["containers"]:
        assert container["slices"] == 1
        for unknown in ("memory_used_bytes", "compute_used_ratio", "processes"):
            assert container[unknown] is None
    assert snapshot["node"]["process_attribution_available"] == 0
    assert snapshot["demo"] is True


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


async def test_an_invalid_request_is_refused_and_the_next_one_served(served: Served) -> None:
    answer = await _raw(served, "\x16\x03\x01 nonsense")
    after, _ = await _get(served, "/metrics")

    assert answer.split()[1] == b"400"
    assert after.status == 200


async def test_ready_with_the_first_poll() -> None:
    """Before, it is healthy, and serves its pages."""
    async with serving(catalog.load(SCENARIO)) as served:
        before, reason = await _get(served, "/-/ready")
        others = [await _get(served, path) for path in ("/", "/metrics", "/api/v1/snapshot", "/-/healthy")]
        await served.poll(0)
        after, text = await _get(served, "/-/ready")

    assert (before.status, reason) == (503, b"before the first poll\n")
    _assert_secure(before)
    assert [response.status for response, _ in others] == [200] * 4
    assert (after.status, text) == (200, b"ok\n")


async def test_a_node_without_a_gpu_is_ready() -> None:
    """It must be scraped to report that it has none."""
    async with serving(catalog.load("no-gpu")) as served:
        await served.poll(0)
        statuses = [(await _get(served, path))[0].status for path in ROUTES]
        _, page = await _get(served, "/metrics")

    assert statuses == [404 if path.startswith("/gpu/") else 200 for path in ROUTES]
    assert Page(page.decode()).value("gpuslice_collector_success", collector="nvml") == 0


async def test_unhealthy_only_while_a_restart_helps() -> None:
    """As while the driver was upgraded under the process."""
    upgraded = NvmlError(
        kind="nvml_error", at=5, for_=10, function="nvmlDeviceGetCount_v2", code="LIB_RM_VERSION_MISMATCH"
    )
    async with serving(replace(catalog.load(SCENARIO), faults=(upgraded,))) as served:
        answers = []
        for second in (0, 5, 15):
            await served.poll(second)
            answers.append(await _get(served, "/-/healthy"))

    statuses = [response.status for response, _ in answers]
    assert statuses == [200, 503, 200]
    assert b"restarted" in answers[1][1]
    _assert_secure(answers[1][0])


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "text/plain;q=0.5, text/html;q=0.5"])
async def test_browsers_get_the_page(served: Served, accept: str) -> None:
    """A client that names HTML gets a page, without caching, compressed if it accepts that."""
    response, body = await _get(served, "/", Accept=accept)
    zipped, smaller = await _get(served, "/", Accept=accept, Accept_Encoding="gzip, br")

    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    assert served.node.name in body.decode()
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(smaller).startswith(b"<!DOCTYPE html>")
    assert int(zipped.headers["Content-Length"]) == len(smaller) < len(body) / 3


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/html;q=0", "text/html;q=0.1, text/plain"])
async def test_programs_get_the_node_as_text(served: Served, accept: str) -> None:
    """Curl and others get the table that the command line prints."""
    response, body = await _get(served, "/", Accept=accept)

    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    text = body.decode()
    assert text.startswith(f"{served.node.name} ")
    assert "HOLDER" in text
    assert "<" not in text.replace("<0.1", "")


@pytest.mark.parametrize("path", ["/api/v1/snapshot", "/api/v1/openapi.json"])
async def test_each_encoding_has_a_tag_of_its_own(served: Served, path: str) -> None:
    """Lists, weak tags and the star are understood."""
    plain, _ = await _get(served, path, Accept_Encoding="identity")
    zipped, _ = await _get(served, path, Accept_Encoding="gzip")
    tags = plain.headers["ETag"], zipped.headers["ETag"]

    assert tags[0] != tags[1]
    for known, encoding, status in (
        (tags[0], "identity", 304),
        (tags[0], "gzip", 200),
        (tags[1], "gzip", 304),
        (tags[1], "identity", 200),
        (f'"other", {tags[1]}', "gzip", 304),
        (f"W/{tags[0]}", "identity", 304),
        ("*", "gzip", 304),
        ('"other"', "gzip", 200),
        ("nonsense", "gzip", 200),
    ):
        response, _ = await _get(served, path, Accept_Encoding=encoding, If_None_Match=known)
        assert response.status == status, (known, encoding)


@pytest.mark.parametrize(
    ("accept", "query", "content_type"),
    [
        ("*/*", "", "application/json"),
        (BROWSER, "", "application/json"),
        ("text/csv", "", "text/csv"),
        ("text/plain", "", "text/plain"),
        ("text/plain;q=0.5, text/csv;q=0.7, application/json;q=0.6", "", "text/csv"),
        ("text/csv", "?format=json", "application/json"),
        ("*/*", "?format=csv", "text/csv"),
        ("*/*", "?format=text", "text/plain"),
    ],
)
async def test_the_snapshot_has_three_formats(
    served: Served, accept: str, query: str, content_type: str
) -> None:
    """The URL takes precedence over Accept; CSV is a file with the name of the node."""
    response, body = await _get(served, f"/api/v1/snapshot{query}", Accept=accept)

    assert response.headers["Content-Type"] == f"{content_type}; charset=utf-8"
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    saved = f'attachment; filename="gpuslice-{served.node.name}.csv"'
    assert response.headers.get("Content-Disposition") == (saved if content_type == "text/csv" else None)
    text = body.decode()
    starts = {
        "application/json": "{",
        "text/csv": "node,gpu,uuid,mig_uuid,namespace",
        "text/plain": served.node.name,
    }
    assert text.startswith(starts[content_type])


@pytest.mark.parametrize("wanted", ["xml", ""])
async def test_an_unknown_format_is_refused(served: Served, wanted: str) -> None:
    response, body = await _get(served, f"/api/v1/snapshot?format={wanted}")

    assert (response.status, body) == (400, b"The format must be one of json, csv, text.\n")
