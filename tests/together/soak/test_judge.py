"""The judge of a soak: what stands still passes, however it swings; what climbs is found, however slowly."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.together.soak.day import POLLS, Day
from tests.together.soak.judge import WARM_PODS, NotEnoughError, Sample, judge

MB = 1_000_000
PODS_A_POLL = 12
FULL = 180
# Of the run in CI.
SHORT = 640
Change = Callable[[Sample], Sample]


def sampled(change: Change = lambda sample: sample, polls: int = POLLS) -> list[Sample]:
    """Sample every fifth poll of a process that grows until it is warm, and swings as one does afterwards."""
    chance = random.Random(1)  # noqa: S311 - no secret
    return [change(_flat(poll, chance)) for poll in range(0, polls, 5)]


def _flat(poll: int, chance: random.Random) -> Sample:
    pods = PODS_A_POLL * poll
    warm = min(pods / WARM_PODS, 1.0)
    answer = chance.choice((0, 0, 20, 40)) * MB
    return Sample(
        poll=poll,
        pods=pods,
        resident=round(80 * MB + 40 * MB * warm + chance.uniform(0, 0.7) * MB) + answer,
        heap=round(20 * MB + 5 * MB * warm + chance.uniform(0, 3) * MB),
        blocks=round(300_000 + 230_000 * warm) + chance.choice((100, 600, 900, 4_000)),
        descriptors=12 + (poll % 70 == 0),
        threads=14 + (poll % 200 == 0),
        tasks=10 + chance.randint(0, 1),
        caches={"a.Cache._kept": min(pods, 4096), "a.Book._rows": 28 + chance.randint(-3, 3)},
    )


def _fallen(samples: Sequence[Sample]) -> set[str]:
    return {claim.name for claim in judge(samples, FULL) if not claim.holds}


def test_what_swings_and_comes_back_has_not_grown() -> None:
    """A day of figures that go up and down by tens of megabytes fails no claim, and neither does an hour."""
    assert _fallen(sampled()) == set()
    assert _fallen(sampled(polls=SHORT)) == set()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (
            "resident memory, at its lowest",
            lambda sample: replace(sample, resident=sample.resident + 60 * sample.pods),
        ),
        (
            "heap of the C library in use",
            lambda sample: replace(sample, heap=sample.heap + 60 * sample.pods),
        ),
        ("objects of Python", lambda sample: replace(sample, blocks=sample.blocks + sample.pods)),
        (
            "file descriptors",
            lambda sample: replace(sample, descriptors=sample.descriptors + sample.poll // 100),
        ),
        ("threads", lambda sample: replace(sample, threads=sample.threads + sample.poll // 97)),
        ("asyncio tasks", lambda sample: replace(sample, tasks=sample.tasks + sample.poll // 100)),
        (
            "entries of a.Book._rows",
            lambda sample: replace(sample, caches=sample.caches | {"a.Book._rows": 28 + sample.pods // 20}),
        ),
    ],
)
def test_what_climbs_slowly_is_found(name: str, change: Change) -> None:
    """Sixty bytes or one object for each pod, a descriptor for a hundred polls: each fails its own claim."""
    assert _fallen(sampled(change)) == {name}


def test_a_short_run_finds_what_a_bug_forgets() -> None:
    """Two hundred polls after the warm-up are enough for two objects a pod, and for a thread a restart."""
    leaks: list[Change] = [
        lambda sample: replace(sample, blocks=sample.blocks + 2 * sample.pods),
        lambda sample: replace(sample, threads=sample.threads + sample.poll // 97),
        lambda sample: replace(sample, descriptors=sample.descriptors + sample.poll // 100),
    ]
    assert [len(_fallen(sampled(leak, polls=SHORT))) for leak in leaks] == [1, 1, 1]


def test_nothing_is_judged_before_it_is_warm() -> None:
    """Too short a run is no success: the judge refuses to say anything of it."""
    with pytest.raises(NotEnoughError, match="after the warm-up"):
        judge(sampled(polls=500), FULL)


def test_the_books_know_each_pod_of_the_day_by_its_name() -> None:
    """A pod is there from and until the polls in its name."""
    day = Day(polls=400, pods=2_000)
    there: dict[str, list[int]] = {}
    for poll in range(150):
        for turn in day.turns(poll):
            there.setdefault(turn.pod.name, []).append(poll)
    stays = {name: day.stay(name)[1:] for name in there}
    assert len(there) > 100
    assert {name: (polls[0], polls[-1] + 1) for name, polls in there.items() if polls[-1] < 149} == {
        name: stay for name, stay in stays.items() if there[name][-1] < 149
    }
