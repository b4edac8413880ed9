"""The answers about one holder, and what they are based on, as text for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from exporter.formats.holder_answers import AnsweredQuestion
from exporter.wording import decimal, printable

WIDTH = 100
"""Characters of a line if the width of the terminal is unknown."""
_LEAST_WIDTH = 40
_MINUTE, _HOUR, _KILOJOULE, _KILOWATT_HOUR = 60.0, 3600.0, 1000.0, 3_600_000.0


class Part(NamedTuple):
    """A heading with lines below it."""

    heading: str
    lines: Sequence[str]


class HolderReport(NamedTuple):
    """All that is written about a holder."""

    title: str
    facts: Sequence[str]
    answers: Sequence[AnsweredQuestion]
    parts: Sequence[Part]


def report_text(report: HolderReport, width: int | None = None) -> str:
    """Return a report in lines of at most ``width`` characters; longer words stay whole."""
    size = max(width or WIDTH, _LEAST_WIDTH)
    blocks = [
        list(_wrapped((report.title, *report.facts), size, "")),
        *(_block(answer.question, _sentences(answer), size) for answer in report.answers),
        *(_block(part.heading, part.lines, size) for part in report.parts),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _sentences(answer: AnsweredQuestion) -> Iterator[str]:
    for where, text in answer.sentences:
        yield f"{where}: {text}" if where else text


def _block(heading: str, lines: Iterable[str], width: int) -> list[str]:
    return [*_wrapped([heading], width, ""), *_wrapped(lines, width, "  ")]


def _wrapped(lines: Iterable[str], width: int, indent: str) -> Iterator[str]:
    """Yield lines wrapped at spaces; control characters are escaped."""
    for line in lines:
        yield from wrap(
            printable(line),
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def gpu_time(seconds: float) -> str:
    """Return GPU-seconds as text."""
    if seconds < _HOUR:
        return f"{decimal(seconds / _MINUTE, 1)} GPU minutes"
    return f"{decimal(seconds / _HOUR, 1)} GPU hours"


def energy(joules: float) -> str:
    """Return an energy as text."""
    if joules < _KILOWATT_HOUR / 10:
        return f"{decimal(joules / _KILOJOULE, 1)} kJ"
    return f"{decimal(joules / _KILOWATT_HOUR, 2)} kWh"
