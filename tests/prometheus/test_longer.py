"""The past from memory and from a Prometheus: which of the two is used, and what is shown without one."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from exporter.demo.scenario.catalog import load
from exporter.history import Ask, NotKeptError, Wanted
from exporter.history.ring import History
from exporter.history.spans import OFFERED, span_seconds, spans_of
from exporter.prometheus import Prometheus
from exporter.prometheus.combined_history import RETRY_AFTER, LongerHistory
from exporter.prometheus.past_queries import PrometheusHistory
from tests.end_to_end.programs import free_port, prometheus
from tests.end_to_end.serving import serving
from tests.prometheus.answering import answering, saying
from tests.waiting import wait_until_async

GPUS = Wanted(levels=frozenset({"gpu"}))
DAY, HOUR = 86400.0, 3600.0
ONE = '{"metric":{"uuid":"U"},"values":[[%s,"1"]]}'
MATRIX = '{"status":"success","data":{"resultType":"matrix","result":[%s]}}'
AWAY = saying("<html>502</html>", 502)


class Node:
    """A node of one fake GPU with a past; its time is ``clock`` and ``wall``."""

    def __init__(self, served, url, kept=6 * HOUR):
        self.clock, self.wall = 0.0, served.poller.snapshot.timestamp
        self.near = History(kept, 5, wall=lambda: self.wall)
        self.near.record(served.poller.snapshot)
        far = None
        if url is not None:
            far = PrometheusHistory(
                Prometheus(url, deadline=60), lambda: served.poller.snapshot, wall=lambda: self.wall
            )
        self.longer = LongerHistory(
            self.near, far, kept=kept, clock=lambda: self.clock, wall=lambda: self.wall
        )

    async def read(self, span, end=None):
        """Return the past of the GPUs."""
        return await self.longer.read(Ask(span=span, end=end, points=60, wanted=GPUS))


@pytest.fixture
async def served():
    """Serve a node that was polled once."""
    async with serving(load("h100-exclusive")) as node:
        await node.poll(0)
        yield node


@asynccontextmanager
async def with_prometheus(served, handler):
    """Yield a node, and the server that answers in place of its Prometheus."""
    async with answering(handler) as server:
        node = Node(served, server.url)
        yield node, server
        await node.longer.close()


async def known(request):
    """Answer as a Prometheus that has data of one GPU from the first step on."""
    form = await request.post()
    return await saying(MATRIX % (ONE % form["start"]))(request)


async def test_prometheus_is_asked_only_for_what_memory_lacks(served):
    """Longer spans, and those that begin before the exporter started, come from Prometheus."""
    async with with_prometheus(served, known) as (node, server):
        assert (await node.read(300)).source == "memory"
        assert server.paths == []
        past = await node.read(DAY)
        assert (past.source, past.note, past.count) == ("prometheus", "", 59)
        assert (await node.read(HOUR)).source == "prometheus"
        queries = len(server.paths)
        node.wall += HOUR
        assert (await node.read(HOUR)).source == "memory"
        assert len(server.paths) == queries


async def test_without_prometheus_a_longer_span_is_shortened(served):
    """The note says so; a span that ended before what memory keeps is refused."""
    node = Node(served, None)
    # The clock of a browser may be ahead of the node's.
    for end in (None, node.wall + HOUR):
        past = await node.read(7 * DAY, end=end)
        assert (past.source, past.step * past.count) == ("memory", 6 * HOUR)
        assert "6 h" in past.note
        assert "--prometheus-url" in past.note
    assert (await node.read(HOUR)).note == ""
    half = await node.read(DAY, end=node.wall - 3 * HOUR)
    assert half.start >= node.wall - 6 * HOUR - half.step
    with pytest.raises(NotKeptError, match="--prometheus-url"):
        await node.read(HOUR, end=node.wall - DAY)


async def test_the_number_of_spans_remembered_as_failing_is_bounded(served):
    """The oldest is forgotten, and queried again."""
    async with with_prometheus(served, AWAY) as (node, server):
        for more in range(33):
            await node.read(DAY + more * 60)
        queries = len(server.paths)
        await node.read(DAY + 32 * 60)
        assert len(server.paths) == queries
        await node.read(DAY)
        assert len(server.paths) > queries


async def test_readers_share_an_answer(served):
    """Each query is sent once for all open pages, and again when its last step has changed."""
    async with with_prometheus(served, known) as (node, server):
        await asyncio.gather(*(node.read(DAY) for _ in range(20)))
        queries = len(server.paths)
        assert queries == len(set(map(str, server.forms)))
        node.clock += 59
        await node.read(DAY)
        assert len(server.paths) == queries
        node.clock += 2
        await node.read(DAY)
        assert len(server.paths) == 2 * queries


async def test_a_reader_that_leaves_does_not_cancel_the_query_of_others(served):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request):
        asked.set()
        await go_on.wait()
        return await known(request)

    async with with_prometheus(served, slow) as (node, _):
        first, second = asyncio.ensure_future(node.read(DAY)), asyncio.ensure_future(node.read(DAY))
        await asked.wait()
        first.cancel()
        go_on.set()
        assert (await second).source == "prometheus"


async def test_a_prometheus_that_is_away_delays_no_further_reader(served):
    """After a failure memory answers at once, and a later read queries again without waiting for it."""
    repaired, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request):
        if not repaired.is_set():
            return await AWAY(request)
        await go_on.wait()
        return await known(request)

    async with with_prometheus(served, handler) as (node, server):
        past = await node.read(DAY)
        assert past.source == "memory"
        assert "returns no result (HTTP status 502 Bad Gateway)" in past.note
        queries = len(server.paths)
        assert (await node.read(DAY)).note == past.note
        assert len(server.paths) == queries
        repaired.set()
        node.clock += RETRY_AFTER
        # Prometheus has not answered yet.
        assert (await node.read(DAY)).source == "memory"
        go_on.set()

        async def back():
            return (await node.read(DAY)).source == "prometheus"

        await wait_until_async(back, "Prometheus answers again")


async def test_a_span_that_is_refused_does_not_affect_others(served):
    async def handler(request):
        form = await request.post()
        if float(form["end"]) - float(form["start"]) > 2 * DAY:
            return await saying('{"status":"error","error":"too many samples"}', 422)(request)
        return await known(request)

    async with with_prometheus(served, handler) as (node, _):
        assert "too many samples" in (await node.read(30 * DAY)).note
        assert (await node.read(DAY)).source == "prometheus"


async def test_memory_is_shown_if_prometheus_has_no_data(served):
    async with with_prometheus(served, saying(MATRIX % "")) as (node, server):
        past = await node.read(DAY)
        assert (past.source, bool(past.tracks)) == ("memory", True)
        assert "Prometheus has no data for this range" in past.note
        queries = len(server.paths)
        node.clock += 4
        await node.read(DAY)
        assert len(server.paths) == queries
        node.clock += 2
        await node.read(DAY)
        assert len(server.paths) > queries


async def test_nothing_is_asked_before_the_first_poll():
    async with (
        serving(load("h100-exclusive")) as unpolled,
        with_prometheus(unpolled, known) as (node, server),
    ):
        past = await node.read(DAY)
        assert (past.source, tuple(past.tracks)) == ("memory", ())
        assert "no GPU is known yet" in past.note
        assert server.paths == []


async def test_closing_does_not_wait_for_a_prometheus_that_hangs(served):
    never = asyncio.Event()

    async def handler(_request):
        await never.wait()

    async with with_prometheus(served, handler) as (node, server):
        reading = asyncio.ensure_future(node.read(DAY))
        await wait_until_async(lambda: server.paths, "the query is sent")
        await node.longer.close()
        with pytest.raises(asyncio.CancelledError):
            await reading
        never.set()


@pytest.mark.slow
async def test_a_real_prometheus_that_is_killed_and_comes_back(tmp_path, served):
    """While it is away memory is shown, with a note."""
    port, jobs = free_port(), {"node": f"{served.url}/metrics"}
    clock = 0.0
    far = PrometheusHistory(
        Prometheus(f"http://127.0.0.1:{port}"), lambda: served.poller.snapshot, finest=1.0
    )
    longer = LongerHistory(History(300, 1), far, kept=300, clock=lambda: clock)

    async def read():
        nonlocal clock
        clock += 60
        return await longer.read(Ask(span=900, points=901, wanted=GPUS))

    async def from_prometheus():
        past = await read()
        return past if past.source == "prometheus" else None

    async def totals():
        """Return sizes of memory, once there are any: a scrape may come between two of the queries."""
        past = await from_prometheus()
        tracks = past.tracks if past else ()
        return {size for track in tracks for size in track.values["memory_total_bytes"] if size is not None}

    async with AsyncExitStack() as stack:
        stack.push_async_callback(longer.close)
        with prometheus(tmp_path, jobs, port=port):
            (total,) = await wait_until_async(totals, "Prometheus has scraped the node")
            assert total == served.poller.snapshot.gpus[0].reading.memory.total
        gone = await read()
        assert gone.source == "memory"
        assert "Prometheus cannot be reached: Connection refused" in gone.note
        with prometheus(tmp_path, jobs, port=port):
            assert (await wait_until_async(from_prometheus, "Prometheus answers again")).note == ""


def test_spans_on_offer():
    """Up to what memory keeps, and with a Prometheus longer ones."""
    assert spans_of(6 * HOUR, longer=False) == ("5m", "1h", "6h")
    assert spans_of(6 * HOUR, longer=True) == OFFERED
    assert spans_of(12 * HOUR, longer=False) == ("5m", "1h", "6h", "12h")
    assert spans_of(90 * 60, longer=True) == ("5m", "1h", "90m", "6h", "24h", "7d", "30d")
    assert spans_of(300, longer=False) == ("5m",)
    assert spans_of(330.5, longer=False) == ("5m", "330s")
    assert [span_seconds(name) for name in ("330s", "90m", "7d")] == [330.0, 5400.0, 7 * DAY]
    assert [span_seconds(name) for name in ("", "0h", "1", "-1h", "1.5h", "1w", "9999999d")] == [None] * 7
