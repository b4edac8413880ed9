"""A dcgm-exporter is asked over HTTP, and whatever it answers instead of its page is told for what it is."""

import asyncio
import gzip
import logging
import threading

import pytest
from aiohttp import web

from exporter.dcgm_scrape import DcgmError, client
from exporter.dcgm_scrape.client import DcgmScrape
from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from exporter.model import GpuIdentity, GpuReading, GpuRow, NodeRow, Snapshot
from tests.dcgm_scrape.serving import page, sample, serving

BUSY = page(sample("GR_ENGINE_ACTIVE", "0.500000"))


async def _read(url: str, timeout: float = 5.0):  # noqa: ASYNC109 - of the client under test
    scrape = DcgmScrape(url, timeout)
    try:
        return await scrape.read()
    finally:
        scrape.close()


async def _objection(url: str, timeout: float = 5.0) -> DcgmError:  # noqa: ASYNC109 - as above
    with pytest.raises(DcgmError) as caught:
        await _read(url, timeout)
    return caught.value


async def test_a_page_is_fetched_and_read() -> None:
    """What the page says of a GPU comes back as the profile of that GPU."""
    async with serving(BUSY) as url:
        reading = await _read(url)

    assert reading.profiles["GPU-1", None].active == {"graphics_engine": 0.5}


async def test_a_page_may_be_compressed() -> None:
    """A proxy in between may pack the page, and is told that it may."""
    accepted = []

    async def packed(request: web.Request) -> web.Response:
        accepted.append(request.headers["Accept-Encoding"])
        return web.Response(body=gzip.compress(BUSY), headers={"Content-Encoding": "gzip"})

    async with serving(packed) as url:
        reading = await _read(url)

    assert reading.profiles["GPU-1", None].active == {"graphics_engine": 0.5}
    assert accepted == ["gzip"]


async def test_a_dcgm_exporter_that_is_down_is_told() -> None:
    """The address is named, without the password in it, and what to check."""
    async with serving(BUSY) as url:
        gone = url.replace("http://", "http://me:secret@")

    objection = await _objection(gone)

    assert objection.reason == "unreachable"
    assert str(objection).startswith(url)
    assert "secret" not in str(objection)
    assert "--dcgm-exporter-url" in str(objection)


async def test_a_slow_dcgm_exporter_is_not_waited_for() -> None:
    """An answer that does not come in time is given up."""
    released = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await released.wait()
        return web.Response(body=BUSY)

    async with serving(slow) as url:
        objection = await _objection(url, 0.05)
        released.set()

    assert objection.reason == "deadline"
    assert "0.05 s" in str(objection)


async def test_a_page_that_never_ends_is_not_waited_for() -> None:
    """The deadline holds for the whole page, not for its first byte."""
    released = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(BUSY)
        await released.wait()
        return answer

    async with serving(drip) as url:
        objection = await _objection(url, 0.05)
        released.set()

    assert objection.reason == "deadline"


@pytest.mark.parametrize("packed", [False, True])
async def test_a_huge_page_is_given_up(packed: bool, monkeypatch) -> None:
    """No more is kept in memory than the limit, packed or not."""
    monkeypatch.setattr(client, "LARGEST_PAGE", 2**20)
    body = BUSY * (2 * 2**20 // len(BUSY))
    answer = gzip.compress(body) if packed else body
    headers = {"Content-Encoding": "gzip"} if packed else {}

    async with serving(answer, **headers) as url:
        objection = await _objection(url)

    assert (objection.reason, "larger than 1 MiB" in str(objection)) == ("too_large", True)


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_another_status_is_told(status: int) -> None:
    """A page that comes with an error is no page."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=BUSY)

    async with serving(refuse) as url:
        objection = await _objection(url)

    assert objection.reason == "status"
    assert f"{url} answers {status}" in str(objection)


async def test_a_redirect_is_not_followed() -> None:
    """The exporter asks the address it was given, and no other that this one names."""
    asked = []

    async def away(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        return web.Response(status=302, headers={"Location": "/metrics?again"})

    async with serving(away) as url:
        objection = await _objection(url)

    assert objection.reason == "status"
    assert asked == ["/metrics"]


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
async def test_other_content_is_told(body: bytes, headers: dict, reason: str) -> None:
    """Something else at that address, or a dcgm-exporter without profiling, is an error and says which."""
    async with serving(body, **headers) as url:
        objection = await _objection(url)

    assert objection.reason == reason


@pytest.mark.parametrize("names", ["all", "only", "off"])
async def test_our_own_page_is_not_read(names) -> None:
    """Pointed at itself, the exporter does not feed on its own numbers, whatever names its page carries."""
    identity = GpuIdentity(uuid="GPU-1", index=0)
    gpus = (GpuRow(identity=identity, reading=GpuReading(identity=identity, utilization_percent=7)),)
    snapshot = Snapshot(timestamp=1.0, sequence=1, node=NodeRow(name="node"), gpus=gpus)
    ours = Exposition(Selection(metric_set="full", dcgm_names=names)).page(snapshot).body(Format.TEXT)

    async with serving(ours + BUSY) as url:
        objection = await _objection(url)

    assert objection.reason == "own_page"


async def test_lines_that_cannot_be_read_cost_only_themselves(caplog) -> None:
    """dcgm-exporter prints some errors as values; the other lines hold, and the log tells it once."""
    caplog.set_level(logging.WARNING)
    broken = sample("SM_ACTIVE", "ERROR - FAILED TO CONVERT TO STRING")
    async with serving(page(sample("DRAM_ACTIVE", "0.25"), broken)) as url:
        scrape = DcgmScrape(url, 5.0)
        readings = [await scrape.read() for _ in range(2)]
        scrape.close()

    assert [reading.unreadable for reading in readings] == [1, 1]
    assert readings[1].profiles["GPU-1", None].active == {"dram": 0.25}
    assert [record.message for record in caplog.records] == [
        f"{url}: skipped 1 profiling lines that could not be parsed"
    ]


async def test_old_samples_are_left_out() -> None:
    """A sample with a time of its own counts while it is fresh; one without counts as of now."""
    lines = (
        sample("SM_ACTIVE", "0.1 940000"),
        sample("DRAM_ACTIVE", "0.2 939999"),
        sample("PIPE_FP64_ACTIVE", "0.3"),
    )
    async with serving(page(*lines)) as url:
        scrape = DcgmScrape(url, 5.0, stale_after=60.0, wall=lambda: 1000.0)
        reading = await scrape.read()
        scrape.close()

    assert reading.profiles["GPU-1", None].active == {"sm": 0.1, "fp64": 0.3}


async def test_a_name_is_looked_up() -> None:
    """A service is named, not numbered; its name leads to the same page."""
    async with serving(BUSY) as url:
        reading = await _read(url.replace("127.0.0.1", "localhost"))

    assert reading.profiles


async def test_a_name_that_is_not_known_is_told() -> None:
    """The one who set the URL reads which host cannot be found."""
    objection = await _objection("http://no-such-host.invalid:9400/metrics")

    assert objection.reason == "unreachable"
    assert "no-such-host.invalid" in str(objection)


async def test_a_resolver_that_hangs_costs_no_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline holds, and the thread that waits is none that the program waits for at its end."""
    release = threading.Event()
    waiting: list[threading.Thread] = []

    def hang(*_: object, **__: object) -> list:
        waiting.append(threading.current_thread())
        release.wait(10)
        return []

    monkeypatch.setattr("socket.getaddrinfo", hang)
    objection = await _objection("http://slow.invalid/metrics", timeout=0.1)
    release.set()

    assert objection.reason == "deadline"
    assert [thread.daemon for thread in waiting] == [True]
