"""How much of a day the soak runs."""

from dataclasses import dataclass

from tests.together.soak.day import PERIOD, POLLS, Day, most_pods

_HISTORY, _SHORT_HISTORY = 6 * 3600, 300
# All that is kept is full after two thirds of these; the rest is enough to find what test_judge.py has.
_LEAST_POLLS = 640
# A pod that has just gone is in the history a little longer than it reaches.
_SETTLED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to run: ``polls`` of the day, of which the exporter keeps ``history`` seconds."""

    day: Day
    polls: int
    history: int

    @property
    def full(self) -> int:
        """The poll from which on the history drops as much as it takes in."""
        return self.history // PERIOD + _SETTLED


def whole(polls: int, pods: int) -> Plan:
    """Plan a whole day, with the history that is kept by default."""
    return Plan(day=Day(polls, pods), polls=polls, history=_HISTORY)


def short() -> Plan:
    """Plan no more than is needed to judge, of a day with short-lived pods."""
    day = Day(POLLS, most_pods(POLLS))
    return Plan(day=day, polls=_LEAST_POLLS, history=_SHORT_HISTORY)
