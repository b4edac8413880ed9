"""Fetching the page of a dcgm-exporter over HTTP."""

import logging
import time
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from exporter.concurrency import Worker
from exporter.dcgm_scrape.page import DcgmError, DcgmReading, read_page
from exporter.resolver import WorkerResolver

log = logging.getLogger(__name__)
# A node with 16 GPUs, each cut into 7 and shared by dozens of pods, has a page of a few MiB.
LARGEST_PAGE: Final = 32 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_HEADERS: Final = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "gzip"}


class DcgmScrape:
    """Reads the page at ``url``, a read taking ``timeout`` seconds at most.

    Samples that carry a time of their own are left out once they are ``stale_after`` seconds old.
    """

    def __init__(
        self, url: str, timeout: float, *, stale_after: float = 60.0, wall: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        self._shown = _without_secrets(url)
        self._timeout = timeout
        self._stale_after = stale_after
        self._wall = wall
        self._worker = Worker("dcgm")
        self._names = Worker("dcgm-names")
        self._unreadable = 0

    async def read(self) -> DcgmReading:
        """Fetch the page and read it in a thread of its own; raises DcgmError."""
        body, zipped = await self._fetch()
        oldest = self._wall() - self._stale_after
        reading = await self._worker.run(lambda: read_page(_text(body, zipped), oldest))
        if reading.unreadable > self._unreadable:
            log.warning(
                ("%s: skipped %d profiling lines that could not be parsed"), self._shown, reading.unreadable
            )
        self._unreadable = reading.unreadable
        return reading

    def close(self) -> None:
        """Let the threads end."""
        self._worker.stop()
        self._names.stop()

    async def _fetch(self) -> tuple[bytes, bool]:
        """Return the page as it came, and whether it is compressed."""
        # Unpacked below, where the size of what comes out can be bounded.
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=WorkerResolver(self._names)),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            auto_decompress=False,
        )
        try:
            async with session, session.get(self._url, headers=_HEADERS, allow_redirects=False) as answer:
                if answer.status != HTTPStatus.OK:
                    raise DcgmError("status", f"{self._shown} answers {answer.status} {answer.reason}")
                return await self._body(answer), answer.headers.get("Content-Encoding", "") == "gzip"
        except TimeoutError as error:
            raise DcgmError("deadline", f"{self._shown} gives no page within {self._timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise DcgmError("unreachable", f"{self._shown}: {str(error) or repr(error)}") from error

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > LARGEST_PAGE:
                raise _too_large()
        return bytes(body)


def _without_secrets(url: str) -> str:
    """Leave out what must not get into logs: the name and password, and the query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _text(body: bytes, zipped: bool) -> str:
    if zipped:
        try:
            body = zlib.decompressobj(_GZIP).decompress(body, LARGEST_PAGE + 1)
        except zlib.error as error:
            raise DcgmError("malformed", f"the page cannot be unpacked: {error}") from error
        if len(body) > LARGEST_PAGE:
            raise _too_large()
    return body.decode(errors="replace")


def _too_large() -> DcgmError:
    return DcgmError("too_large", f"the page is larger than {LARGEST_PAGE // 2**20} MiB")
