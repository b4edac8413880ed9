"""Firmware, capability, fabric and the MIG mode to come: what distinguishes boards of one model."""

from types import SimpleNamespace

import pytest

from exporter.model import Fabric
from exporter.nvml.readings.fabric import decode_fabric
from tests.core.hardware.making import SMALL, Driver, gpu, refuse

HOPPER = 9
SWITCHED = {"nvlinks": 18, "switch": True}
FACTS = {
    "part_number": "900-2G500-0000-000",
    "inforom": "G500.0202.00.02",
    "gsp_firmware": "550.90.07",
    "compute_capability": "9.0",
}


def test_firmware_versions_and_compute_capability():
    driver = Driver(gpu("a", architecture=HOPPER, board_info=FACTS))
    identity = driver.sweep()["GPU-a"].identity
    assert {name: getattr(identity, name) for name in FACTS} == FACTS


def test_missing_firmware_versions_are_unknown(driver: Driver):
    identity = driver.sweep()["GPU-a"].identity
    assert (identity.part_number, identity.inforom, identity.gsp_firmware) == (None, None, None)


def test_the_fabric_state_is_unknown_without_switches():
    driver = Driver(gpu("a", architecture=HOPPER, links=SWITCHED), gpu("b", architecture=HOPPER))
    readings = driver.sweep()
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
def test_fabric_states_are_named(state: int, status: int, word: str | None):
    """Only a completed registration can have failed; newer states and unused bytes say nothing."""
    answer = SimpleNamespace(state=state, status=status, healthMask=0, clusterUuid=bytes(16), cliqueId=0)
    decoded = decode_fabric(answer)
    assert (None if decoded is None else decoded["state"]) == word


def test_a_pending_mig_mode_is_reported_beside_the_current_one(driver: Driver):
    driver.become(gpu("a", SMALL), gpu("b", mig={"enabled": False}), gpu("c"))
    readings = driver.sweep()
    assert [readings[f"GPU-{name}"].mig_pending for name in "abc"] == [True, False, None]


def test_a_failing_fabric_call_costs_its_own_reading(driver: Driver):
    refuse(driver, "nvmlDeviceGetGpuFabricInfoV", 4, {"GPU-a"})
    reading = driver.sweep()["GPU-a"]
    assert reading.fabric is None
    assert reading.power_milliwatts is not None
    assert reading.withheld["nvlink"] == "NoPermission"
