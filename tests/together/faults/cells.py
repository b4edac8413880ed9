"""Cells of the matrices of faults: what a fault may change on the page, and its result."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from tests.together.faults.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault: of which ``source``, ``what`` fails (a call, a file), ``how`` (a code), and ``where``."""

    source: str
    what: str
    how: str
    where: str

    def __str__(self) -> str:
        return f"{self.source} {self.what} {self.how} {self.where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a cell may change.

    ``own`` returns whether a series belongs to the device or source at fault; such a series may be absent, or
    keep its value. Families in ``states`` may also change their value. ``health`` yields a sentence for each
    error in the health series, given the page before the fault and the page during it. ``believed``: the
    program cannot distinguish the fault from a valid answer, so that own series may have any value.
    """

    own: Callable[[str], bool]
    health: Callable[[Page, Page], Iterable[str]]
    states: frozenset[str] = frozenset()
    believed: bool = False


Outcome = Callable[[Page, Page], str]


@dataclass(frozen=True, slots=True)
class Trial:
    """A cell and what it may change. ``put`` puts its fault on, if another was on before it.

    ``outcome`` names the result, given the page before any fault and the last one with this.
    """

    cell: Cell
    claim: Claim
    outcome: Outcome
    put: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a cell: ``outcome`` in words, number of ``lost`` series, ``broken`` claims in sentences.

    ``polls`` is how many it took until the page was as before.
    """

    cell: Cell
    outcome: str
    lost: int
    polls: int | None
    broken: tuple[str, ...] = ()


def must_hold(result: Result) -> None:
    """Fail with the cell and all that it broke."""
    assert not result.broken, f"{result.cell}: " + "; ".join(result.broken[:8])
