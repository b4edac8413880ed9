"""Pages of a dcgm-exporter are read over HTTP, and every other answer is an error with its reason."""

import asyncio
import gzip
import logging
import socket
import threading

import pytest
from aiohttp import web

from exporter.dcgm_scrape import DcgmError, client
from exporter.dcgm_scrape.client import DcgmScrape
from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from exporter.model import GpuIdentity, GpuReading, GpuRow, NodeRow, Snapshot
from tests.core.dcgm_scrape.serving import page, sample, serving
from tests.waiting import LIMIT_SECONDS

BUSY = page(sample("GR_ENGINE_ACTIVE", "0.500000"))


async def _read(url: str, timeout: float = LIMIT_SECONDS):  # noqa: ASYNC109 - of the client under test
    scrape = DcgmScrape(url, timeout)
    try:
        return await scrape.read()
    finally:
        scrape.close()


async def _error(url: str, timeout: float = LIMIT_SECONDS) -> DcgmError:  # noqa: ASYNC109 - as above
    with pytest.raises(DcgmError) as caught:
        await _read(url, timeout)
    return caught.value


async def test_a_page_is_fetched_and_read() -> None:
    async with serving(BUSY) as url:
        reading = await _read(url)

    assert reading.profiles["GPU-1", None].active == {"graphics_engine": 0.5}


async def test_a_page_may_be_compressed() -> None:
    accepted = []

    async def packed(request: web.Request) -> web.Response:
        accepted.append(request.headers["Accept-Encoding"])
        return web.Response(body=gzip.compress(BUSY), headers={"Content-Encoding": "gzip"})

    async with serving(packed) as url:
        reading = await _read(url)

    assert reading.profiles["GPU-1", None].active == {"graphics_engine": 0.5}
    assert accepted == ["gzip"]


async def test_an_unreachable_address_is_named_without_its_password() -> None:
    async with serving(BUSY) as url:
        gone = url.replace("http://", "http://me:secret@")

    error = await _error(gone)

    assert error.reason == "unreachable"
    assert str(error).startswith(url)
    assert "secret" not in str(error)
    assert "--dcgm-exporter-url" in str(error)


async def test_an_answer_that_does_not_come_in_time_is_abandoned() -> None:
    released = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await released.wait()
        return web.Response(body=BUSY)

    async with serving(slow) as url:
        error = await _error(url, 0.05)
        released.set()

    assert error.reason == "deadline"
    assert "0.05 s" in str(error)


async def test_the_deadline_is_for_the_whole_page() -> None:
    released = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(BUSY)
        await released.wait()
        return answer

    async with serving(drip) as url:
        error = await _error(url, 0.05)
        released.set()

    assert error.reason == "deadline"


@pytest.mark.parametrize("packed", [False, True])
async def test_a_page_over_the_limit_is_refused_compressed_or_not(packed: bool, monkeypatch) -> None:
    monkeypatch.setattr(client, "LARGEST_PAGE", 2**20)
    body = BUSY * (2 * 2**20 // len(BUSY))
    answer = gzip.compress(body) if packed else body
    headers = {"Content-Encoding": "gzip"} if packed else {}

    async with serving(answer, **headers) as url:
        error = await _error(url)

    assert (error.reason, "larger than 1 MiB" in str(error)) == ("too_large", True)


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_a_page_with_another_status_is_refused(status: int) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=BUSY)

    async with serving(refuse) as url:
        error = await _error(url)

    assert error.reason == "status"
    assert f"{url} answers {status}" in str(error)


async def test_a_redirect_is_not_followed() -> None:
    requested = []

    async def away(request: web.Request) -> web.Response:
        requested.append(request.path_qs)
        return web.Response(status=302, headers={"Location": "/metrics?again"})

    async with serving(away) as url:
        error = await _error(url)

    assert error.reason == "status"
    assert requested == ["/metrics"]


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"<!doctype html><title>Grafana</title>", {}, "not_dcgm"),
        (b"", {}, "not_dcgm"),
        (b"go_goroutines 12\nprocess_open_fds 8\n", {}, "not_dcgm"),
        (page(sample("DCGM_FI_DEV_GPU_TEMP", 41)), {}, "no_profiling"),
        (b"DCGM_FI_PROF_SM_ACTIVE{UUID=", {}, "malformed"),
        (b"no gzip at all", {"Content-Encoding": "gzip"}, "malformed"),
        (b"\xff\xfe\x00", {}, "not_dcgm"),
    ],
)
async def test_other_content_is_an_error_with_its_reason(body: bytes, headers: dict, reason: str) -> None:
    async with serving(body, **headers) as url:
        error = await _error(url)

    assert error.reason == reason


@pytest.mark.parametrize("names", ["all", "only", "off"])
async def test_a_page_of_this_exporter_is_refused_whatever_names_it_has(names) -> None:
    identity = GpuIdentity(uuid="GPU-1", index=0)
    gpus = (GpuRow(identity=identity, reading=GpuReading(identity=identity, utilization_percent=7)),)
    snapshot = Snapshot(timestamp=1.0, sequence=1, node=NodeRow(name="node"), gpus=gpus)
    ours = Exposition(Selection(metric_set="full", dcgm_names=names)).page(snapshot).body(Format.TEXT)

    async with serving(ours + BUSY) as url:
        error = await _error(url)

    assert error.reason == "own_page"


async def test_unreadable_lines_are_skipped_and_logged_once(caplog) -> None:
    """dcgm-exporter prints some errors as values."""
    caplog.set_level(logging.WARNING)
    broken = sample("SM_ACTIVE", "ERROR - FAILED TO CONVERT TO STRING")
    async with serving(page(sample("DRAM_ACTIVE", "0.25"), broken)) as url:
        scrape = DcgmScrape(url, LIMIT_SECONDS)
        readings = [await scrape.read() for _ in range(2)]
        scrape.close()

    assert [reading.unreadable for reading in readings] == [1, 1]
    assert readings[1].profiles["GPU-1", None].active == {"dram": 0.25}
    assert [record.message for record in caplog.records] == [
        f"{url}: skipped 1 profiling lines that could not be parsed, or have impossible values"
    ]


async def test_samples_older_than_stale_after_are_left_out() -> None:
    """A sample without a time counts as of now."""
    lines = (
        sample("SM_ACTIVE", "0.1 940000"),
        sample("DRAM_ACTIVE", "0.2 939999"),
        sample("PIPE_FP64_ACTIVE", "0.3"),
    )
    async with serving(page(*lines)) as url:
        scrape = DcgmScrape(url, LIMIT_SECONDS, stale_after=60.0, wall=lambda: 1000.0)
        reading = await scrape.read()
        scrape.close()

    assert reading.profiles["GPU-1", None].active == {"sm": 0.1, "fp64": 0.3}


async def test_a_host_name_is_resolved() -> None:
    async with serving(BUSY) as url:
        reading = await _read(url.replace("127.0.0.1", "localhost"))

    assert reading.profiles


async def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    error = await _error("http://no-such-host.invalid:9400/metrics")

    assert error.reason == "unreachable"
    assert "no-such-host.invalid" in str(error)


async def test_a_hanging_resolver_does_not_delay_the_end_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline holds, and its thread is a daemon."""
    release = threading.Event()
    waiting: list[threading.Thread] = []

    def hang(*_: object, **__: object) -> list:
        waiting.append(threading.current_thread())
        release.wait(LIMIT_SECONDS)
        return []

    monkeypatch.setattr("socket.getaddrinfo", hang)
    # On a busy machine the deadline may pass before the resolver is asked.
    while not waiting:
        error = await _error("http://slow.invalid/metrics", timeout=0.1)
        assert error.reason == "deadline"
    release.set()

    assert all(thread.daemon for thread in waiting)
