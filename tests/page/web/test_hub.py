"""Event streams: events are made once for all clients, slow clients delay no others, and all streams end."""

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

from exporter.config import ListenAddress
from exporter.web.kit.application import build_app
from exporter.web.kit.html import Drawing
from exporter.web.kit.http.server import Server
from exporter.web.kit.live.broadcaster import Broadcaster, Ticker
from tests.page.web.following import following
from tests.page.web.views_reading import snapshot
from tests.waiting import LIMIT_SECONDS
from tests.waiting import wait_until_async as until

MOMENT = 0.02


@dataclass(eq=False)
class Counter:
    """Pages with two pieces that change with each snapshot, one of them long, and one that never changes."""

    count: int = 0
    size: int = 10
    fails: bool = False
    drawn: list = field(default_factory=list)
    timestamp: float = 1.0

    @property
    def tag(self) -> str:
        """The name of the snapshot is its number."""
        return str(self.count)

    async def drawing(self, place) -> Drawing:
        """Return the page."""
        assert place == "place"
        self.drawn.append(self.count)
        if self.fails:
            raise ValueError(place)
        pieces = {"rest": "same", "more": f"{self.count}" + "x" * self.size, "count": str(self.count)}
        return Drawing(layout="", title="Counter", pieces=pieces)


WHOLE, CHANGE = {"count", "more", "rest"}, {"count", "more"}


class Served:
    """A hub on a server at ``url``, with a stream for a page of each of two counters."""

    def __init__(self, **options) -> None:
        self.ticker = Ticker()
        self.hub = Broadcaster(self.ticker, **options)
        self.one, self.other = Counter(), Counter()
        app = build_app(
            [web.get("/one", self._stream(self.one)), web.get("/other", self._stream(self.other))]
        )
        app.on_shutdown.append(self.hub.close)
        self.server = Server(app, ListenAddress("127.0.0.1", 0))
        self.url = ""

    def _stream(self, pages):
        async def stream(request):
            return await self.hub.answer(request, pages, "place")

        return stream

    async def step(self, *followers) -> list:
        """Publish a snapshot, and wait for the event at each of these."""
        self.one.count += 1
        self.other.count += 1
        self.ticker.tick(snapshot())
        return [await follower.change() for follower in followers]


@asynccontextmanager
async def serving(**options):
    """Serve a hub."""
    served = Served(**options)
    served.url = (await served.server.start()).removesuffix("/")
    try:
        async with ClientSession(auto_decompress=False, skip_auto_headers=("Accept-Encoding",)) as client:
            yield served, client
    finally:
        await served.server.stop()


async def test_many_clients_of_one_subject_share_each_event() -> None:
    async with serving() as (served, client):
        opened = [following(client, f"{served.url}/one?since=0") for _ in range(20)]
        followers = [await each.__aenter__() for each in opened]
        assert {(await follower.next()).name for follower in followers} == {"hello"}
        for number in range(3):
            events = await served.step(*followers)
            assert {event.raw for event in events} == {events[0].raw}
            assert events[0].data["pieces"].keys() == CHANGE
            assert events[0].data["pieces"]["count"] == f"{number + 1}"
        for each in opened:
            await each.__aexit__(None, None, None)

        assert served.one.drawn == [0, 1, 2, 3]
        assert served.other.drawn == []


async def test_the_whole_page_is_made_once_when_needed() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/one?since=0") as first:
        await first.next()
        await served.step(first)
        seen = []
        for _ in range(5):
            async with following(client, f"{served.url}/one") as late:
                seen.append(await late.change())

        assert {event.raw for event in seen} == {seen[0].raw}
        assert seen[0].data["pieces"].keys() == WHOLE
        assert seen[0].data["pieces"]["count"] == "1"


async def test_a_subject_without_clients_costs_nothing() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/other") as staying:
        async with following(client, f"{served.url}/one") as follower:
            await follower.change()
        await staying.change()
        while served.hub.streams > 1:
            await served.step(staying)
        # The page may still be drawn for the client that went meanwhile.
        await served.step(staying)
        before = len(served.one.drawn)
        await served.step(staying)

        assert len(served.one.drawn) == before


async def test_a_slow_reader_gets_the_newest_instead_of_a_queue() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/one?since=0") as quick:
        served.one.size = 300_000
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", int(served.url.rpartition(":")[2])))
        await loop.sock_sendall(slow, b"GET /one?since=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.hub.streams == 2)
        steps = 60
        for _ in range(steps):
            await served.step(quick)
        received = b""
        async with asyncio.timeout(LIMIT_SECONDS):
            while f'"count":"{steps}"'.encode() not in received:
                received += await loop.sock_recv(slow, 1 << 20)
        slow.close()

        assert received.count(b"event: change") < steps / 2
        assert received.count(b'"rest":"same"') == 1


async def test_a_client_that_does_not_read_events_is_cut_off() -> None:
    async with serving(patience=0.1) as (served, _):
        served.one.size = 20_000_000
        _, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]), limit=1)
        writer.write(b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.one.drawn == [0])
        await until(lambda: served.hub.streams == 0)
        writer.close()


async def test_the_number_of_streams_is_limited() -> None:
    async with serving(most=2, beat=MOMENT) as (served, client):
        async with following(client, f"{served.url}/one"), following(client, f"{served.url}/other"):
            refused = await client.get(f"{served.url}/one")
            assert refused.status == 503
            assert int(refused.headers["Retry-After"]) > 0
        await until(lambda: served.hub.streams == 0)
        async with following(client, f"{served.url}/one") as follower:
            assert (await follower.change()).data["pieces"].keys() == WHOLE


async def test_the_number_of_subjects_is_limited() -> None:
    """Not the number of clients of a subject."""
    async with serving(subjects=1, beat=MOMENT) as (served, client):
        async with following(client, f"{served.url}/one"), following(client, f"{served.url}/one"):
            assert (await client.get(f"{served.url}/other")).status == 503
        await until(lambda: served.hub.streams == 0)
        async with following(client, f"{served.url}/other") as follower:
            assert (await follower.change()).data["pieces"].keys() == WHOLE


async def test_streams_end_when_the_server_stops() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/one") as follower:
        await follower.change()
        await served.server.stop()

        assert await follower.ended()
        assert served.hub.streams == 0


async def test_a_silent_stream_gets_a_beat() -> None:
    async with serving(beat=MOMENT) as (served, client), following(client, f"{served.url}/one") as follower:
        await follower.change()
        while (await follower.next()).name != "beat":
            pass
        await served.step(follower)


async def test_a_snapshot_published_while_the_first_stream_begins_is_sent() -> None:
    async with serving() as (served, client):
        draw = served.one.drawing

        async def overtaken(place):
            served.one.drawing = draw
            drawing = await draw(place)
            served.one.count += 1
            served.ticker.tick()
            return drawing

        served.one.drawing = overtaken
        async with following(client, f"{served.url}/one?since=0") as follower:
            event = await follower.change()
            assert (event.id, event.data["pieces"].keys()) == ("1", CHANGE)


async def test_a_failing_subject_does_not_affect_others() -> None:
    """Its next event may work again."""
    async with (
        serving() as (served, client),
        following(client, f"{served.url}/one") as bad,
        following(client, f"{served.url}/other") as good,
    ):
        await bad.change()
        await good.change()
        served.one.fails = True
        await served.step(good)
        served.one.fails = False
        await served.step(good)

        missed_one = await bad.change()
        assert (missed_one.id, missed_one.data["pieces"].keys()) == ("2", CHANGE)


async def test_the_headers_keep_proxies_from_storing_events() -> None:
    async with serving() as (served, client):
        for ask in (client.get, client.head):
            async with ask(f"{served.url}/one") as response:
                assert response.status == 200
                assert response.content_type == "text/event-stream"
                assert response.headers["Cache-Control"] == "no-store"
                assert response.headers["X-Accel-Buffering"] == "no"
        assert await response.read() == b""
