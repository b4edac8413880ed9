"""A client of Prometheus, or of a server with its HTTP API: queries, each within a deadline.

Format of the responses: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import asyncio
import json
import math
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from exporter import __version__
from exporter.concurrency import Worker, in_thread
from exporter.config.headers import Header
from exporter.dns_lookup import WorkerResolver
from exporter.fleet.request_headers import HeaderError, RequestHeaders, secrets_of, unreadable
from exporter.wording import printable

_LONGEST: Final = 200
_LOCKED: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}
)
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)


class PrometheusError(Exception):
    """Prometheus returned no result; the message has the reason, without the URL."""


def why_unreachable(error: Exception) -> str:
    """Return why no response came; messages of libraries may contain the URL with a password."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "")
        return (
            f"its certificate is not trusted ({reason or type(error.certificate_error).__name__});"
            " set --prometheus-ca-file to the authority that signs it"
        )
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return "the connection ended during the response"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the server at --prometheus-url does not speak valid HTTP"
    if isinstance(error, OSError):
        return _system_message(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
    return f"--prometheus-url cannot be used ({type(error).__name__})"


def _system_message(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    # asyncio adds a long list of addresses to the system's message.
    return os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    location: str = ""  # target of a redirect
    secrets: Sequence[str] = field(default=(), repr=False)  # of the request, which errors must not have

    def quoted(self, text: str) -> str:
        """Return a text of the server for an error: one short line without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        line = printable(" ".join(text.split()))
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


class Sample(NamedTuple):
    """A sample of an instant query."""

    labels: Mapping[str, str]
    value: float

    def text(self, label: str) -> str:
        """Return a label, "" without it: labels of ours that are empty are missing."""
        return self.labels.get(label, "")

    def texts(self, *labels: str) -> tuple[str, ...]:
        """Return several labels likewise."""
        return tuple(map(self.text, labels))


class PartialVector(list[Sample]):
    """Samples of a server that warns that others may be missing, as Thanos does without one of its stores."""

    def __init__(self, samples: Iterable[Sample], warning: str) -> None:
        super().__init__(samples)
        self.warning = warning


def read_vector(response: Response) -> list[Sample]:
    """Return the finite samples, as PartialVector if the server warns; raises PrometheusError."""
    try:
        samples = list(_samples(_result(document := _document(response), response)))
        # Prometheus has remarks on the query among the warnings.
        warnings = [
            str(each) for each in document.get("warnings") or () if not str(each).startswith("PromQL")
        ]
        return PartialVector(samples, response.quoted(warnings[0])) if warnings else samples
    except _MALFORMED:
        raise _no_prometheus(response) from None


def _samples(result: Iterable[Any]) -> Iterator[Sample]:
    for row in result:
        labels = _labels(row["metric"])
        # A histogram has no value.
        if "value" in row:
            _, text = row["value"]
            value = float(text)
            # The others are divisions by zero.
            if math.isfinite(value):
                yield Sample(labels, value)


def read_document(response: Response) -> Mapping[str, Any]:
    """Return the document of a successful response; raises PrometheusError."""
    try:
        document = _document(response)
    except _MALFORMED:
        raise _no_prometheus(response) from None
    if "data" not in document:
        raise _no_prometheus(response)
    return document


def _document(response: Response) -> Mapping[str, Any]:
    if response.status in _LOCKED:
        raise PrometheusError(
            f"Prometheus denies access (HTTP status {response.status}): set --prometheus-token-file,"
            " a name and password in --prometheus-url, or --prometheus-header 'X-Scope-OrgID: TENANT'"
        )
    if response.location and HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
        raise PrometheusError(
            f"--prometheus-url redirects to {response.quoted(_without_secrets(response.location))}"
            f" (HTTP status {response.status}): use that address"
        )
    document: Mapping[str, Any] = json.loads(response.body)
    if document["status"] != "success":
        reason = document.get("error") or document.get("errorType") or "no reason given"
        raise PrometheusError(f"Prometheus refuses a query: {response.quoted(str(reason))}")
    return document


def _result(document: Mapping[str, Any], response: Response) -> list[Any]:
    data = document["data"]
    if data["resultType"] != "vector":
        kind = response.quoted(str(data["resultType"]))
        raise PrometheusError(f"Prometheus answers with a {kind}, not a vector")
    result: list[Any] = data["result"]
    return result


def _labels(metric: Any) -> Mapping[str, str]:
    """Return the labels of a series; raises TypeError if they are not strings."""
    if not isinstance(metric, dict) or not all(isinstance(text, str) for text in metric.values()):
        raise TypeError
    return metric


def _no_prometheus(response: Response) -> PrometheusError:
    """Return the error for a response that is truncated, or from something other than Prometheus."""
    if response.status == HTTPStatus.OK:
        return PrometheusError("the server at --prometheus-url does not answer as Prometheus does")
    status = f"{response.status} {responses.get(response.status, '')}".strip()
    return PrometheusError(f"the server at --prometheus-url returns no result (HTTP status {status})")


def _without_secrets(location: str) -> str:
    """Return the target of a redirect without user name, password and query."""
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path


DEADLINE: Final = 10.0
# The answer for a large cluster is some MiB; a larger one is a mistake in a query.
MOST_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 16


class Prometheus:
    """Sends read-only queries to the server at ``url``, the address of its web page.

    A name and password in the URL are sent as basic authentication, unless ``token_file`` has a bearer token.
    ``headers`` are sent too, and those in ``header_file``. ``ca_file`` has the certificates to trust instead
    of the system's. All files are read again when they change. A query that takes longer than ``deadline``
    seconds fails. Raises HeaderError if two of these set the same header.
    """

    def __init__(  # noqa: PLR0913 - by keyword: what users set
        self,
        url: str,
        *,
        token_file: Path | None = None,
        headers: Sequence[Header] = (),
        header_file: Path | None = None,
        ca_file: Path | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        parts = urlsplit(url)
        self._address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
        self._headers = RequestHeaders(parts, token_file, headers, header_file)
        self._ca_file = ca_file
        self._deadline = deadline
        self._trusted: tuple[int, ssl.SSLContext] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._names = Worker("prometheus-names")

    async def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """Return the value of an expression now, or at a Unix time; raises PrometheusError."""
        parameters = {"query": expression}
        if at is not None:
            parameters["time"] = f"{at:.3f}"
        # POST, because URLs have a maximum length.
        return await in_thread(read_vector, await self._ask("POST", "query", parameters))

    async def document(self, path: str, query: str = "") -> Mapping[str, Any]:
        """Return the document at a path of the API, such as ``rules``; raises PrometheusError."""
        return await in_thread(read_document, await self._ask("GET", path, {}, query))

    async def close(self) -> None:
        """Close all connections; no query may follow."""
        self._names.stop()
        if self._session is not None:
            await self._session.close()

    async def _ask(self, method: str, path: str, parameters: Mapping[str, str], query: str = "") -> Response:
        try:
            headers, trusted = self._headers.read(), self._trust()
        except HeaderError as error:
            raise PrometheusError(str(error)) from None
        whole = f"{self._address.path.rstrip('/')}/api/v1/{path}"
        query = "&".join(filter(None, (self._address.query, query)))
        url = self._address._replace(path=whole, query=query).geturl()
        try:
            async with asyncio.timeout(self._deadline):
                return await self._send(method, url, parameters, headers, trusted)
        except TimeoutError:
            raise PrometheusError(f"Prometheus did not answer within {self._deadline:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Without its cause, which may contain the URL with a password.
            raise PrometheusError(f"Prometheus cannot be reached: {why_unreachable(error)}") from None

    async def _send(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str],
        headers: dict[str, str],
        trusted: ssl.SSLContext | bool,
    ) -> Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=WorkerResolver(self._names)),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": f"gpuslice-exporter/{__version__}"},
            )
        # A token is for one host, so redirects are not followed.
        async with self._session.request(
            method, url, data=parameters or None, headers=headers, ssl=trusted, allow_redirects=False
        ) as response:
            body = bytearray()
            async for part in response.content.iter_chunked(_CHUNK):
                body += part
                if len(body) > MOST_BYTES:
                    raise PrometheusError(f"a response of Prometheus is larger than {MOST_BYTES >> 20} MiB")
            location = response.headers.get("Location", "")
            return Response(response.status, bytes(body), location, secrets_of(headers))

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
            raise PrometheusError(unreadable("--prometheus-ca-file", self._ca_file, error)) from None
        return self._trusted[1]
