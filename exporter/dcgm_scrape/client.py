"""Fetches the page of a dcgm-exporter over HTTP."""

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
from exporter.dns_lookup import WorkerResolver

log = logging.getLogger(__name__)
# A node with 16 GPUs of 7 MIG devices each, shared by dozens of pods, has a page of a few MiB.
LARGEST_PAGE: Final = 32 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_HEADERS: Final = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "gzip"}


class DcgmScrape:
    """Reads the page at ``url`` within ``timeout`` seconds.

    Samples with a timestamp are ignored if they are older than ``stale_after`` seconds, by ``wall`` (Unix
    time).
    """

    def __init__(
        self, url: str, timeout: float, *, stale_after: float = 60.0, wall: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        # For logs, without credentials and query.
        parts = urlsplit(url)
        self._shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        self._timeout = timeout
        self._stale_after = stale_after
        self._wall = wall
        self._worker = Worker("dcgm")
        self._names = Worker("dcgm-names")
        # In the last page.
        self._unreadable = 0

    async def read(self) -> DcgmReading:
        """Return the reading of the page, which is parsed in a thread. Raises DcgmError."""
        body, zipped = await self._fetch()
        oldest = self._wall() - self._stale_after
        reading = await self._worker.run(lambda: read_page(_text(body, zipped), oldest))
        if reading.unreadable > self._unreadable:
            log.warning(
                "%s: skipped %d profiling lines that could not be parsed, or have impossible values",
                self._shown,
                reading.unreadable,
            )
        self._unreadable = reading.unreadable
        return reading

    def close(self) -> None:
        """Stop the threads."""
        self._worker.stop()
        self._names.stop()

    async def _fetch(self) -> tuple[bytes, bool]:
        """Return the body of the page, and whether it is compressed. Raises DcgmError."""
        # Decompressed in _text, which limits the size.
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
            raise DcgmError("deadline", f"{self._shown} did not answer within {self._timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise DcgmError("unreachable", f"{self._shown}: {str(error) or repr(error)}") from error

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > LARGEST_PAGE:
                raise _too_large()
        return bytes(body)


def _text(body: bytes, zipped: bool) -> str:
    if zipped:
        try:
            body = zlib.decompressobj(_GZIP).decompress(body, LARGEST_PAGE + 1)
        except zlib.error as error:
            raise DcgmError("malformed", f"the page cannot be decompressed: {error}") from error
        if len(body) > LARGEST_PAGE:
            raise _too_large()
    return body.decode(errors="replace")


def _too_large() -> DcgmError:
    return DcgmError("too_large", f"the page is larger than {LARGEST_PAGE // 2**20} MiB")
