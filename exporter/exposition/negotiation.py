"""The exposition format and the encoding that a client requests in its headers (RFC 9110, 12.5).

``choose_format`` is for /metrics; ``media_quality`` also serves the API and the pages.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Format(Enum):
    """An exposition format; the value is its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    OPENMETRICS_0_0_1 = "application/openmetrics-text; version=0.0.1; charset=utf-8"

    @property
    def content_type(self) -> str:
        """The Content-Type header of a page in this format."""
        return self.value

    @property
    def openmetrics(self) -> bool:
        """Whether this is a version of OpenMetrics; all versions have the same body."""
        return self is not Format.TEXT


_OPENMETRICS = {"1.0.0": Format.OPENMETRICS, "": Format.OPENMETRICS, "0.0.1": Format.OPENMETRICS_0_0_1}
# A scraper sends the same header each time. A header is 32 KiB at most.
_KEPT = 16
_TEXT_RANGES = ("text/plain", "text/*", "*/*")


class _Choice(NamedTuple):
    """One element of an Accept-like header, lower-case, with its quality from 0 to 1."""

    name: str
    parameters: Mapping[str, str]
    quality: float


@lru_cache(_KEPT)
def choose_format(accept: str) -> Format:
    """Return OpenMetrics if an Accept header prefers it to plain text, else text 0.0.4.

    The preference for plain text is that of the most specific range that covers it (RFC 9110, 12.5.1).
    """
    choices = list(_choices(accept))
    wanted = _text_quality(choices)
    best = Format.TEXT
    for choice in choices:
        if choice.name == "application/openmetrics-text" and choice.quality > wanted:
            version = _OPENMETRICS.get(choice.parameters.get("version", ""))
            best, wanted = (version, choice.quality) if version else (best, wanted)
    return best


@lru_cache(_KEPT)
def media_quality(accept: str, name: str) -> float:
    """Return the quality of a type in an Accept header, 0 if the header does not name it in full."""
    return max((choice.quality for choice in _choices(accept) if choice.name == name), default=0.0)


@lru_cache(_KEPT)
def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip; an empty one does not."""
    qualities = {choice.name: choice.quality for choice in _choices(accept_encoding)}
    named = [qualities[name] for name in ("gzip", "x-gzip") if name in qualities]
    return max(named, default=qualities.get("*", 0.0)) > 0


def _text_quality(choices: list[_Choice]) -> float:
    for name in _TEXT_RANGES:
        qualities = [choice.quality for choice in choices if choice.name == name]
        if qualities:
            return max(qualities)
    return 0.0


def _choices(header: str) -> Iterator[_Choice]:
    for element in header.lower().split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        yield _Choice(name, parameters, _quality(parameters.get("q", "1")))


def _quality(text: str) -> float:
    """Parse a quality; return 0, for "not wanted", if it is invalid."""
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
