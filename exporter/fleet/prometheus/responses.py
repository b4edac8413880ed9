"""Responses of Prometheus: samples, or the reason why there are none.

Format: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

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
    if isinstance(error, ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "")
        return (
            f"its certificate is not trusted ({reason or type(error.certificate_error).__name__});"
            " set --prometheus-ca-file to the authority that signs it"
        )
    if isinstance(error, ClientPayloadError | ServerDisconnectedError):
        return "the connection ended during the response"
    if isinstance(error, ClientResponseError):
        return "the server at --prometheus-url does not speak valid HTTP"
    if isinstance(error, OSError):
        return _system_message(error.os_error if isinstance(error, ClientConnectorError) else error)
    return f"--prometheus-url cannot be used ({type(error).__name__})"


def _system_message(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    # asyncio adds a long list of addresses to the system's message.
    return os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    body: bytes
    location: str = ""  # target of a redirect


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


def read_vector(response: Response) -> list[Sample]:
    """Return the finite samples of an instant query; raises PrometheusError."""
    try:
        return list(_samples(_result(response)))
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


def _result(response: Response) -> list[Any]:
    if response.status in _LOCKED:
        raise PrometheusError(
            f"Prometheus denies access (HTTP status {response.status}): set --prometheus-token-file,"
            " or a name and password in --prometheus-url"
        )
    if response.location and HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
        raise PrometheusError(
            f"--prometheus-url redirects to {_without_secrets(response.location)}"
            f" (HTTP status {response.status}): use that address"
        )
    document = json.loads(response.body)
    if document["status"] != "success":
        reason = document.get("error") or document.get("errorType") or "no reason given"
        raise PrometheusError(f"Prometheus refuses a query: {_short(str(reason))}")
    data = document["data"]
    if data["resultType"] != "vector":
        raise PrometheusError(f"Prometheus answers with a {_short(str(data['resultType']))}, not a vector")
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
    return _short(f"{parts.scheme}://{host}{parts.path}" if host else parts.path)


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
