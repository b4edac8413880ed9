"""No process is missed, whatever list it is in; a list that must be empty is not read in every sweep."""

import pytest

from tests.core.hardware.making import LARGE, SMALL, Clock, Driver, gpu, process
from tests.core.hardware.polled import Polled

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
    return None if processes is None else {one.pid: set(one.kinds) for one in processes}


@pytest.mark.parametrize("device", BOARDS)
def test_mps_clients_are_listed_whether_or_not_a_compute_process_is(device: str, clock: Clock):
    """The MPS server is one, and may be missing: it may run in another namespace than its clients."""
    driver = Driver(BOARDS[device])
    polled = Polled(clock, driver)
    assert kinds(polled, device) == {}
    server, client = process(41, device), process(42, device, kind="mps", memory="0 GiB")
    driver.become(BOARDS[device], host_processes=[server, client])
    assert kinds(polled, device) == {41: {"compute"}, 42: {"mps"}}
    driver.become(BOARDS[device], host_processes=[process(42, device, kind="mps", memory="30 MiB")])
    assert kinds(polled, device) == {42: {"mps"}}


@pytest.mark.parametrize("device", BOARDS)
def test_mps_clients_are_not_asked_for_while_no_memory_is_in_use(device: str, clock: Clock):
    """A client has some."""
    driver = Driver(BOARDS[device])
    polled = Polled(clock, driver)
    for _ in range(POLLS):
        assert kinds(polled, device) == {}
    assert driver.asked(MPS, device) == 1


@pytest.mark.parametrize(
    ("device", "board"), [("GPU-a", gpu("a")), ("MIG-large", gpu("a", ABLE))], ids=["whole", "+gfx"]
)
def test_graphics_processes_are_listed_in_every_sweep_where_possible(
    device: str, board: dict[str, object], clock: Clock
):
    driver = Driver(board)
    polled = Polled(clock, driver)
    for asked in range(1, POLLS):
        assert kinds(polled, device) == {}
        assert driver.asked(GRAPHICS, device) == asked
    driver.become(board, host_processes=[process(42, device, kind="graphics", memory="0 GiB")])
    assert kinds(polled, device) == {42: {"graphics"}}


def test_graphics_processes_are_listed_once_a_minute_where_impossible(clock: Clock):
    """A profile without +gfx has none."""
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = Polled(clock, driver)
    for _ in range(2 * POLLS):
        assert kinds(polled, "MIG-large") == {}
    assert driver.asked(GRAPHICS, "MIG-large") == 2


def test_a_device_with_an_unknown_profile_may_have_graphics(clock: Clock):
    driver = Driver(gpu("a", SMALL))
    driver.fail("UNKNOWN", "nvmlDeviceGetName", "MIG-small")
    polled = Polled(clock, driver)
    for asked in range(1, POLLS):
        polled.poll()
        assert driver.asked(GRAPHICS, "MIG-small") == asked


def test_an_unexpected_graphics_process_makes_all_devices_be_asked(clock: Clock):
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
