"""GB200 and its like: NVLink domains, links to a processor, counters of Blackwell, repairs that wait."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.metrics.selection import Selection
from exporter.model import C2c, Fabric, GpuReading
from exporter.model.bounds import RATIO
from exporter.nvml.readings.fabric import decode_fabric
from exporter.nvml.readings.fields import ALL_LINKS, bit_error_ratio
from tests.core.hardware.making import Clock, Driver, gpu, refuse
from tests.core.hardware.polled import Polled

BLACKWELL, HOPPER = 10, 9
CLUSTER = "9b0c7a86-2f0e-4c1a-9d6e-54f3b1a7c2d8"
DOMAIN = {"nvlinks": 18, "switch": True, "cluster": CLUSTER, "clique": 7, "c2c_links": 4}
NEWEST = {"node": {"name": "n", "driver_version": "580.82.07", "nvml_version": "13.580.82.07"}}
FIELDS, REPAIR = "nvmlDeviceGetFieldValues", "nvmlDeviceGetRepairStatus"
C2C_MODE, PROTECTED = "nvmlDeviceGetC2cModeInfoV", "nvmlDeviceGetConfComputeProtectedMemoryUsage"
NOT_SUPPORTED, NO_PERMISSION = 3, 4
# The decoding macros of nvml.h, written out: shift and width of each part, and its values from 1 on.
PARTS = {
    "degraded_bandwidth": (0, 2, (True, False)),
    "route_recovery": (2, 2, (True, False)),
    "route_unhealthy": (4, 2, (True, False)),
    "access_timeout_recovery": (6, 2, (True, False)),
    "incorrect_configuration": (8, 4, (False, *[True] * 14)),
    "no_partition": (12, 2, (False, True)),
    "manager_disconnected": (14, 2, (False, True)),
}


def decoded(mask: int, cluster: bytes = bytes(16), state: int = 3, status: int = 0) -> dict[str, Any]:
    """Decode the answer of a GPU that has joined its fabric."""
    answer = decode_fabric(
        SimpleNamespace(state=state, status=status, healthMask=mask, clusterUuid=cluster, cliqueId=7)
    )
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("problem", "value"),
    [(problem, value) for problem, (_, width, _) in PARTS.items() for value in range(2**width)],
)
def test_each_part_of_the_health_mask_is_true_false_or_absent(problem: str, value: int):
    """A part that the driver does not support is absent, not False; the others are unchanged."""
    shift, _, words = PARTS[problem]
    expected = dict(enumerate(words, start=1)).get(value)
    others = {name: False for name in ("degraded_bandwidth", "route_unhealthy") if name != problem}
    mask = sum(2 << PARTS[name][0] for name in others) | value << shift
    assert decoded(mask)["problems"] == others | ({} if expected is None else {problem: expected})


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0, None),
        (1, None),
        (2, "incorrect_system_guid"),
        (5, "insufficient_nvlinks"),
        (8, "invalid_gpu_state"),
        (9, None),
    ],
)
def test_an_incorrect_configuration_is_named_if_known(value: int, word: str | None):
    assert decoded(value << 8)["misconfiguration"] == word


def test_the_nvlink_domain_is_known_only_of_a_gpu_that_has_joined():
    cluster = bytes(range(1, 17))
    joined = decoded(0, cluster)
    assert (joined["cluster"], joined["clique"]) == ("01020304-0506-0708-090a-0b0c0d0e0f10", 7)
    for elsewhere in (decoded(0), decoded(0, cluster, state=2), decoded(0, cluster, status=1)):
        assert elsewhere.keys() == {"state", "problems", "misconfiguration"}


@pytest.mark.parametrize(
    ("code", "ratio"),
    [
        (3 << 8 | 12, 3e-12),
        (12 << 8 | 8, 1.2e-07),
        (4 << 8 | 1, 0.4),
        (1 << 8, 1.0),
        (0, 0.0),
        (0xFFF, 0.0),
        (8 << 8, None),
        (1 << 12, None),
        (-1, None),
    ],
)
def test_a_bit_error_ratio_is_decoded_from_mantissa_and_exponent(code: int, ratio: float | None):
    """The code of the smallest ratio means none; a ratio above 1 and unknown bits are impossible."""
    decoded_ratio = bit_error_ratio(code)
    assert (decoded_ratio if RATIO.has(decoded_ratio) else None) == ratio


def test_the_readings_of_a_gpu_in_an_nvlink_domain():
    errors = {"received": 5, "symbol": 9, "recovery": 6, "recovery_failed": 1}
    problems = {"degraded_bandwidth": True, "route_recovery": False, "no_partition": False}
    links = DOMAIN | {"errors": errors, "fabric_problems": problems, "c2c_down": 1, "c2c_errors": {"crc": 2}}
    answers = {f"field:222:{ALL_LINKS}": [3 << 8 | 12]}
    health = {"channel_repair_pending": True}
    board = gpu("a", architecture=BLACKWELL, links=links, answers=answers, health=health)
    reading = Driver(board, **NEWEST).sweep()["GPU-a"]
    assert reading.fabric == Fabric(state="completed", cluster=CLUSTER, clique=7, problems=problems)
    assert reading.c2c == C2c(
        enabled=True,
        links=4,
        states={0: True, 1: True, 2: True, 3: False},
        speeds={0: 44_712, 1: 44_712, 2: 44_712, 3: 0},
        errors={"crc": 2, "replay": 0, "replay_back_to_back": 0},
    )
    assert (reading.c2c.active, reading.nvlink and reading.nvlink.active) == (3, 18)
    assert reading.nvlink is not None
    assert reading.nvlink.packet_errors["received"] == 5
    assert reading.nvlink.packet_errors["symbol"] == 9
    assert reading.nvlink.recoveries == {"successful": 5, "failed": 1}
    assert reading.nvlink.bit_error_ratios == {"effective": 0.0, "symbol": 3e-12}
    assert reading.repairs is not None
    assert (reading.repairs.channel_repair_pending, reading.repairs.tpc_repair_pending) == (True, False)


def test_one_unknown_link_state_makes_the_number_of_active_links_unknown():
    board = gpu("a", architecture=BLACKWELL, links=DOMAIN, unsupported=["field:171:2"])
    reading = Driver(board, **NEWEST).sweep()["GPU-a"]
    assert reading.c2c is not None
    assert (reading.c2c.links, reading.c2c.active) == (4, None)


def counted(board: dict[str, Any], clock: Clock, **options: Any) -> tuple[Polled, list[GpuReading]]:
    """Sweep a GPU of the newest driver for four minutes."""
    polled = Polled(clock, Driver(board, **NEWEST), **options)
    return polled, [polled.poll()["GPU-a"] for _ in range(48)]


def test_a_gpu_without_c2c_and_protected_memory_is_asked_once(clock: Clock):
    polled, readings = counted(gpu("a", architecture=HOPPER, mig={"enabled": False}), clock)
    for function in (C2C_MODE, PROTECTED):
        assert polled.driver.asked(function, "GPU-a") == 1
    assert all((reading.c2c, reading.fabric, reading.protected_memory) == (None,) * 3 for reading in readings)


def test_repairs_are_read_once_a_minute(clock: Clock):
    polled, _ = counted(gpu("a", architecture=BLACKWELL, links=DOMAIN), clock)
    assert polled.driver.asked(REPAIR, "GPU-a") in (4, 5)
    assert polled.driver.asked(C2C_MODE, "GPU-a") == 1


def test_the_default_set_reads_only_what_conditions_need(clock: Clock):
    """Domain, states of links and repairs, but neither counters nor speeds."""
    skip = Selection().unneeded()
    polled, readings = counted(gpu("a", architecture=BLACKWELL, links=DOMAIN), clock, skip=skip)
    last = readings[-1]
    assert last.fabric is not None
    assert last.repairs is not None
    assert last.repairs.channel_repair_pending is False
    assert last.c2c == C2c(links=4, states=dict.fromkeys(range(4), True))
    assert last.nvlink is not None
    assert (last.nvlink.packet_errors, last.nvlink.recoveries, last.nvlink.bit_error_ratios) == ({}, {}, {})
    assert polled.driver.asked(C2C_MODE, "GPU-a") == 0


@pytest.mark.parametrize(
    ("function", "code"),
    list(itertools.product((REPAIR, C2C_MODE), (NOT_SUPPORTED, NO_PERMISSION))),
)
def test_a_refused_call_costs_its_own_reading(function: str, code: int):
    """Not supported is no error."""
    driver = Driver(gpu("a", architecture=BLACKWELL, links=DOMAIN), **NEWEST)
    refuse(driver, function, code, {"GPU-a"})
    reading = driver.sweep()["GPU-a"]
    assert reading.up
    assert (reading.fabric is not None, reading.power_milliwatts is not None) == (True, True)
    assert bool(driver.errors()) == (code == NO_PERMISSION)
    repairs, c2c = reading.repairs, reading.c2c
    assert repairs is not None
    assert c2c is not None
    assert (repairs.channel_repair_pending is None, c2c.enabled is None) == (
        function == REPAIR,
        function == C2C_MODE,
    )
