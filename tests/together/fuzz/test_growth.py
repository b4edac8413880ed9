"""Work that grows faster than its input is found: decoders whose steps are counted."""

from collections.abc import Callable

import pytest

from tests.together.fuzz.growth import superlinear
from tests.together.fuzz.target import Target


class Steps:
    """Counts the steps of a decoder, in place of a clock."""

    def __init__(self) -> None:
        self.taken = 0.0

    def measure(self, call: Callable[[], None]) -> float:
        """Return the number of steps of a call."""
        before = self.taken
        call()
        return self.taken - before


@pytest.mark.parametrize(("power", "found"), [(1, False), (1.3, False), (2, True), (3, True)])
def test_work_that_grows_as_the_square_is_found(power, found) -> None:
    steps = Steps()

    def decode(content: bytes) -> None:
        steps.taken += len(content) ** power

    target = Target(name="x", covers=(), seeds=lambda: [b"a,b"], decode=decode)
    kinds = {kind for kind, _ in superlinear(target, steps.measure)}

    assert kinds == ({"time"} if found else set())
