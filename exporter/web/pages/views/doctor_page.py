"""The doctor page: what is missing or degraded first, with what is lost and how to fix it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from exporter.doctor.report import Check, Report, Status

_LOOKS: Final[dict[Status, str]] = {
    "missing": "missing",
    "degraded": "degraded",
    "OK": "good",
    "absent": "note",
}
_WORDS: Final[dict[Status, str]] = {
    "missing": "missing",
    "degraded": "degraded",
    "OK": "read",
    "absent": "not here",
}
# Commands, options with their values, paths, variables, fields and series.
_TYPED: Final = re.compile(
    r"gpuslice-exporter [a-z]+|gpuslice_[a-z_]+"
    r"|(?<!\S)--[a-z][a-z0-9-]+(?: (?:on|off)\b)?"
    r"|\b(?:deploy|docs)/[\w./-]*\w"
    r"|(?<![\w/:.])/[\w.@-]+(?:/[\w.@-]+)*\b"
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:=\w+)?"
    r"|\b(?:hostPID|runtimeClassName|runAsUser|automountServiceAccountToken): \w+"
)
_NUMBERS: Final = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
_MOST_NAMES: Final = 4


class Words(NamedTuple):
    """A part of a sentence; ``typed`` marks commands, options, paths and the like."""

    text: str
    typed: bool


@dataclass(frozen=True, slots=True)
class CheckView:
    """One check."""

    name: str
    look: str  # its icon and colour
    word: str  # the same in words
    found: tuple[Words, ...]
    lost: tuple[Words, ...]
    remedy: tuple[Words, ...]
    code: str  # of the finding, "" if OK
    url: str  # of its documentation, "" if OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary. ``counts`` are (look, text, anchor)."""

    look: str
    title: str
    text: str
    counts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView:
    """The checks, by whether they need action."""

    summary: Summary
    ailing: tuple[CheckView, ...]
    well: tuple[CheckView, ...]
    lacking: tuple[CheckView, ...]


def doctor_view(report: Report) -> DoctorView:
    """Return the checks by status, each after those that it depends on."""
    by_status = {status: [check for check in report.checks if check.status == status] for status in _LOOKS}
    return DoctorView(
        summary=_summary(by_status),
        ailing=tuple(map(_view, (*by_status["missing"], *by_status["degraded"]))),
        well=tuple(map(_view, by_status["OK"])),
        lacking=tuple(map(_view, by_status["absent"])),
    )


def _view(check: Check) -> CheckView:
    return CheckView(
        name=check.name,
        look=_LOOKS[check.status],
        word=_WORDS[check.status],
        found=words(check.found),
        lost=words(check.lost),
        remedy=words(check.remedy),
        code=check.code,
        url=check.url,
    )


def words(text: str) -> tuple[Words, ...]:
    """Return the parts of a sentence: text, and what is typed."""
    return tuple(part for part in _words(text) if part.text)


def _words(text: str) -> Iterator[Words]:
    end = 0
    for match in _TYPED.finditer(text):
        yield Words(text[end : match.start()], typed=False)
        yield Words(match.group(), typed=True)
        end = match.end()
    yield Words(text[end:], typed=False)


def _summary(by_status: dict[Status, list[Check]]) -> Summary:
    missing, degraded, well = by_status["missing"], by_status["degraded"], by_status["OK"]
    if not any(by_status.values()):
        text = "Starting the driver can take half a minute if the GPUs were idle."
        return Summary(look="note", title="The first poll is running", text=text, counts=())
    counts = (
        ("missing", f"{len(missing)} missing", "#fix"),
        ("degraded", f"{len(degraded)} degraded", "#fix"),
        ("good", f"{len(well)} read", "#well"),
        ("note", f"{len(by_status['absent'])} not on this node", "#lacking"),
    )
    shown = tuple(count for count, checks in zip(counts, by_status.values(), strict=True) if checks)
    if not missing and not degraded:
        text = "No readings are missing due to permissions, mounts or versions. GPU health is shown"
        return Summary(look="good", title="All sources can be read", text=text, counts=shown)
    look = "missing" if missing else "degraded"
    sentences = (_sentence(missing, "missing"), _sentence(degraded, "degraded"))
    text = "All other sources are read. Unknown values are left out, never shown as 0."
    return Summary(look=look, title=" ".join(filter(None, sentences)), text=text, counts=shown)


def _sentence(checks: Sequence[Check], word: str) -> str:
    """Return a sentence with the number and the names of checks."""
    if not checks:
        return ""
    count = _NUMBERS[len(checks)] if len(checks) < len(_NUMBERS) else str(len(checks))
    things = "thing is" if len(checks) == 1 else "things are"
    return f"{count} {things} {word}: {_listed(check.name for check in checks)}."


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    if len(shown) > _MOST_NAMES:
        shown[_MOST_NAMES - 1 :] = [f"{len(shown) - _MOST_NAMES + 1} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
