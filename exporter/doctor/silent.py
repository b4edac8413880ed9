"""What goes silent when dcgm-exporter is upgraded: rules and expressions on names that 4.9.0 renames.

``examine_readers`` judges them by the series that a Prometheus has now, if one was asked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from exporter.doctor import EXIT_CODES, Check, Finding, degraded, missing
from exporter.translate.uses import Use
from exporter.wording import plural, printable

State: TypeAlias = Literal["prepared", "kept", "unknown", "no data", "both", "will be silent", "silent"]
"""What becomes of a reader, from the best to the worst.

``kept``: only a collector file prints these series, under the names in it. ``both``: old and new names have
series. ``no data``: neither has. ``unknown``: its names are not known before it runs.
"""
_ORDER: Final = get_args(State)
_FINE: Final[frozenset[State]] = frozenset({"prepared", "kept"})

_LOST = "its results"
WILL_BE_SILENT: Final = degraded("will-be-silent", _LOST, "{remedy}")
SILENT: Final = missing("silent", _LOST, "{remedy}")
MAY_BE_SILENT: Final = degraded("may-be-silent", _LOST, "{remedy}")
_JUDGED: Mapping[State, tuple[Finding, str]] = {
    "silent": (SILENT, "has no data: Prometheus has only the new names"),
    "will be silent": (WILL_BE_SILENT, "goes silent when dcgm-exporter is upgraded to 4.9"),
    "both": (WILL_BE_SILENT, "reads the old names only, and Prometheus has both"),
    "unknown": (MAY_BE_SILENT, "may go silent when dcgm-exporter is upgraded to 4.9"),
    "no data": (MAY_BE_SILENT, "has no data: Prometheus has neither its old nor its new names"),
}


class Reader(NamedTuple):
    """A rule, or another expression that reads series."""

    # Such as ``alert Hot``; "" for an expression that is not a rule.
    owner: str
    use: Use
    file: str = ""
    # Of a rule in a Prometheus.
    group: str = ""
    # Of an expression in a file, from 1.
    line: int = 0

    @property
    def record(self) -> str:
        """Return the series that it records, "" if it does not."""
        kind, _, name = self.owner.partition(" ")
        return name if kind == "record" else ""

    @property
    def place(self) -> str:
        """Return the file with the line, or with the group."""
        if self.line:
            return f"{self.file}:{self.line}"
        return f"{self.file}, group {self.group}" if self.file else f"group {self.group}"


@dataclass(frozen=True, slots=True)
class SeriesNow:
    """The number of series that a Prometheus has by name, and by label of DCGM's series."""

    series: Mapping[str, int]
    labels: Mapping[str, int]


class Judged(NamedTuple):
    """A reader with what becomes of it."""

    reader: Reader
    state: State
    # Records that it reads, and that are no better.
    through: Sequence[str] = ()

    @property
    def is_fine(self) -> bool:
        """Return whether the upgrade does not concern it."""
        return self.state in _FINE

    def check(self) -> Check:
        """Return its line of the report."""
        finding, text = _JUDGED[self.state]
        use = self.reader.use
        name = self.reader.owner or "expression"
        read = [
            *(f"{old} (new: {new.name})" for old, new in use.series.items()),
            *(f"label {old} (new: {new})" for old, new in use.labels.items()),
            *(f"{record} (see there)" for record in self.through),
        ]
        return finding.check(
            name, f"{text}: {self.reader.place}", lost=", ".join(read) or _LOST, remedy=self._remedy
        )

    @property
    def _remedy(self) -> str:
        if self.reader.use.reason:
            return f"replace the names by hand: {self.reader.use.reason}"
        if not self.reader.use.is_renamed:
            return f"correct the rule that records {', '.join(self.through)}"
        file = self.reader.file if self.reader.line else "FILE, with the source of these rules"
        return f"gpuslice-exporter translate {file}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        use = self.reader.use
        kind, _, name = self.reader.owner.partition(" ")
        return {
            "state": self.state,
            "kind": kind or "expression",
            "name": name,
            "file": self.reader.file,
            "group": self.reader.group,
            "line": self.reader.line or None,
            "series": {old: new.name for old, new in use.series.items()},
            "labels": dict(use.labels),
            "through": [*self.through],
            "translatable": not use.reason,
            "reason": use.reason,
        }


def judge(readers: Sequence[Reader], now: SeriesNow | None) -> list[Judged]:
    """Return what becomes of each reader; ``now`` is None if no Prometheus was asked, or none answered.

    What reads the series of a recording rule is no better than that rule.
    """
    states = [_state(reader.use, now) for reader in readers]
    while True:
        records = _worst_by_record(zip(readers, states, strict=True))
        after = [
            _worst([state, *(records[name] for name in reader.use.records if name in records)])
            for reader, state in zip(readers, states, strict=True)
        ]
        if after == states:
            break
        states = after
    bad = {name for name, state in records.items() if state not in _FINE}
    return [
        Judged(reader, state, sorted(reader.use.records & bad - {reader.record}))
        for reader, state in zip(readers, states, strict=True)
    ]


def _worst_by_record(states: Iterable[tuple[Reader, State]]) -> dict[str, State]:
    found: dict[str, State] = {}
    for reader, state in states:
        if reader.record:
            found[reader.record] = _worst([state, found.get(reader.record, "prepared")])
    return found


def _worst(states: Iterable[State]) -> State:
    return max(states, key=_ORDER.index)


def _state(use: Use, now: SeriesNow | None) -> State:
    """Return what becomes of an expression by its own names."""
    states: list[State] = ["unknown"] if use.reason else []
    series, labels = (None, None) if now is None else (now.series, now.labels)
    for old, new in use.series.items():
        states.append(_of_name(series, old, new.name, optional=new.optional))
    for old_label, new_label in use.labels.items():
        states.append(_of_name(labels, old_label, new_label, optional=False))
    return _worst([*states, "prepared"])


def _of_name(now: Mapping[str, int] | None, old: str, new: str, *, optional: bool) -> State:
    if now is None or (now.get(old) and not now.get(new)):
        return "kept" if optional else "will be silent"
    if now.get(old):
        return "both"
    return "silent" if now.get(new) else "no data"


@dataclass(frozen=True, slots=True)
class SilentReport:
    """The report on rules and files."""

    # What was examined, such as the address of a Prometheus.
    sources: Sequence[str]
    # On the sources themselves.
    checks: Sequence[Check]
    readers: Sequence[Judged]
    now: SeriesNow | None = None

    @property
    def all_checks(self) -> list[Check]:
        """Return the checks of the sources, and of all readers that the upgrade concerns."""
        return [*self.checks, *(each.check() for each in self._concerned())]

    @property
    def exit_code(self) -> int:
        """0 if nothing goes silent, 1 if something will, 3 if it is or if a source cannot be read."""
        return max((EXIT_CODES[check.status] for check in self.all_checks), default=0)

    def _concerned(self) -> Iterator[Judged]:
        return (each for each in self.readers if not each.is_fine)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        names = (*Check.__slots__, "url")
        return {
            "sources": [*self.sources],
            "exit_code": self.exit_code,
            "checks": [{name: getattr(check, name) for name in names} for check in self.all_checks],
            "silent": [each.as_dict() for each in self._concerned()],
            "series": None if self.now is None else dict(self.now.series),
            "labels": None if self.now is None else dict(self.now.labels),
        }

    def as_text(self) -> str:
        """Return the report as lines for a terminal; an address that several lines share comes last."""
        lines = [*self.sources]
        checks = self.all_checks
        for check, after in zip(checks, [*checks[1:], None], strict=True):
            lines += check.lines(with_url=after is None or after.code != check.code)
        kept = sum(each.state == "kept" for each in self.readers)
        if kept:
            lines.append(
                f"{plural(kept, 'expression')} on series that only a collector file of dcgm-exporter lists: "
                "their names stay as they are in that file"
            )
        # Names come from rules, and from files.
        return "\n".join(map(printable, lines))
