"""Clocks that are set, that slew, and that jump: counters grow on, and nothing is below zero."""

import itertools
import time

import pytest

from exporter.demo.scenario import catalog
from tests.together.faults.clocks import HOUR, YEAR, growth, on_set_clocks, wrong_between
from tests.together.faults.harness import watched
from tests.waiting import wait_until

ENTITLED, USED = "gpuslice_container_entitled_gpu_seconds_total", "gpuslice_container_used_gpu_seconds_total"
NOW = "gpuslice_snapshot_timestamp_seconds"
# Offsets of the wall clock and of the monotonic one. The kernel lets the second only go forward.
STEPS = {
    "the wall clock is set forward by an hour": (HOUR, 0.0),
    "and back by two": (-HOUR, 0.0),
    "back by a year": (-YEAR, 0.0),
    "forward by two years": (YEAR, 0.0),
    "to the true time": (0.0, 0.0),
    "the wall clock slews by half a second": (0.5, 0.0),
    "the machine stood still for half a minute": (30.5, 30.0),
    "the machine stood still for an hour": (30.5 + HOUR, 30.0 + HOUR),
}
# A poll comes sooner than this on any machine, and pods hold at least this part of an hour.
LITTLE = HOUR / 20
# Pages that show how long ago something was.
PAGES = ("", "api/v1/snapshot")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory):
    """Run a program through all steps; return by step the page before, two pages after, and other pages."""
    pages_of_steps = {}
    with on_set_clocks(tmp_path_factory.mktemp("clocks")) as clocks:
        wait_until(lambda: clocks.page().value(ENTITLED, pod="embed-0"), "it has polled twice")
        before = clocks.page()
        for step, (wall, monotonic) in STEPS.items():
            clocks.set(wall=wall, monotonic=monotonic)
            after = [_next(clocks, before)]
            after.append(_next(clocks, after[0]))
            shown = [clocks.served.get(path) for path in PAGES]
            pages_of_steps[step] = before, after, shown, time.time() + wall
            before = after[-1]
    return pages_of_steps


def _next(clocks, page):
    """Wait for the page of a later poll."""
    return wait_until(lambda: (now := clocks.page()).value(NOW) != page.value(NOW) and now, "it polls on")


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("step", STEPS)
def test_over_a_step_of_a_clock_counters_grow_on(pages, step: str) -> None:
    """No counter falls, nothing is negative, every GPU is read, and pages are dated by the new clock."""
    before, after, shown, now = pages[step]
    for earlier, page in zip([before, *after], after, strict=False):
        assert not list(wrong_between(earlier, page))
        assert page.value("gpuslice_collector_success", collector="nvml") == 1
        memory = "gpuslice_gpu_memory_used_bytes"
        assert len(list(page.series(memory))) == len(list(before.series(memory)))
    assert after[-1].value(NOW) == pytest.approx(now, abs=LITTLE)
    assert all(0 < seconds < LITTLE for seconds in growth(after[0], after[1], ENTITLED).values())
    assert not any(" -" in text and "ago" in text.split(" -", 1)[1][:12] for text in shown)


@pytest.mark.slow
@pytest.mark.tools
def test_time_in_which_the_machine_stood_still_is_held_but_not_used(pages) -> None:
    """Whether a container computed in that hour is unknown."""
    before, after, _, _ = pages["the machine stood still for an hour"]
    assert max(growth(before, after[-1], USED).values()) < LITTLE
    assert all(seconds >= LITTLE for seconds in growth(before, after[-1], ENTITLED).values())


@pytest.mark.parametrize("jump", [0.0, -1.0, -HOUR])
async def test_between_two_polls_in_no_time_nothing_is_counted(jump: float) -> None:
    """With an interval of zero, or below it, there is no rate, and no counter falls."""
    times = [0.0, 5.0, 10.0, 10.0 + jump, 10.0 + jump]
    async with watched(catalog.load("showcase")) as watch:
        clock = {"now": 0.0}
        watch.poller._clock = lambda: clock["now"]
        pages = []
        for clock["now"] in times:
            pages.append(await watch.poll())
        for before, page in itertools.pairwise(pages):
            assert not list(wrong_between(before, page))
