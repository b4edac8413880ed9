"""How much of a day to act, and of which."""

from dataclasses import dataclass

from tests.soak.day import PERIOD, POLLS, Day, most_pods

_HISTORY, _SHORT_HISTORY = 6 * 3600, 300
# All that is kept is full after two thirds of these.
_LEAST_POLLS = 600
# For how many times the minutes to go on until there are enough polls, when others have the processors.
_LATE = 4
_DAY_SECONDS = 4 * 3600
# Who has just gone is in the history a little longer than it reaches.
_SETTLED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to run: ``polls`` at least, and then until ``seconds`` are over, or the day is.

    After ``limit`` seconds it ends in any case. ``history`` is how many seconds of it are kept.
    """

    day: Day
    polls: int
    seconds: float
    limit: float
    history: int

    @property
    def full(self) -> int:
        """The poll from which on the history lets go of as much as it takes in."""
        return self.history // PERIOD + _SETTLED


def whole(polls: int, pods: int) -> Plan:
    """Plan a whole day, with the history that is kept by default."""
    return Plan(day=Day(polls, pods), polls=polls, seconds=0.0, limit=_DAY_SECONDS, history=_HISTORY)


def as_much(minutes: float) -> Plan:
    """Plan as much as fits into so many minutes, of a day on which pods live shortly."""
    day = Day(POLLS, most_pods(POLLS))
    seconds = minutes * 60
    return Plan(day=day, polls=_LEAST_POLLS, seconds=seconds, limit=_LATE * seconds, history=_SHORT_HISTORY)
