"""What other programs wrote and cannot be read: counted and logged once for each thing while it lasts."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

log = logging.getLogger(__name__)
# Whoever may annotate pods may also do so without end.
MOST_LINES = 100


class Problem(NamedTuple):
    """A thing that cannot be read: a short word for the kind of it, its name, and what is wrong with it."""

    reason: str
    about: str
    text: str


class Objections:
    """Remembers from poll to poll what was objected to; ``counts`` is by reason, since the start."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._standing: frozenset[tuple[str, str]] = frozenset()

    def turn(self, problems: Iterable[Problem]) -> None:
        """Take the problems of one poll: those that are new count, and the first of them are logged.

        A thing that is bad in another way than before is no new one: whoever writes it might change it for
        every poll.
        """
        found = sorted(frozenset(problems))
        fresh = [problem for problem in found if (problem.reason, problem.about) not in self._standing]
        self.counts.update(problem.reason for problem in fresh)
        for problem in fresh[:MOST_LINES]:
            log.warning("%s is left out: %s", problem.about, problem.text)
        if len(fresh) > MOST_LINES:
            log.warning("%d more things are left out that cannot be read", len(fresh) - MOST_LINES)
        self._standing = frozenset((problem.reason, problem.about) for problem in found)
