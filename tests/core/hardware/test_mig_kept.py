"""MIG devices are kept while the driver reports changes of the layout."""

import pytest

from exporter.model import GpuReading
from tests.core.hardware.making import LARGE, SMALL, Clock, Driver, gpu, instance
from tests.core.hardware.polled import Polled

NAME, UUID, SLOT = "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMigDeviceHandleByIndex"
MODE, MEMORY = "nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryInfo_v2"
# From the third sweep on, as the first one subscribes and the second one looks at all slots after that.
SETTLED = 3


def settled(clock: Clock, driver: Driver) -> Polled:
    """Sweep until identities are kept."""
    polled = Polled(clock, driver)
    for _ in range(SETTLED):
        polled.poll()
    return polled


def profiles(reading: GpuReading) -> dict[str, str | None]:
    """Return the profiles of the MIG devices by UUID."""
    assert reading.mig is not None
    assert reading.mig_complete
    return {device.uuid: device.profile for device in reading.mig}


def test_identities_are_read_once_a_minute_and_empty_slots_in_every_sweep(clock: Clock):
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = settled(clock, driver)
    for function in (NAME, UUID, "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"):
        assert driver.asked(function, "MIG-small") == 2
    assert driver.asked(SLOT, "GPU-a") == 7 + 7 + 5
    assert driver.asked(MODE, "GPU-a") == 2
    for _ in range(13):
        assert set(profiles(polled.read())) == {"MIG-small", "MIG-large"}
    assert driver.asked(SLOT, "GPU-a") == 7 + 7 + 14 * 5
    for function, device in ((NAME, "MIG-small"), (UUID, "MIG-large"), (MODE, "GPU-a")):
        assert driver.asked(function, device) == 3
    assert not polled.sweeper.calls.records.errors


@pytest.mark.parametrize(
    "other",
    [
        LARGE | {"profile": "4g.8gb", "multiprocessors": 56},
        LARGE | {"uuid": "MIG-other"},
        instance("other", gi=3, start=0, profile="2g.4gb", size=2),
    ],
    ids=["same place and UUID", "same place", "another place"],
)
def test_a_new_layout_is_seen_in_the_next_sweep(clock: Clock, other: dict[str, object]):
    """Also if a new device has the slot, handle and UUID of the former one: the driver reports an event."""
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = settled(clock, driver)
    driver.become(gpu("a", SMALL, other))
    assert profiles(polled.read()) == {"MIG-small": "1g.2gb", str(other["uuid"]): other["profile"]}
    assert not polled.sweeper.calls.records.errors


@pytest.mark.parametrize("cuts", [(SMALL,), (LARGE,), (SMALL, LARGE)], ids=len)
def test_a_filled_or_emptied_slot_is_seen_without_an_event(clock: Clock, cuts: tuple[dict, ...]):
    driver = Driver(gpu("a", SMALL, instance("third", gi=9, start=2)))
    polled = settled(clock, driver)
    driver.library.events.happen = lambda _: None
    driver.become(gpu("a", *cuts))
    assert profiles(polled.read()) == {str(cut["uuid"]): cut["profile"] for cut in cuts}


@pytest.mark.parametrize("missing", ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"])
def test_without_events_every_sweep_reads_identities(clock: Clock, missing: str):
    driver = Driver(gpu("a", LARGE), missing=[missing])
    polled = settled(clock, driver)
    assert driver.asked(NAME, "MIG-large") == SETTLED
    driver.become(gpu("a", LARGE | {"profile": "4g.8gb"}))
    assert profiles(polled.read()) == {"MIG-large": "4g.8gb"}


def test_a_failing_slot_makes_the_layout_incomplete(clock: Clock):
    driver = Driver(gpu("a", SMALL))
    polled = settled(clock, driver)
    driver.fail("UNKNOWN", SLOT)
    reading = polled.read()
    assert not reading.mig_complete
    assert [(device.uuid, device.memory) for device in reading.mig or ()] == [("MIG-small", None)]
    driver.recover()
    assert profiles(polled.read()) == {"MIG-small": "1g.2gb"}


def test_a_failed_identity_is_read_in_the_next_sweep(clock: Clock):
    driver = Driver(gpu("a", SMALL, LARGE))
    driver.fail("UNKNOWN", NAME, "MIG-small")
    polled = settled(clock, driver)
    assert profiles(polled.read())["MIG-small"] is None
    driver.recover()
    assert profiles(polled.read())["MIG-small"] == "1g.2gb"


@pytest.mark.parametrize("code", ["UNKNOWN", "NOT_FOUND", "INVALID_ARGUMENT"])
def test_a_device_that_does_not_answer_makes_its_slot_be_read_at_once(clock: Clock, code: str):
    """Its handle may be of a device that is gone."""
    driver = Driver(gpu("a", SMALL, LARGE))
    polled = settled(clock, driver)
    slots = driver.asked(SLOT, "GPU-a")
    driver.fail(code, MEMORY, "MIG-small")
    reading = polled.read()
    assert set(profiles(reading)) == {"MIG-small", "MIG-large"}
    assert {device.uuid: device.memory is None for device in reading.mig or ()} == {
        "MIG-small": True,
        "MIG-large": False,
    }
    assert driver.asked(SLOT, "GPU-a") == slots + 5 + 7


def reused(driver: Driver) -> None:
    """Let the next device in a place have the handle of the destroyed one, and report no change."""
    listing, addresses = driver.library._gpu_list, dict[object, int]()
    real = listing._address

    def address(gpu_uuid: str, *device: object) -> int:
        place = (gpu_uuid, *device[1:3])
        return addresses.setdefault(place, real(gpu_uuid, *device)) if device else real(gpu_uuid)

    listing._address = address
    driver.library.events.happen = lambda _: None


def test_a_reused_handle_is_recognised_by_the_size_of_the_device(clock: Clock):
    driver = Driver(gpu("a", SMALL))
    reused(driver)
    driver.become(gpu("a", SMALL, LARGE))
    polled = settled(clock, driver)
    driver.become(gpu("a", SMALL, LARGE | {"profile": "4g.8gb", "memory_bytes": "7425 MiB"}))
    assert profiles(polled.read()) == {"MIG-small": "1g.2gb", "MIG-large": "4g.8gb"}


@pytest.mark.parametrize("change", [{"profile": "3g.8gb+me"}, {"uuid": "MIG-other"}], ids=str)
def test_a_reused_handle_of_the_same_size_is_recognised_in_a_minute(clock: Clock, change: dict[str, str]):
    driver = Driver(gpu("a", SMALL))
    reused(driver)
    driver.become(gpu("a", SMALL, LARGE))
    polled = settled(clock, driver)
    new = LARGE | change
    driver.become(gpu("a", SMALL, new))
    readings = [profiles(polled.read()) for _ in range(13)]
    assert readings[-1] == {"MIG-small": "1g.2gb", new["uuid"]: new["profile"]}
