"""Reading what a Prometheus answers: samples and ranges, or why there are none."""

import json
import math
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from http.client import responses
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientPayloadError,
    ClientResponseError,
    ServerDisconnectedError,
)

from exporter.formats.wording import printable


class PrometheusError(Exception):
    """Prometheus did not answer, or not with a result; the text says why, without the URL."""


def why_unreachable(error: Exception) -> str:
    """Tell why no answer came. What libraries say may have the URL in it, and with it a password."""
    if isinstance(error, ClientConnectorCertificateError):
        return (
            f"its certificate is not trusted ({_certificate(error.certificate_error)});"
            " --prometheus-ca-file names the authority that signs it"
        )
    if isinstance(error, ClientPayloadError | ServerDisconnectedError):
        return "the connection ended before the answer did"
    if isinstance(error, ClientResponseError):
        return "what answers at --prometheus-url does not speak HTTP as is expected"
    if isinstance(error, OSError):
        return _system(error.os_error if isinstance(error, ClientConnectorError) else error)
    return f"--prometheus-url cannot be used ({type(error).__name__})"


def _certificate(error: Exception) -> str:
    return getattr(error, "verify_message", "") or type(error).__name__


def _system(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    # What asyncio adds to the words of the system are addresses only, but many of them.
    return os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__


_LONGEST: Final = 200
_LOCKED: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}
)

_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)


class Answer(NamedTuple):
    """An answer over HTTP as it came; ``location`` is where it sends those who ask, "" mostly."""

    status: int
    body: bytes
    location: str = ""


class Sample(NamedTuple):
    """A sample of an instant query."""

    labels: Mapping[str, str]
    value: float


class Range(NamedTuple):
    """A series of a range query: (Unix time, value), in order of time; what is not finite is left out."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


def read_vector(answer: Answer) -> list[Sample]:
    """Read what an instant query found, without what is not finite; raises PrometheusError."""
    try:
        return [
            Sample(_labels(each["metric"]), value)
            for each in _found(answer, "vector")
            # A histogram has no value.
            for _, value in _points([each["value"]] if "value" in each else [])
        ]
    except _MALFORMED:
        raise _no_prometheus(answer) from None


def read_matrix(answer: Answer) -> list[Range]:
    """Read what a range query found; raises PrometheusError."""
    try:
        return [
            Range(_labels(each["metric"]), tuple(_points(each.get("values", ()))))
            for each in _found(answer, "matrix")
        ]
    except _MALFORMED:
        raise _no_prometheus(answer) from None


def _found(answer: Answer, kind: str) -> list[Any]:
    if answer.status in _LOCKED:
        raise PrometheusError(
            f"Prometheus does not let us in (HTTP status {answer.status}): it wants a token, which"
            " --prometheus-token-file names, or a name and password in --prometheus-url"
        )
    if answer.location and HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        raise PrometheusError(
            f"--prometheus-url leads to where another address is told, {_place(answer.location)}"
            f" (HTTP status {answer.status}): give that one"
        )
    said = json.loads(answer.body)
    if said["status"] != "success":
        reason = f"{said.get('error') or said.get('errorType') or 'no reason given'}"
        raise PrometheusError(f"Prometheus refuses a query: {_short(reason)}")
    data = said["data"]
    if data["resultType"] != kind:
        raise PrometheusError(f"Prometheus answers with a {_short(str(data['resultType']))}, not a {kind}")
    found: list[Any] = data["result"]
    return found


def _labels(metric: Any) -> Mapping[str, str]:
    """Take the labels of a series; raises TypeError where they are not names with texts."""
    if not isinstance(metric, dict) or not all(isinstance(text, str) for text in metric.values()):
        raise TypeError
    return metric


def _points(pairs: Iterable[Any]) -> Iterator[tuple[float, float]]:
    """Give what is finite: dividing by zero says nothing of a node."""
    for at, text in pairs:
        value = float(text)
        if math.isfinite(value):
            yield float(at), value


def _no_prometheus(answer: Answer) -> PrometheusError:
    """Name what a proxy says in Prometheus's place, or what has been cut off."""
    if answer.status == HTTPStatus.OK:
        return PrometheusError("what answers at --prometheus-url does not answer as Prometheus does")
    status = f"{answer.status} {responses.get(answer.status, '')}".strip()
    return PrometheusError(f"what answers at --prometheus-url gives no result (HTTP status {status})")


def _place(location: str) -> str:
    """Tell where a redirect leads, without what may be secret in it."""
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    return _short(f"{parts.scheme}://{host}{parts.path}" if host else parts.path)


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
