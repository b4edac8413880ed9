"""The past from memory and from a Prometheus: which of the two tells what, and what where one is away."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from exporter.demo.scenario.catalog import load
from exporter.history import Ask, NotKeptError, Wanted
from exporter.history.ring import OFFERED, History, span_seconds, spans_of
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
UP = f'{{"status":"success","data":{{"resultType":"matrix","result":[{ONE}]}}}}'


class Node:
    """A node of one fake GPU whose past is asked for; time stands still but for ``clock`` and ``wall``."""

    def __init__(self, served, url, kept=6 * HOUR):
        self.clock, self.wall = 0.0, served.poller.snapshot.timestamp
        self.near = History(kept, 5, wall=lambda: self.wall)
        self.near.record(served.poller.snapshot)
        far = None
        if url is not None:
            far = PrometheusHistory(
                Prometheus(url, deadline=5), lambda: served.poller.snapshot, wall=lambda: self.wall
            )
        self.longer = LongerHistory(
            self.near, far, kept=kept, clock=lambda: self.clock, wall=lambda: self.wall
        )

    async def read(self, span, end=None, points=60):
        """Ask for the GPUs' past."""
        return await self.longer.read(Ask(span=span, end=end, points=points, wanted=GPUS))


@pytest.fixture
async def served():
    """Serve a node that was polled once."""
    async with serving(load("h100-exclusive")) as node:
        await node.poll(0)
        yield node


async def telling(request):
    """Answer as a Prometheus that knows one GPU, from the first step on."""
    form = await request.post()
    return await saying(UP % form["start"])(request)


async def test_memory_tells_what_it_has(served):
    """What memory has in full is asked of nobody else; longer spans, and those of before the start, are."""
    async with answering(telling) as server:
        node = Node(served, server.url)
        assert (await node.read(300)).source == "memory"
        assert server.paths == []
        past = await node.read(DAY)
        assert (past.source, past.note, past.count) == ("prometheus", "", 59)
        assert (await node.read(HOUR)).source == "prometheus"
        asked = len(server.paths)
        node.wall += HOUR
        assert (await node.read(HOUR)).source == "memory"
        assert len(server.paths) == asked
        await node.longer.close()


async def test_without_prometheus_a_longer_span_is_shortened(served):
    """It is what memory keeps, and says so; what ended before that is not told."""
    node = Node(served, None)
    past = await node.read(7 * DAY)
    assert (past.source, past.step * past.count) == ("memory", 6 * HOUR)
    assert "6 h" in past.note
    assert "--prometheus-url" in past.note
    assert (await node.read(HOUR)).note == ""
    half = await node.read(DAY, end=node.wall - 3 * HOUR)
    assert half.start >= node.wall - 6 * HOUR - half.step
    with pytest.raises(NotKeptError, match="--prometheus-url"):
        await node.read(HOUR, end=node.wall - DAY)


async def test_an_end_in_the_future_is_now(served):
    """A clock that is ahead of the node's gets all that memory has."""
    node = Node(served, None)
    past = await node.read(7 * DAY, end=node.wall + HOUR)
    assert (past.source, past.step * past.count) == ("memory", 6 * HOUR)


async def test_only_so_many_spans_are_remembered_as_failing(served):
    """Whoever asks for many spans of a server that is away has the first forgotten, and asked again."""
    async with answering(saying("<html>502</html>", 502)) as server:
        node = Node(served, server.url)
        for more in range(33):
            await node.read(DAY + more * 60)
        asked = len(server.paths)
        await node.read(DAY + 32 * 60)
        assert len(server.paths) == asked
        await node.read(DAY)
        assert len(server.paths) > asked
        await node.longer.close()


async def test_askers_share_an_answer(served):
    """However many pages are open, a question is asked once, and again when its last step has changed."""
    async with answering(telling) as server:
        node = Node(served, server.url)
        await asyncio.gather(*(node.read(DAY) for _ in range(20)))
        once = len(server.paths)
        assert once == len(set(map(str, server.forms)))
        node.clock += 59
        await node.read(DAY)
        assert len(server.paths) == once
        node.clock += 2
        await node.read(DAY)
        assert len(server.paths) == 2 * once
        await node.longer.close()


async def test_one_who_goes_away_does_not_take_the_answer(served):
    """The others who wait for the same get it."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request):
        asked.set()
        await go_on.wait()
        return await telling(request)

    async with answering(slow) as server:
        node = Node(served, server.url)
        first, second = asyncio.ensure_future(node.read(DAY)), asyncio.ensure_future(node.read(DAY))
        await asked.wait()
        first.cancel()
        go_on.set()
        assert (await second).source == "prometheus"
        await node.longer.close()


async def test_a_server_that_is_away_delays_nobody_twice(served):
    """After one failure memory tells at once, and a later question asks again without waiting for it."""
    mended, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request):
        if not mended.is_set():
            return await saying("<html>502</html>", 502)(request)
        await go_on.wait()
        return await telling(request)

    async with answering(handler) as server:
        node = Node(served, server.url)
        past = await node.read(DAY)
        assert past.source == "memory"
        assert "returns no result (HTTP status 502 Bad Gateway)" in past.note
        asked = len(server.paths)
        assert (await node.read(DAY)).note == past.note
        assert len(server.paths) == asked
        mended.set()
        node.clock += RETRY_AFTER
        # Nothing answers yet, and there is an answer all the same.
        assert (await node.read(DAY)).source == "memory"
        go_on.set()

        async def back():
            return (await node.read(DAY)).source == "prometheus"

        await wait_until_async(back, "Prometheus tells again")
        await node.longer.close()


async def test_a_span_that_takes_too_long_spoils_no_other(served):
    """What Prometheus refuses for a month it may well tell for a day."""

    async def handler(request):
        form = await request.post()
        if float(form["end"]) - float(form["start"]) > 2 * DAY:
            return await saying('{"status":"error","error":"too many samples"}', 422)(request)
        return await telling(request)

    async with answering(handler) as server:
        node = Node(served, server.url)
        assert "too many samples" in (await node.read(30 * DAY)).note
        assert (await node.read(DAY)).source == "prometheus"
        await node.longer.close()


async def test_a_prometheus_that_knows_nothing_of_the_node(served):
    """Memory is better than nothing."""
    async with answering(saying('{"status":"success","data":{"resultType":"matrix","result":[]}}')) as server:
        node = Node(served, server.url)
        past = await node.read(DAY)
        assert (past.source, bool(past.tracks)) == ("memory", True)
        assert "Prometheus has no data for this range" in past.note
        asked = len(server.paths)
        node.clock += 4
        await node.read(DAY)
        assert len(server.paths) == asked
        node.clock += 2
        await node.read(DAY)
        assert len(server.paths) > asked
        await node.longer.close()


async def test_before_the_first_poll():
    """No GPU is known to ask for, and that is what the note says; nothing is asked."""
    async with serving(load("h100-exclusive")) as unpolled, answering(telling) as server:
        node = Node(unpolled, server.url)
        past = await node.read(DAY)
        assert (past.source, tuple(past.tracks)) == ("memory", ())
        assert "no GPU is known yet" in past.note
        assert server.paths == []
        await node.longer.close()


async def test_closing_leaves_questions_behind(served):
    """A Prometheus that hangs does not keep the program from ending."""
    never = asyncio.Event()

    async def handler(_request):
        await never.wait()

    async with answering(handler) as server:
        node = Node(served, server.url)
        reading = asyncio.ensure_future(node.read(DAY))

        async def asked():
            return server.paths

        await wait_until_async(asked, "the question is asked")
        await node.longer.close()
        with pytest.raises(asyncio.CancelledError):
            await reading
        never.set()


@pytest.mark.slow
async def test_a_real_prometheus_is_killed_and_comes_back(tmp_path, served):
    """It tells what it has scraped; while it is gone memory does, with a note; then it tells again."""
    port, jobs = free_port(), {"node": f"{served.url}/metrics"}
    clock = 0.0
    near = History(300, 1)
    far = PrometheusHistory(
        Prometheus(f"http://127.0.0.1:{port}"), lambda: served.poller.snapshot, finest=1.0
    )
    longer = LongerHistory(near, far, kept=300, clock=lambda: clock)

    async def told():
        nonlocal clock
        clock += 60
        past = await longer.read(Ask(span=900, points=901, wanted=GPUS))
        return past if past.source == "prometheus" else None

    async def totals():
        """Sizes of memory, once there are any: a scrape may come between two of the answers."""
        past = await told()
        tracks = past.tracks if past else ()
        return {size for track in tracks for size in track.values["memory_total_bytes"] if size is not None}

    async with AsyncExitStack() as stack:
        stack.push_async_callback(longer.close)
        with prometheus(tmp_path, jobs, port=port):
            (total,) = await wait_until_async(totals, "Prometheus has scraped the node")
            assert total == served.poller.snapshot.gpus[0].reading.memory.total
        clock += 60
        gone = await longer.read(Ask(span=900, points=901, wanted=GPUS))
        assert gone.source == "memory"
        assert "Prometheus cannot be reached: Connection refused" in gone.note
        with prometheus(tmp_path, jobs, port=port):
            assert (await wait_until_async(told, "Prometheus tells again")).note == ""


def test_the_spans_that_are_offered():
    """All that memory keeps, and with a Prometheus what was before."""
    assert spans_of(6 * HOUR, longer=False) == ("5m", "1h", "6h")
    assert spans_of(6 * HOUR, longer=True) == OFFERED
    assert spans_of(12 * HOUR, longer=False) == ("5m", "1h", "6h", "12h")
    assert spans_of(90 * 60, longer=True) == ("5m", "1h", "90m", "6h", "24h", "7d", "30d")
    assert spans_of(300, longer=False) == ("5m",)
    assert spans_of(330.5, longer=False) == ("5m", "330s")
    assert [span_seconds(name) for name in ("330s", "90m", "7d")] == [330.0, 5400.0, 7 * DAY]
    assert [span_seconds(name) for name in ("", "0h", "1", "-1h", "1.5h", "1w", "9999999d")] == [None] * 7
