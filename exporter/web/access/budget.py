"""Budgets that fill up again: of requests, of guesses, and of CPU time."""

from collections import OrderedDict
from collections.abc import Callable

Clock = Callable[[], float]
MOST_CLIENTS = 4096


class Budget:
    """Holds up to ``most``, and gets ``rate`` per second; ``clock`` gives seconds."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most = most
        self._rate = rate
        self._clock = clock
        self._left = most
        self._at = clock()

    @property
    def left(self) -> float:
        """How much is there now; less than nothing where more was taken than there was."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left

    @property
    def full(self) -> bool:
        """Whether all is there."""
        return self.left >= self._most

    def take(self, amount: float = 1.0) -> None:
        """Take an amount, which need not be there."""
        self._left = self.left - amount

    def give_back(self, amount: float = 1.0) -> None:
        """Undo that."""
        self._left = min(self._most, self.left + amount)

    def seconds_until(self, amount: float) -> float:
        """Tell how long it takes until so much is there."""
        return max(0.0, (amount - self.left) / self._rate)


class Budgets:
    """A budget for each client; those who have not taken from it for the longest time are forgotten."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most = most
        self._rate = rate
        self._clock = clock
        self._of: OrderedDict[str, Budget] = OrderedDict()

    def of(self, client: str) -> Budget:
        """Give the budget of a client."""
        budget = self._of.setdefault(client, Budget(self._most, self._rate, self._clock))
        self._of.move_to_end(client)
        if len(self._of) > MOST_CLIENTS:
            self._of.popitem(last=False)
        return budget
