"""A client of Prometheus, or of a server with its HTTP API: queries, each within a deadline."""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from exporter import __version__
from exporter.concurrency import Worker, in_thread
from exporter.dns_lookup import WorkerResolver
from exporter.fleet.prometheus.responses import (
    PrometheusError,
    Response,
    Sample,
    read_vector,
    why_unreachable,
)

__all__ = ["Prometheus", "PrometheusError", "Sample"]


DEADLINE: Final = 10.0
# The answer for a large cluster is some MiB; a larger one is a mistake in a query.
MOST_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 16


class Prometheus:
    """Sends read-only queries to the server at ``url``, the address of its web page.

    A name and password in the URL are sent as basic authentication, unless ``token_file`` has a bearer token.
    ``ca_file`` has the certificates to trust instead of the system's. Both files are read again when they
    change. A query that takes longer than ``deadline`` seconds fails.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        parts = urlsplit(url)
        host, path = parts.netloc.rpartition("@")[2], f"{parts.path.rstrip('/')}/api/v1/query"
        self._url = parts._replace(netloc=host, path=path, fragment="").geturl()
        self._login = _login(parts)
        self._token_file = token_file
        self._ca_file = ca_file
        self._deadline = deadline
        self._trusted: tuple[int, ssl.SSLContext] | None = None
        self._session: ClientSession | None = None
        self._names = Worker("prometheus-names")

    async def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """Return the value of an expression now, or at a Unix time; raises PrometheusError."""
        parameters = {"query": expression}
        if at is not None:
            parameters["time"] = f"{at:.3f}"
        headers, trusted = self._headers(), self._trust()
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._post(parameters, headers, trusted)
        except TimeoutError:
            raise PrometheusError(f"Prometheus did not answer within {self._deadline:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            # Without its cause, which may contain the URL with a password.
            raise PrometheusError(f"Prometheus cannot be reached: {why_unreachable(error)}") from None
        return await in_thread(read_vector, response)

    async def close(self) -> None:
        """Close all connections; no query may follow."""
        self._names.stop()
        if self._session is not None:
            await self._session.close()

    async def _post(
        self, parameters: Mapping[str, str], headers: Mapping[str, str], trusted: ssl.SSLContext | bool
    ) -> Response:
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(resolver=WorkerResolver(self._names)),
                timeout=ClientTimeout(total=None),
                headers={"User-Agent": f"gpuslice-exporter/{__version__}"},
            )
        # POST, because URLs have a maximum length. A token is for one host, so redirects are not followed.
        async with self._session.post(
            self._url, data=parameters, headers=headers, ssl=trusted, allow_redirects=False
        ) as response:
            body = bytearray()
            async for part in response.content.iter_chunked(_CHUNK):
                body += part
                if len(body) > MOST_BYTES:
                    raise PrometheusError(f"a response of Prometheus is larger than {MOST_BYTES >> 20} MiB")
            return Response(response.status, bytes(body), response.headers.get("Location", ""))

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {"Authorization": self._login} if self._login else {}
        try:
            token = self._token_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise PrometheusError(_unreadable("--prometheus-token-file", self._token_file, error)) from None
        if not token or not (token.isascii() and token.isprintable()):
            raise PrometheusError(f"--prometheus-token-file: {str(self._token_file)!r} has no token in it")
        return {"Authorization": f"Bearer {token}"}

    def _trust(self) -> ssl.SSLContext | bool:
        if self._ca_file is None:
            return True
        try:
            changed = self._ca_file.stat().st_mtime_ns
            if self._trusted is None or self._trusted[0] != changed:
                self._trusted = changed, ssl.create_default_context(cafile=str(self._ca_file))
        except ssl.SSLError:
            raise PrometheusError(
                f"--prometheus-ca-file: {str(self._ca_file)!r} has no certificate in PEM form"
            ) from None
        except OSError as error:
            raise PrometheusError(_unreadable("--prometheus-ca-file", self._ca_file, error)) from None
        return self._trusted[1]


def _login(parts: SplitResult) -> str:
    """Return the Authorization header for the name and password in a URL, "" if it has none."""
    if parts.username is None:
        return ""
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _unreadable(option: str, path: Path, error: Exception) -> str:
    why = (isinstance(error, OSError) and error.strerror) or "it is not text"
    return f"{option}: cannot read {str(path)!r}: {why}"
