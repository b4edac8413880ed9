"""The books of a soak: what pages say of a day is added up, and what cannot be so is objected to."""

from tests.soak.day import Day
from tests.soak.laws import DRAWN, ENERGY, HELD, NOBODYS, Books

DAY = Day(polls=40, pods=100)
GPU = 'uuid="GPU-1"'


def _page(name: str, held: float, joules: float, nobodys: float, drawn: float) -> str:
    labels = f'namespace="churn",pod="{name}",container="main",{GPU}'
    return (
        f"{HELD}{{{labels}}} {held}\n{ENERGY}{{{labels}}} {joules}\n"
        f"{NOBODYS}{{{GPU}}} {nobodys}\n{DRAWN}{{{GPU}}} {drawn}\n"
    )


def _told(*, held: float = 1.0, joules: float = 1.0) -> list[str]:
    """Tell of a pod from its first poll to its last, with so much more or less than it had by then."""
    turn = next(turn for turn in DAY.turns(0) if turn.pod.name.startswith("sliced-"))
    books = Books(DAY)
    for poll in range(turn.stop):
        had = 0.625 * poll * held
        drawn = 100.0 * poll
        books.enter(poll, _page(turn.pod.name, had, 60.0 * poll * joules, 40.0 * poll, drawn))
    for poll in range(turn.stop, DAY.polls):
        last = turn.stop - 1
        books.enter(poll, f"{NOBODYS}{{{GPU}}} {40.0 * last}\n{DRAWN}{{{GPU}}} {100.0 * last}\n")
    books.end()
    assert (books.pods, books.exact) == (1, 1)
    return books.objections


def test_what_was_held_and_drawn_balances() -> None:
    """A pod that held what it was entitled to, on a GPU whose energy is all accounted for, is right."""
    assert _told() == []


def test_gpu_seconds_that_were_not_held_are_objected_to() -> None:
    """A counter that says more or less than the pod held from its first poll to its last is wrong."""
    assert ["GPU-seconds" in each for each in _told(held=1.1)] == [True]
    assert ["GPU-seconds" in each for each in _told(held=0.9)] == [True]


def test_joules_that_nobody_drew_are_objected_to() -> None:
    """Energy of containers and of nobody that is not what the GPU drew is wrong, at each poll."""
    objections = _told(joules=0.5)
    assert objections
    assert all("drew" in each for each in objections)
