"""Lists of processes that must be empty are not read, and no process is missed."""

import pytest

from tests.hardware.making import LARGE, SMALL, Clock, Driver, gpu, process
from tests.hardware.polled import Polled

GRAPHICS, MPS = "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"
# A minute at five seconds.
POLLS = 12
BOARDS = {"GPU-a": gpu("a"), "MIG-large": gpu("a", SMALL, LARGE)}
ABLE = LARGE | {"profile": "3g.8gb+gfx"}


def kinds(polled: Polled, device: str) -> dict[int, set[str]] | None:
    """Sweep; return the kinds of the processes of a device by pid."""
    reading = polled.read()
    migs = {mig.uuid: mig.processes for mig in reading.mig or ()}
    processes = migs.get(device, reading.processes)
    return None if processes is None else {each.pid: set(each.kinds) for each in processes}


@pytest.mark.parametrize("device", BOARDS)
def test_a_client_of_mps_is_looked_for_where_a_server_may_be(device: str, clock: Clock):
    """A client works through a server, which is a compute process of the device, and is seen beside it."""
    driver = Driver(BOARDS[device])
    polled = Polled(clock, driver)
    for _ in range(POLLS):
        assert kinds(polled, device) == {}
    assert driver.asked(MPS, device) == 0
    server, client = process(41, device), process(42, device, kind="mps", memory="0 GiB")
    driver.become(BOARDS[device], host_processes=[server, client])
    assert kinds(polled, device) == {41: {"compute"}, 42: {"mps"}}
    driver.become(BOARDS[device], host_processes=[server])
    assert kinds(polled, device) == {41: {"compute"}}
    driver.become(BOARDS[device], host_processes=[server, client])
    assert kinds(polled, device) == {41: {"compute"}, 42: {"mps"}}


@pytest.mark.parametrize(
    ("device", "board"), [("GPU-a", gpu("a")), ("MIG-large", gpu("a", ABLE))], ids=["whole", "+gfx"]
)
def test_graphics_are_looked_for_in_every_sweep_where_they_can_be(
    device: str, board: dict[str, object], clock: Clock
):
    """Such a process is seen at once."""
    driver = Driver(board)
    polled = Polled(clock, driver)
    for asked in range(1, POLLS):
        assert kinds(polled, device) == {}
        assert driver.asked(GRAPHICS, device) == asked
    driver.become(board, host_processes=[process(42, device, kind="graphics", memory="0 GiB")])
    assert kinds(polled, device) == {42: {"graphics"}}


def test_graphics_are_looked_for_once_a_minute_where_they_cannot_be(clock: Clock):
    """A profile without +gfx has none."""
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = Polled(clock, driver)
    for _ in range(2 * POLLS):
        assert kinds(polled, "MIG-large") == {}
    assert driver.asked(GRAPHICS, "MIG-large") == 2


def test_a_device_without_a_known_profile_may_have_graphics(clock: Clock):
    """Its name could not be read."""
    driver = Driver(gpu("a", SMALL))
    driver.fail("UNKNOWN", "nvmlDeviceGetName", "MIG-small")
    polled = Polled(clock, driver)
    for asked in range(1, POLLS):
        polled.poll()
        assert driver.asked(GRAPHICS, "MIG-small") == asked


def test_a_graphics_process_where_there_should_be_none_is_seen_from_then_on(clock: Clock):
    """A driver that has one shows that the rule does not hold for it, and all devices are asked."""
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = Polled(clock, driver)
    polled.poll()
    strange = process(42, "MIG-large", kind="graphics")
    driver.become(gpu("a", SMALL, LARGE), host_processes=[strange])
    for _ in range(POLLS):
        polled.poll()
    assert kinds(polled, "MIG-large") == {42: {"graphics"}}
    asked = driver.asked(GRAPHICS, "MIG-small")
    driver.become(gpu("a", SMALL, LARGE), host_processes=[process(43, "MIG-small", kind="graphics")])
    assert kinds(polled, "MIG-small") == {43: {"graphics"}}
    assert driver.asked(GRAPHICS, "MIG-small") > asked
