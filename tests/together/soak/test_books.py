"""The books of a soak: the pages of a day are added up, and impossible sums are objected to."""

from tests.together.soak.day import Day
from tests.together.soak.laws import DRAWN, ENERGY, HELD, REST, Books

DAY = Day(polls=40, pods=100)
GPU = 'uuid="GPU-1"'


def _page(name: str, held: float, joules: float, rest: float, drawn: float) -> str:
    labels = f'namespace="churn",pod="{name}",container="main",{GPU}'
    return (
        f"{HELD}{{{labels}}} {held}\n{ENERGY}{{{labels}}} {joules}\n"
        f"{REST}{{{GPU}}} {rest}\n{DRAWN}{{{GPU}}} {drawn}\n"
    )


def _objections(*, held: float = 1.0, joules: float = 1.0) -> list[str]:
    """Return the objections to a pod's pages, with ``held`` and ``joules`` as factors of the truth."""
    turn = next(turn for turn in DAY.turns(0) if turn.pod.name.startswith("sliced-"))
    books = Books(DAY)
    for poll in range(turn.stop):
        had = 0.625 * poll * held
        drawn = 100.0 * poll
        books.enter(poll, _page(turn.pod.name, had, 60.0 * poll * joules, 40.0 * poll, drawn))
    for poll in range(turn.stop, DAY.polls):
        last = turn.stop - 1
        books.enter(poll, f"{REST}{{{GPU}}} {40.0 * last}\n{DRAWN}{{{GPU}}} {100.0 * last}\n")
    books.end()
    assert (books.pods, books.exact) == (1, 1)
    return books.objections


def test_what_was_held_and_drawn_balances() -> None:
    """A pod that held what it was entitled to, on a GPU whose energy is all accounted for, is right."""
    assert _objections() == []


def test_gpu_seconds_that_were_not_held_are_objected_to() -> None:
    """Neither more nor less than the pod held from its first poll to its last."""
    assert ["GPU-seconds" in text for text in _objections(held=1.1)] == [True]
    assert ["GPU-seconds" in text for text in _objections(held=0.9)] == [True]


def test_energy_that_was_not_drawn_is_objected_to() -> None:
    """Attributed and unattributed energy must be what the GPU drew, at each poll."""
    objections = _objections(joules=0.5)
    assert objections
    assert all("drew" in text for text in objections)
