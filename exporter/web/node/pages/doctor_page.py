"""The doctor page: what is missing or degraded first, with what is lost and how to fix it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from exporter.doctor import Check, Report, Status

# The icon of each status, and the word for it.
_LOOKS: Final[dict[Status, tuple[str, str]]] = {
    "missing": ("missing", "missing"),
    "degraded": ("degraded", "degraded"),
    "OK": ("good", "read"),
    "absent": ("note", "not here"),
}
# Commands, options with their values, paths, variables, fields and series.
_TYPED: Final = re.compile(
    r"(gpuslice-exporter [a-z]+|gpuslice_[a-z_]+"
    r"|(?<!\S)--[a-z][a-z0-9-]+(?: (?:on|off)\b)?"
    r"|\b(?:deploy|docs)/[\w./-]*\w"
    r"|(?<![\w/:.])/[\w.@-]+(?:/[\w.@-]+)*\b"
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:=\w+)?"
    r"|\b(?:hostPID|runtimeClassName|runAsUser|automountServiceAccountToken): \w+)"
)
_NUMBERS: Final = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
_MOST_NAMES: Final = 4


class CheckView(NamedTuple):
    """A check, with its texts as HTML."""

    check: Check
    look: str  # its icon and colour
    word: str  # the same in words
    found: Markup
    lost: Markup
    remedy: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The state of all checks in a sentence."""

    look: str
    title: str
    text: str
    counts: tuple[tuple[str, str, str], ...]  # (look, text, anchor)


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
    look, word = _LOOKS[check.status]
    return CheckView(check, look, word, typed(check.found), typed(check.lost), typed(check.remedy))


def typed(text: str) -> Markup:
    """Return a sentence as HTML, with commands, options, paths and the like as code."""
    parts = enumerate(map(escape, _TYPED.split(text)))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in parts)


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
