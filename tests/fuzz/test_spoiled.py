"""The driver below the targets of NVML: quicker than the fake one, otherwise the same until it is spoiled."""

import pytest

from exporter.nvml.driver.library import DriverError
from exporter.nvml.readings.gpu_processes import running
from exporter.nvml.sweep import Sweeper
from tests.fuzz.devices import timeless
from tests.fuzz.recorded import Recorded
from tests.fuzz.spoiled import Spoiled
from tests.hardware.making import GIB, LARGE, SMALL, Driver, gpu, nvml, process


@pytest.mark.parametrize(
    ("board", "busy"),
    [(gpu("a"), "GPU-a"), (gpu("a", SMALL, LARGE), "MIG-small")],
    ids=["whole", "cut"],
)
def test_a_recorded_driver_answers_as_the_driver_does(board, busy) -> None:
    """A sweep finds the same, whether the driver is asked, what it said then, or that once more."""
    driver = Driver(board, missing=("nvmlEventSetCreate",), host_processes=[process(41, busy)])
    recorded = Recorded(driver.library)
    found = []
    for library in (driver.library, recorded, recorded):
        sweeper = Sweeper(nvml(library))
        found.append([timeless(each) for each in sweeper.sweep()])
        sweeper.close()

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("content", "pids"),
    [(b"", [41, 42]), (b"\x00\x80\x01", [41]), (b"\xff", None)],
    ids=["well", "one-of-two", "unknown-error"],
)
def test_an_input_spoils_the_calls_in_their_order(content, pids) -> None:
    """The first byte is for the first call, which asks how many there are, the second for that for them."""
    processes = [process(pid, "GPU-a") for pid in (41, 42)]
    spoiled = Spoiled(Driver(gpu("a"), host_processes=processes).library)
    with spoiled.opened(content) as calls:
        listed = running(calls, "GPU-a", spoiled.handles["GPU-a"], 16 * GIB)

    assert (None if listed is None else [each.pid for each in listed]) == pids


def test_a_driver_that_is_refused_at_its_door_is_told_so() -> None:
    """An input may spoil the opening, too."""
    spoiled = Spoiled(Driver().library)
    sweeper = Sweeper(nvml(spoiled.library))

    with spoiled.by(b"\xe9"), pytest.raises(DriverError, match="kernel module is not loaded"):
        list(sweeper.sweep())
