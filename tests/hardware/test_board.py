"""Firmware, capability, fabric and the MIG mode to come: what tells a board from another of its model."""

from types import SimpleNamespace

import pytest

from exporter.model import Fabric
from exporter.nvml.readings.device import fabric
from exporter.nvml.sweep import Sweeper
from tests.hardware.making import SMALL, Driver, gpu, nvml, refuse, sweep

HOPPER = 9
SWITCHED = {"nvlinks": 18, "switch": True}
FACTS = {
    "part_number": "900-2G500-0000-000",
    "inforom": "G500.0202.00.02",
    "gsp_firmware": "550.90.07",
    "compute_capability": "9.0",
}


def test_a_board_tells_its_firmware_and_its_capability():
    """Strings come as text, whatever the binding makes of them, and the capability as people write it."""
    driver = Driver(gpu("a", architecture=HOPPER, board_info=FACTS))
    identity = sweep(Sweeper(nvml(driver.library)))["GPU-a"].identity
    assert {name: getattr(identity, name) for name in FACTS} == FACTS


def test_what_a_board_does_not_tell_is_not_known(driver: Driver):
    """A board without an InfoROM or a GSP has no version of it."""
    identity = sweep(Sweeper(nvml(driver.library)))["GPU-a"].identity
    assert (identity.part_number, identity.inforom, identity.gsp_firmware) == (None, None, None)


def test_a_gpu_behind_switches_tells_how_far_it_has_joined():
    """The fabric is asked of every GPU, and one that is in none has no word for it."""
    driver = Driver(gpu("a", architecture=HOPPER, links=SWITCHED), gpu("b", architecture=HOPPER))
    readings = sweep(Sweeper(nvml(driver.library)))
    assert (readings["GPU-a"].fabric, readings["GPU-b"].fabric) == (Fabric(state="completed"), None)


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        (0, 0, None),
        (1, 0, "not_started"),
        (2, 0, "in_progress"),
        (3, 0, "completed"),
        (3, 999, "failed"),
        (9, 0, None),
        (0x77777703, 0, "completed"),
        (0x77777702, 999, "in_progress"),
    ],
)
def test_states_of_the_fabric(state: int, status: int, word: str | None):
    """Only a joining that came to its end can have failed; newer states and unused bytes say nothing."""
    answer = SimpleNamespace(state=state, status=status, healthMask=0, clusterUuid=bytes(16), cliqueId=0)
    decoded = fabric(answer)
    assert (None if decoded is None else decoded["state"]) == word


def test_a_mig_mode_that_waits_for_a_reset_is_told_beside_the_one_in_force(driver: Driver):
    """The driver tells both modes at once; a GPU that cannot be cut has none to come."""
    driver.become(gpu("a", SMALL), gpu("b", mig={"enabled": False}), gpu("c"))
    readings = sweep(Sweeper(nvml(driver.library)))
    assert [readings[f"GPU-{name}"].mig_pending for name in "abc"] == [True, False, None]


def test_a_fabric_that_cannot_be_asked_costs_only_itself(driver: Driver):
    """One failing call takes no other reading with it."""
    refuse(driver, "nvmlDeviceGetGpuFabricInfoV", 4, {"GPU-a"})
    reading = sweep(Sweeper(nvml(driver.library)))["GPU-a"]
    assert reading.fabric is None
    assert reading.power_milliwatts is not None
    assert reading.withheld["nvlink"] == "NoPermission"
