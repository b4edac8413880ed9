"""The nodes of a fleet, served on 127.0.0.1, and a Prometheus that scrapes them.

Their pages are of the real program on a fake node, one for each scrape, prepared to be those of any node.
"""

import asyncio
import re
import resource
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from benchmarks.processes import free_port, subject
from benchmarks.prometheus import Prometheus, prometheus

NODE, TEAM = "@node@", "@team@"
"""Placeholders in a frame: the six digits of a node, and one or two of its namespaces."""

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# Fleets have more names of pods, and namespaces, than a node.
_UNIQUE = (
    (re.compile(r"(GPU-[0-9a-f-]{24})[0-9a-f]{6}(?=[0-9a-f]{6})"), rf"\1{NODE}"),
    (re.compile(r"\bbench-[\w-]+"), f"node-{NODE}"),
    (re.compile(r'(serial="\d+)\d{6}"'), rf'\1{NODE}"'),
    (re.compile(r'\b(pod="\w+)-\w+-(\w+)"'), rf'\1-{NODE}-\2"'),
    (re.compile(r'(pod_uid="[^"]+).{6}"'), rf'\1{NODE}"'),
    (re.compile(r'\b(namespace="[^"]+)"'), rf'\1-{TEAM}"'),
)
_TIMESTAMP = re.compile(r"^(\w+_timestamp_seconds(?:\{.*\})?) (\S+)$", re.MULTILINE)

Lines = Sequence[str]
_TEAMS = 20
_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
    "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A page with placeholders for what differs between nodes."""

    text: str
    time: float  # Unix time of the node when it was rendered

    def at(self, now: float) -> str:
        """Return the page as if it had been rendered at ``now``."""
        later = now - self.time
        return _TIMESTAMP.sub(lambda match: f"{match[1]} {float(match[2]) + later:.3f}", self.text)


def frame(page: Lines) -> Frame:
    """Put placeholders for what differs between nodes."""
    text = "\n".join(page) + "\n"
    for pattern, replacement in _UNIQUE:
        text = pattern.sub(replacement, text)
    return Frame(text, max((float(match[2]) for match in _TIMESTAMP.finditer(text)), default=0.0))


def recorded(node: str, count: int) -> list[list[str]]:
    """Have the program poll a fake node, and scrape it after each poll; return the lines of each page."""
    pages = []
    with subject("by-hand", node) as program:
        for _ in range(count):
            program.ask("poll", times=1)
            pages.append(program.get("metrics", {"Accept": _OPENMETRICS})[1].decode().splitlines())
    return pages


def only(page: Lines, names: frozenset[str]) -> list[str]:
    """Return the lines of these series, with their comments, and the end of the page."""
    families = names | {name.removesuffix("_total").removesuffix("_info") for name in names}
    return [line for line in page if _name(line) in (families if line[0] == "#" else names)] + ["# EOF"]


def _name(line: str) -> str:
    """Return the family of a comment or the series of a sample; "" at the end of a page."""
    words = line.split(maxsplit=3)
    if line.startswith("#"):
        return words[2] if len(words) > 2 else ""
    return words[0].partition("{")[0]


@dataclass(slots=True)
class Fleet:
    """Nodes that all show a frame for ``step`` seconds, and then the next."""

    frames: Sequence[Frame]
    count: int
    step: float
    _start: float = field(default_factory=time.monotonic)
    _shown: tuple[int, str] = (-1, "")  # the number of a frame, and its text now

    def page(self, node: int) -> str:
        """Return the page of a node as it is now."""
        turn = min(int((time.monotonic() - self._start) / self.step), len(self.frames) - 1)
        if self._shown[0] != turn:
            self._shown = turn, self.frames[turn].at(time.time())
        text = self._shown[1]
        return text.replace(NODE, f"{node:06d}").replace(TEAM, str(node % _TEAMS))


class _Connection(asyncio.Protocol):
    """Answers requests for /0, /1, ... with the pages of these nodes, one after the other."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP is one
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            request, _, self._received = self._received.partition(b"\r\n\r\n")
            # As the exporter compresses a page.
            packer = zlib.compressobj(1, wbits=31)
            body = packer.compress(self._fleet.page(int(request.split()[1][1:])).encode()) + packer.flush()
            self._transport.write(_HEAD.format(len(body)).encode() + body)


@contextmanager
def _served(fleet: Fleet) -> Iterator[int]:
    """Serve the pages as /0, /1, ... in a thread, and return the port."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Each target keeps its connection open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Connection(fleet), "127.0.0.1", 0))
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        # Connections that Prometheus has closed are cleared up.
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()


@contextmanager
def scraped(fleet: Fleet) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes each node of a fleet every ``step`` seconds.

    It evaluates the rules in the files ``*.yaml`` in its folder once ``reload`` is called.
    """
    with _served(fleet) as port, tempfile.TemporaryDirectory(prefix="fleet-") as name:
        target = f"127.0.0.1:{port}"
        targets = [
            {
                "targets": [target],
                "labels": {"__metrics_path__": f"/{node}", "instance": f"10.0.{node:06d}:9835"},
            }
            for node in range(fleet.count)
        ]
        interval = f"{round(fleet.step * 1000)}ms"
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "rule_files": [f"{name}/*.yaml"],
            "scrape_configs": [{"job_name": "gpuslice", "honor_labels": True, "static_configs": targets}],
        }
        options = "--web.enable-admin-api", "--scrape.discovery-reload-interval=100ms", "--log.level=error"
        with prometheus(Path(name), config, free_port(), *options) as server:
            try:
                yield server
            finally:
                # Its data is not kept, so that it need not end in order.
                server.process.popen.kill()
