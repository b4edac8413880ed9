"""Release windows of the program as a user starts it: a signal or a file makes it release the driver."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.core.commands.program import Serving, run, serving
from tests.waiting import wait_until

# No poll of the rhythm comes while a test runs: one that comes is due to the request.
RARELY = ("--poll-interval", "1h", "--stale-after", "2h")
NODE = ("--scenario", "t4-timeslicing")


def samples(page: str, name: str) -> dict[str, float]:
    """Return the values of a series by their labels."""
    lines = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in lines}


def released(page: str) -> bool:
    """Return whether the page says that the driver is released."""
    return set(samples(page, "gpuslice_driver_released").values()) == {1.0}


def answering(page: str) -> bool:
    """Return whether all GPUs are read."""
    return set(samples(page, "gpuslice_gpu_up").values()) == {1.0} and not released(page)


def held(page: str) -> dict[str, float]:
    """Return the slices that containers hold."""
    return {labels: slices for labels, slices in samples(page, "gpuslice_container_slices").items() if slices}


def calls(page: str) -> float:
    """Return the number of calls of the driver."""
    return sum(samples(page, "gpuslice_nvml_calls_total").values())


@contextmanager
def demo(*arguments: object) -> Iterator[tuple[Serving, Callable[[Callable[[str], bool]], str]]]:
    """Serve a node of four GPUs; yield it, and a function that scrapes until a condition holds."""
    with serving("demo", *NODE, "--metric-set=full", *RARELY, *arguments) as server:

        def page_when(condition: Callable[[str], bool]) -> str:
            def page() -> str:
                text = server.get("metrics")
                return text if condition(text) else ""

            return wait_until(page, condition.__name__)

        yield server, page_when
        assert server.stop() == 0
        assert "Traceback" not in "\n".join(server.lines)


@pytest.mark.slow
def test_signals_release_the_driver_and_open_it_again():
    """In between the holders stay, and the driver is not called."""
    with demo() as (server, page_when):
        before = page_when(answering)
        server.send(signal.SIGUSR1)
        page = page_when(released)
        assert set(samples(page, "gpuslice_gpu_up").values()) == {0.0}
        assert held(page) == held(before) != {}
        assert not samples(page, "gpuslice_gpu_memory_used_bytes")
        (labels,) = samples(page, "gpuslice_collector_errors_total")
        assert labels.endswith('collector="nvml",reason="Released"')
        assert server.get("-/healthy") == "ok\n"
        server.send(signal.SIGUSR2)
        assert calls(page_when(answering)) > calls(page)
    log = "\n".join(server.lines)
    assert "driver released: SIGUSR1 was received" in log
    assert "driver opened again" in log


@pytest.mark.slow
def test_a_file_releases_the_driver_as_long_as_it_exists(tmp_path: Path):
    """If it exists at the start, the driver is never opened. Pages name it as the reason."""
    file = tmp_path / "release"
    file.touch()
    with demo("--driver-release-file", file) as (server, page_when):
        page = page_when(released)
        assert calls(page) == 0
        assert not samples(page, "gpuslice_gpu_up")
        html = server.get("")
        assert "No GPU is read" in html
        assert f"because the file {file} exists" in html
        file.unlink()
        page_when(answering)
        file.touch()
        page_when(released)
        html = server.get("")
        assert f"The driver is released because the file {file} exists." in html
        assert "so this GPU is not read" in html
        assert "does not answer" not in html
        assert json.loads(server.get("api/v1/snapshot"))["node"]["driver_released"] == 1
        file.unlink()
        page_when(answering)


def test_commands_of_one_poll_do_not_call_a_released_driver(tmp_path: Path):
    file = tmp_path / "release"
    file.touch()
    arguments = (*NODE, "--driver-release-file", file)
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
