"""Event streams: events are made once for all clients, slow clients delay no others, and all streams end."""

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

from exporter.config import ListenAddress
from exporter.web import Server
from exporter.web.app import build_app
from exporter.web.live.broadcaster import Broadcaster, Message, Ticker, event, text
from tests.waiting import LIMIT_SECONDS
from tests.waiting import wait_until_async as until
from tests.web.following import following
from tests.web.views_reading import snapshot

MOMENT = 0.02
BEAT = text(": beat\n\n")


@dataclass(eq=False)
class Tally:
    """A subject that records its calls; its state is a number, and its events have ``size`` more bytes."""

    state: int = 0
    size: int = 10
    fails: bool = False
    asked: list = field(default_factory=list)
    beat: Message = BEAT

    @property
    def tag(self) -> str:
        """The state is the name of itself."""
        return str(self.state)

    async def look(self):
        """Return the state."""
        self.asked.append("look")
        return self.tag, self.state

    def greeting(self, now) -> Message:
        """Return an event with the time."""
        return event("hello", {"now": now})

    def whole(self, tag, state) -> Message:
        """Return an event with the state."""
        self.asked.append("whole")
        return event("whole", [state, "x" * self.size], tag)

    def change(self, old, tag, new) -> Message:
        """Return an event with the step."""
        self.asked.append("change")
        if self.fails:
            raise ValueError(new)
        return event("change", [old, new, "x" * self.size], tag)


class Served:
    """A hub on a server at ``url``, with a stream for each of two subjects."""

    def __init__(self, **options) -> None:
        self.ticker = Ticker()
        self.hub = Broadcaster(self.ticker, **options)
        self.one, self.other = Tally(), Tally()
        app = build_app(
            [web.get("/one", self._stream(self.one)), web.get("/other", self._stream(self.other))]
        )
        app.on_shutdown.append(self.hub.close)
        self.server = Server(app, ListenAddress("127.0.0.1", 0))
        self.url = ""

    def _stream(self, subject):
        async def stream(request):
            return await self.hub.answer(request, subject)

        return stream

    async def step(self, *followers) -> list:
        """Publish a snapshot, and wait for the event at each of these."""
        self.one.state += 1
        self.other.state += 1
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
            assert {(event.raw, *event.data[:2]) for event in events} == {(events[0].raw, number, number + 1)}
        for each in opened:
            await each.__aexit__(None, None, None)

        assert served.one.asked == ["look", *["look", "change"] * 3]
        assert served.other.asked == []


async def test_the_whole_state_is_made_once_when_needed() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/one?since=0") as first:
        await first.next()
        await served.step(first)
        assert "whole" not in served.one.asked
        for _ in range(5):
            async with following(client, f"{served.url}/one") as late:
                assert (await late.change()).data[0] == 1

        assert served.one.asked.count("whole") == 1


async def test_a_subject_without_clients_costs_nothing() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/other") as staying:
        async with following(client, f"{served.url}/one") as follower:
            await follower.change()
        await staying.change()
        while served.hub.streams > 1:
            await served.step(staying)
        # The snapshot in whose midst the client went may still be looked at for it.
        await served.step(staying)
        before = len(served.one.asked)
        await served.step(staying)

        assert len(served.one.asked) == before


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
            while f"data: [{steps},".encode() not in received:
                received += await loop.sock_recv(slow, 1 << 20)
        slow.close()

        assert received.count(b"event: change") < steps / 2
        assert received.count(b"event: whole") == 1


async def test_a_client_that_does_not_read_events_is_cut_off() -> None:
    async with serving(patience=0.1) as (served, _):
        served.one.size = 20_000_000
        _, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]), limit=1)
        writer.write(b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.one.asked == ["look", "whole"])
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
            assert (await follower.change()).name == "whole"


async def test_the_number_of_subjects_is_limited() -> None:
    """Not the number of clients of a subject."""
    async with serving(subjects=1, beat=MOMENT) as (served, client):
        async with following(client, f"{served.url}/one"), following(client, f"{served.url}/one"):
            assert (await client.get(f"{served.url}/other")).status == 503
        await until(lambda: served.hub.streams == 0)
        async with following(client, f"{served.url}/other") as follower:
            assert (await follower.change()).name == "whole"


async def test_streams_end_when_the_server_stops() -> None:
    async with serving() as (served, client), following(client, f"{served.url}/one") as follower:
        await follower.change()
        await served.server.stop()

        assert await follower.ended()
        assert served.hub.streams == 0


async def test_a_silent_stream_gets_a_beat() -> None:
    async with serving(beat=MOMENT) as (served, client), following(client, f"{served.url}/one") as follower:
        await follower.change()
        waiting = asyncio.create_task(follower.change())
        await until(lambda: "beat" in follower.comments)
        await served.step()
        await waiting


async def test_a_snapshot_published_while_the_first_stream_begins_is_sent() -> None:
    async with serving() as (served, client):
        look = served.one.look

        async def overtaken():
            served.one.look = look
            state = await look()
            served.one.state += 1
            served.ticker.tick()
            return state

        served.one.look = overtaken
        async with following(client, f"{served.url}/one?since=0") as follower:
            assert (await follower.change()).data[:2] == [0, 1]


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

        assert (await bad.change()).data[:2] == [0, 2]


async def test_the_headers_keep_proxies_from_storing_events() -> None:
    async with serving() as (served, client):
        for ask in (client.get, client.head):
            async with ask(f"{served.url}/one") as response:
                assert response.status == 200
                assert response.content_type == "text/event-stream"
                assert response.headers["Cache-Control"] == "no-store"
                assert response.headers["X-Accel-Buffering"] == "no"
        assert await response.read() == b""
