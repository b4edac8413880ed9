"""The doctor: checks of each source, from the result of the last poll. It reads nothing itself.

Here is its report: the checks, as text and as data, and the findings that they are made of.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

Status = Literal["OK", "absent", "degraded", "missing"]
# The address of the documentation: a path in the repository is not useful inside a pod.
DOCUMENTATION = "https://github.com/gpuslice/gpuslice-exporter/blob/main/docs"
TROUBLESHOOTING = f"{DOCUMENTATION}/troubleshooting.md"
EXIT_CODES: dict[Status, int] = {"OK": 0, "absent": 0, "degraded": 1, "missing": 3}
NAME_WIDTH = 29


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str  # what is checked
    status: Status  # ``absent``: this hardware, mode or driver does not have it; no fault
    found: str  # what was found
    lost: str = ""  # what is missing because of it, "" if nothing is
    remedy: str = ""  # what to do, "" if nothing
    code: str = ""  # the heading of docs/troubleshooting.md, "" if OK

    @property
    def url(self) -> str:
        """The address of the documentation of its cause, "" if the status is OK."""
        return f"{TROUBLESHOOTING}#{self.code}" if self.code else ""

    def lines(self, *, with_url: bool = True) -> list[str]:
        """Return it as lines for a terminal."""
        lines = [f"{self.status:<9} {self.name:<{NAME_WIDTH}} {self.found}"]
        lines += [f"{'':<{NAME_WIDTH + 11}} lost: {self.lost}"] if self.lost else []
        lines += [f"{'':<{NAME_WIDTH + 11}} fix:  {self.remedy}"] if self.remedy else []
        return lines + ([f"{'':<{NAME_WIDTH + 11}} more: {self.url}"] if self.remedy and with_url else [])


@dataclass(frozen=True, slots=True)
class Report:
    """All checks, each after those that it depends on."""

    node: str
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """0 if every check is OK or absent, 1 if one is degraded, 3 if one is missing."""
        return max((EXIT_CODES[check.status] for check in self.checks), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        names = (*Check.__slots__, "url")
        checks = [{name: getattr(check, name) for name in names} for check in self.checks]
        return {"node": self.node, "exit_code": self.exit_code, "checks": checks}

    def as_text(self) -> str:
        """Return the report as lines for a terminal."""
        return "\n".join((f"node {self.node}", *(line for check in self.checks for line in check.lines())))


@dataclass(frozen=True, slots=True)
class Finding:
    """The cause of a problem, or of missing data that is no problem."""

    status: Status
    code: str
    lost: str = ""  # the data that are missing because of it
    remedy: str = ""  # with placeholders for ``check``

    def check(self, name: str, found: str, *, lost: str = "", **words: object) -> Check:
        """Return a check with this finding; ``lost`` replaces its own, ``words`` fill in its remedy."""
        return Check(name, self.status, found, lost or self.lost, self.remedy.format(**words), self.code)


missing = partial(Finding, "missing")
degraded = partial(Finding, "degraded")
absent = partial(Finding, "absent")
