"""A client of Prometheus's HTTP API: instant and range queries, each within a deadline."""

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout

DEADLINE = 10.0
# A fleet's answer is some MiB; more than this is a query that somebody should look at.
MOST_BYTES = 64 << 20


class PrometheusError(Exception):
    """Prometheus did not answer, or not with a result; the text says why, without the URL."""


class Sample(NamedTuple):
    """A sample of an instant query."""

    labels: Mapping[str, str]
    value: float


class Range(NamedTuple):
    """A series of a range query: (Unix time, value), in order of time; NaN is left out."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
    """Asks the server at ``url`` (its root, as its own page has it). Read-only.

    ``token_file`` has a bearer token, read anew for each question, since tokens are replaced.
    """

    def __init__(self, url: str, *, token_file: Path | None = None, deadline: float = DEADLINE) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._deadline = deadline
        self._session: ClientSession | None = None

    async def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """Evaluate an expression now, or at a Unix time; raises PrometheusError."""
        parameters = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        found = await self._ask("query", parameters, "vector")
        return [Sample(labels, value) for labels, each in found for _, value in _points([each["value"]])]

    async def query_range(self, expression: str, *, start: float, end: float, step: float) -> list[Range]:
        """Evaluate an expression at each step from ``start`` to ``end``, both included."""
        parameters = {
            "query": expression,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:.3f}",
        }
        found = await self._ask("query_range", parameters, "matrix")
        return [Range(labels, tuple(_points(each["values"]))) for labels, each in found]

    async def close(self) -> None:
        """Close connections that are kept."""
        if self._session is not None:
            await self._session.close()

    async def _ask(
        self, path: str, parameters: Mapping[str, str], kind: str
    ) -> list[tuple[Mapping[str, str], Any]]:
        try:
            async with asyncio.timeout(self._deadline):
                status, body = await self._post(path, parameters)
        except TimeoutError:
            raise PrometheusError(f"Prometheus did not answer within {self._deadline:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            raise PrometheusError(f"Prometheus cannot be asked: {_reason(error)}") from None
        return _result(status, body, kind)

    async def _post(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        # A form has no limit of length, as a URL has.
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=None))
        url = f"{self._url}/api/v1/{path}"
        async with self._session.post(url, data=parameters, headers=self._headers()) as answer:
            parts, size = [], 0
            async for part in answer.content.iter_chunked(1 << 16):
                size += len(part)
                if size > MOST_BYTES:
                    raise PrometheusError(f"an answer of Prometheus is larger than {MOST_BYTES >> 20} MiB")
                parts.append(part)
            return answer.status, b"".join(parts)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}


def _result(status: int, body: bytes, kind: str) -> list[tuple[Mapping[str, str], Any]]:
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise PrometheusError(f"Prometheus refuses a query: {str(answer.get('error'))[:200]}")
        if answer["data"]["resultType"] != kind:
            raise PrometheusError(f"Prometheus answers with a {answer['data']['resultType']}, not a {kind}")
        return [(each["metric"], each) for each in answer["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PrometheusError(f"what answers is no Prometheus (HTTP status {status})") from None


def _points(pairs: list[Any]) -> Iterator[tuple[float, float]]:
    for at, text in pairs:
        value = float(text)
        if not math.isnan(value):
            yield float(at), value


def _reason(error: Exception) -> str:
    """Name an error without its URL, which may have a password in it."""
    number = getattr(error, "strerror", None)
    return number or type(error).__name__
