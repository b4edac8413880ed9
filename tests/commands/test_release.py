"""Release windows of the program as a user starts it: a signal or a file has it give the driver up."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.program import Serving, run, serving

# A poll that comes so soon is not the one that was due.
INTERVAL, SOON = ("--poll-interval", "10s"), 3.0


def sample(page: str, name: str) -> dict[str, float]:
    """Return the samples of a name by their labels."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def until(server: Serving, condition: Callable[[str], bool], within: float = 10.0) -> tuple[str, float]:
    """Scrape until something is so; return that page and the seconds that it took."""
    started = time.monotonic()
    while not condition(page := server.get("metrics")):
        assert time.monotonic() - started < within, page
        time.sleep(0.02)
    return page, time.monotonic() - started


def polled(page: str) -> bool:
    """Whether there has been a poll."""
    return "gpuslice_driver_released" in page


def released(page: str) -> bool:
    """Whether the driver is said to be given up."""
    return set(sample(page, "gpuslice_driver_released").values()) == {1.0}


def answering(page: str) -> bool:
    """Whether all GPUs are read."""
    return set(sample(page, "gpuslice_gpu_up").values()) == {1.0} and not released(page)


def held(page: str) -> dict[str, float]:
    """Return the slices that containers hold."""
    return {labels: slices for labels, slices in sample(page, "gpuslice_container_slices").items() if slices}


def calls(page: str) -> float:
    """Return how often the driver was asked anything."""
    return sum(sample(page, "gpuslice_nvml_calls_total").values())


@contextmanager
def demo(*arguments: object) -> Iterator[Serving]:
    """Serve a node of four GPUs, polled so rarely that what comes sooner is no coincidence."""
    with serving("demo", "--scenario=t4-timeslicing", "--metric-set=full", *INTERVAL, *arguments) as server:
        until(server, polled)
        yield server


@pytest.mark.slow
def test_signals_give_the_driver_up_and_take_it_again():
    """Each is obeyed at once; in between holders stay and the driver is not asked."""
    with demo() as server:
        before, _ = until(server, answering)
        server.send(signal.SIGUSR1)
        page, took = until(server, released)
        assert took < SOON
        assert set(sample(page, "gpuslice_gpu_up").values()) == {0.0}
        assert held(page) == held(before) != {}
        assert not sample(page, "gpuslice_gpu_memory_used_bytes")
        (labels,) = sample(page, "gpuslice_collector_errors_total")
        assert labels.endswith('collector="nvml",reason="Released"')
        assert server.get("-/healthy") == "ok\n"
        asked = calls(page)
        server.send(signal.SIGUSR2)
        page, took = until(server, answering)
        assert took < SOON
        # It was opened anew, and asked nothing before that.
        assert calls(page) > asked
        assert server.end()[0] == 0
    told = "\n".join(server.lines)
    assert "driver released: SIGUSR1 was received" in told
    assert "driver opened again" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_file_gives_the_driver_up_as_long_as_it_exists(tmp_path: Path):
    """The page names it, as a note; a moment after it is removed the GPUs are back."""
    file = tmp_path / "release"
    with demo("--driver-release-file", file) as server:
        until(server, answering)
        file.touch()
        _, took = until(server, released)
        assert took < SOON
        html = server.get("")
        assert f"The driver is released because the file {file} exists." in html
        assert "so this GPU is not read" in html
        assert "does not answer" not in html
        node = json.loads(server.get("api/v1/snapshot"))["node"]
        assert node["driver_released"] == 1
        file.unlink()
        _, took = until(server, answering)
        assert took < SOON
        assert server.end()[0] == 0


@pytest.mark.slow
def test_started_in_a_window_the_driver_is_never_opened(tmp_path: Path):
    """There is nothing to see of the GPUs, and the reason stands in their place."""
    file = tmp_path / "release"
    file.touch()
    with demo("--driver-release-file", file) as server:
        page = server.get("metrics")
        assert released(page)
        assert calls(page) == 0
        assert not sample(page, "gpuslice_gpu_up")
        html = server.get("")
        assert "No GPU is read" in html
        assert f"because the file {file} exists" in html
        file.unlink()
        until(server, answering)
        assert server.end()[0] == 0


@pytest.mark.slow
def test_commands_of_one_poll_leave_the_driver_alone_too(tmp_path: Path):
    """Who looks in the window is told why there is nothing to see, and does not disturb it."""
    file = tmp_path / "release"
    file.touch()
    arguments = ("--scenario", "t4-timeslicing", "--driver-release-file", file)
    reason = f"the driver is released because the file {file} exists"
    text = run("snapshot", *arguments).stdout
    assert f"! {reason}" in text.splitlines()
    assert "fails" not in text
    page = run("snapshot", *arguments, "--format", "prometheus").stdout
    assert released(page)
    assert calls(page) == 0
    report = json.loads(run("doctor", *arguments, "--json").stdout)
    (driver,) = [check for check in report["checks"] if check["name"] == "driver"]
    assert (driver["status"], driver["found"]) == ("missing", reason)
    assert "wait" in driver["remedy"]
    file.unlink()
    assert "released" not in run("snapshot", *arguments).stdout
