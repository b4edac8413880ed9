"""How much of a day to act, and of which."""

from dataclasses import dataclass

from tests.soak.day import PERIOD, POLLS, Day, most_pods

_HISTORY, _SHORT_HISTORY = 6 * 3600, 300
# All that is kept is full after two thirds of these; the rest is enough to find what test_judge.py has.
_LEAST_POLLS = 640
# Others may have the processors: it ends in any case after so many seconds.
_DAY_SECONDS, _SHORT_SECONDS = 4 * 3600, 1500
# Who has just gone is in the history a little longer than it reaches.
_SETTLED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to run: ``polls`` of the day. After ``limit`` seconds it ends in any case.

    ``history`` is how many seconds of it are kept.
    """

    day: Day
    polls: int
    limit: float
    history: int

    @property
    def full(self) -> int:
        """The poll from which on the history lets go of as much as it takes in."""
        return self.history // PERIOD + _SETTLED


def whole(polls: int, pods: int) -> Plan:
    """Plan a whole day, with the history that is kept by default."""
    return Plan(day=Day(polls, pods), polls=polls, limit=_DAY_SECONDS, history=_HISTORY)


def short() -> Plan:
    """Plan no more than is needed to judge, of a day on which pods live shortly."""
    day = Day(POLLS, most_pods(POLLS))
    return Plan(day=day, polls=_LEAST_POLLS, limit=_SHORT_SECONDS, history=_SHORT_HISTORY)
