"""The recorded driver below the targets of NVML answers as the fake one, until an input spoils it."""

import pytest

from exporter.nvml.driver.library import DriverError
from exporter.nvml.readings.gpu_processes import running
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.making import LARGE, SMALL, Driver, gpu, nvml, process
from tests.together.fuzz.devices import timeless
from tests.together.fuzz.recorded import Recorded
from tests.together.fuzz.spoiled import Spoiled


@pytest.mark.parametrize(
    ("board", "busy"),
    [(gpu("a"), "GPU-a"), (gpu("a", SMALL, LARGE), "MIG-small")],
    ids=["whole", "cut"],
)
def test_a_recorded_driver_answers_as_the_driver_does(board, busy) -> None:
    driver = Driver(board, missing=("nvmlEventSetCreate",), host_processes=[process(41, busy)])
    recorded = Recorded(driver.library)
    readings = []
    for library in (driver.library, recorded, recorded):
        sweeper = Sweeper(nvml(library))
        readings.append([timeless(reading) for reading in sweeper.sweep()])
        sweeper.close()

    assert readings[0] == readings[1] == readings[2]


@pytest.mark.parametrize(
    ("content", "pids"),
    [(b"", [41, 42]), (b"\x00\x80\x01", [41]), (b"\xff", None)],
    ids=["well", "one-of-two", "unknown-error"],
)
def test_an_input_spoils_the_calls_in_their_order(content, pids) -> None:
    """The first byte is for the call that counts, the second for the call that lists."""
    processes = [process(pid, "GPU-a") for pid in (41, 42)]
    spoiled = Spoiled(Driver(gpu("a"), host_processes=processes).library)
    with spoiled.opened(content) as calls:
        listed = running(calls, "GPU-a", spoiled.handles["GPU-a"])

    assert (None if listed is None else [each.pid for each in listed]) == pids


def test_an_input_can_spoil_the_opening_of_the_driver() -> None:
    spoiled = Spoiled(Driver().library)
    sweeper = Sweeper(nvml(spoiled.library))

    with spoiled.by(b"\xe9"), pytest.raises(DriverError, match="kernel module is not loaded"):
        list(sweeper.sweep())
