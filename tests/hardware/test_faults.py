"""Sweeps over a node on which something goes wrong: what it costs, and how it ends."""

import pytest

from exporter.hardware import NvmlSource
from exporter.hardware.library import DriverError
from exporter.hardware.sweep import REOPEN_EVERY_SECONDS, Sweeper
from exporter.model import GpuReading
from tests.hardware.making import Clock, Driver, gpu, process

INIT = "nvmlInitWithFlags"
POWER = "nvmlDeviceGetPowerUsage"
READINGS = (
    POWER,
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
)


@pytest.fixture
def two(driver: Driver) -> Driver:
    """Two GPUs that could be cut and are not, with a process each."""
    a, b = (gpu(name, mig={"enabled": False}) for name in "ab")
    driver.become(a, b, host_processes=[process(41, "GPU-a"), process(42, "GPU-b")])
    return driver


def sweep(sweeper: Sweeper) -> dict[str, GpuReading]:
    """Sweep once; return the readings by uuid."""
    return {reading.identity.uuid: reading for reading in sweeper.sweep()}


def ups(sweeper: Sweeper) -> dict[str, bool]:
    """Sweep once; return which GPUs are up."""
    return {name: reading.up for name, reading in sweep(sweeper).items()}


def refused(sweeper: Sweeper) -> str:
    """Sweep in vain; return the reason."""
    with pytest.raises(DriverError) as caught:
        sweep(sweeper)
    return caught.value.reason


def test_a_call_without_permission_costs_its_reading_alone(two: Driver):
    """It is counted at every sweep, and asked again, since rights may be given later."""
    two.fail("NO_PERMISSION", POWER, "GPU-a")
    sweeper = Sweeper(None, two.library)
    for count in (1, 2):
        readings = sweep(sweeper)
        assert readings["GPU-a"].up
        assert readings["GPU-a"].power_milliwatts is None
        assert readings["GPU-a"].memory is not None
        assert readings["GPU-b"].power_milliwatts == 20_000
        assert sweeper.calls.errors == {("GPU-a", POWER, "NoPermission"): count}
    two.recover()
    assert sweep(sweeper)["GPU-a"].power_milliwatts == 20_000


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo_v2",
        POWER,
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
        None,
    ],
)
@pytest.mark.parametrize("code", ["GPU_IS_LOST", "GPU_NOT_FOUND"])
def test_a_gpu_that_is_lost_is_down_and_the_others_are_not_touched(
    two: Driver, function: str | None, code: str
):
    """Wherever in its sweep a GPU goes, nothing of it is told but who it was, and the next one is read."""
    sweeper = Sweeper(None, two.library)
    before = sweep(sweeper)
    two.fail(code, function, "GPU-a")
    after = sweep(sweeper)
    gone = after["GPU-a"]
    assert gone == GpuReading(
        identity=before["GPU-a"].identity, up=False, read_at=gone.read_at, read_monotonic=gone.read_monotonic
    )
    assert after["GPU-b"].up
    assert [found.pid for found in after["GPU-b"].processes] == [42]
    assert sweeper.gpu_count == 2
    assert sum(sweeper.calls.errors.values()) == 1


@pytest.mark.parametrize("function", ["nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName", POWER])
def test_a_gpu_that_was_lost_before_the_first_sweep_is_known_by_its_uuid(two: Driver, function: str):
    """A GPU that told its uuid before it went is down, not absent."""
    two.fail("GPU_IS_LOST", function, "GPU-a")
    assert ups(Sweeper(None, two.library)) == {"GPU-b": True, "GPU-a": False}


def test_facts_that_were_not_told_at_first_are_asked_again(two: Driver):
    """A GPU that was lost while it told who it is tells the rest when it is back."""
    two.fail("GPU_IS_LOST", "nvmlDeviceGetName", "GPU-a")
    sweeper = Sweeper(None, two.library)
    assert not sweep(sweeper)["GPU-a"].identity.model
    two.recover()
    assert sweep(sweeper)["GPU-a"].identity.model == "NVIDIA Test"


@pytest.mark.parametrize("functions", [READINGS, (None,)])
def test_a_gpu_of_which_nothing_can_be_read_is_down(two: Driver, functions: tuple[str | None, ...]):
    """When every reading of a GPU fails it is down, whether or not it still says who it is."""
    sweeper = Sweeper(None, two.library)
    sweep(sweeper)
    for function in functions:
        two.fail("RESET_REQUIRED", function, "GPU-a")
    assert ups(sweeper) == {"GPU-b": True, "GPU-a": False}


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_may_not_be_found_does_not_hide_the_others(two: Driver, function: str):
    """What one place of the enumeration does not support says nothing of the next, nor of the next sweep."""
    two.fail("NOT_SUPPORTED", function, "GPU-a")
    sweeper = Sweeper(None, two.library)
    assert list(sweep(sweeper)) == ["GPU-b"]
    assert list(sweep(sweeper)) == ["GPU-b"]
    two.recover()
    assert list(sweep(sweeper)) == ["GPU-a", "GPU-b"]


def test_for_a_lost_gpu_the_driver_is_opened_anew_once_a_minute(two: Driver, clock: Clock):
    """Opening takes seconds, so that it is not done at every sweep, and no more once the GPU is back."""
    sweeper = Sweeper(None, two.library)
    sweep(sweeper)
    two.fail("GPU_IS_LOST", None, "GPU-a")
    opened = []
    for _ in range(13):
        assert ups(sweeper) == {"GPU-b": True, "GPU-a": False}
        opened.append(two.asked(INIT))
        clock.now += 15
    assert opened == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]
    two.recover()
    for _ in range(20):
        assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}
        clock.now += 15
    assert two.asked(INIT) <= 4
    assert two.library.opened == 1


def test_for_a_gpu_that_is_no_longer_enumerated_the_driver_is_opened_anew(two: Driver, clock: Clock):
    """A GPU that fell off the bus may be missing from the list instead of failing."""
    sweeper = Sweeper(None, two.library)
    sweep(sweeper)
    two.become(gpu("b"))
    for _ in range(3):
        assert ups(sweeper) == {"GPU-b": True, "GPU-a": False}
        clock.now += REOPEN_EVERY_SECONDS + 1
    assert two.asked(INIT) == 3


@pytest.mark.parametrize("code", ["NO_PERMISSION", "INSUFFICIENT_POWER"])
def test_for_a_gpu_that_was_never_there_the_driver_stays_open(two: Driver, clock: Clock, code: str):
    """A GPU that this container may not open, or without its power cable, is not found by opening anew."""
    two.fail(code, "nvmlDeviceGetHandleByIndex_v2", "GPU-a")
    sweeper = Sweeper(None, two.library)
    for _ in range(3):
        assert ups(sweeper) == {"GPU-b": True}
        assert sweeper.gpu_count == 2
        clock.now += REOPEN_EVERY_SECONDS + 1
    assert two.asked(INIT) == 1


def test_a_driver_that_is_loaded_later_is_found_without_a_restart(two: Driver):
    """Until then each sweep says what is missing and what to do."""
    two.fail("DRIVER_NOT_LOADED", INIT)
    sweeper = Sweeper(None, two.library)
    with pytest.raises(DriverError, match="kernel module is not loaded") as caught:
        sweep(sweeper)
    assert caught.value.reason == "DriverNotLoaded"
    assert refused(sweeper) == "DriverNotLoaded"
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}


@pytest.mark.parametrize("function", [POWER, "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNINITIALIZED", "Uninitialized"),
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
    ],
)
def test_a_driver_that_goes_while_we_run_is_opened_anew(two: Driver, function: str, code: str, reason: str):
    """The sweep fails with the error's name, the driver is shut, and the next sweep opens it."""
    sweeper = Sweeper(None, two.library)
    sweep(sweeper)
    two.fail(code, function)
    assert refused(sweeper) == reason
    assert two.library.opened == 0
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}
    assert two.library.opened == 1


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlSystemGetDriverVersion", "UNINITIALIZED", "Uninitialized"),
        ("nvmlSystemGetDriverVersion", "GPU_IS_LOST", "GpuIsLost"),
        ("nvmlDeviceGetCount_v2", "GPU_IS_LOST", "GpuIsLost"),
        ("nvmlDeviceGetCount_v2", "UNKNOWN", "NoCount"),
    ],
)
def test_errors_of_calls_about_no_device_are_the_driver_s(two: Driver, function: str, code: str, reason: str):
    """Whatever a call about the node answers, the sweep fails as the driver's failure, and recovers."""
    two.fail(code, function)
    sweeper = Sweeper(None, two.library)
    assert refused(sweeper) == reason
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}


def test_a_driver_that_hides_its_version_is_read_all_the_same(two: Driver):
    """An error that is not the driver's end costs the version alone."""
    two.fail("UNKNOWN", "nvmlSystemGetDriverVersion")
    sweeper = Sweeper(None, two.library)
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}
    assert (sweeper.driver.driver_version, sweeper.driver.cuda_version) == (None, "12.4")


async def attempt(source: NvmlSource) -> str | None:
    """Sweep, whether it works or not; return why only a restart would help."""
    try:
        await source.read()
    except DriverError:
        return source.restart_reason
    return source.restart_reason


@pytest.mark.parametrize(
    ("code", "said"),
    [("UNINITIALIZED", None), ("DRIVER_NOT_LOADED", None), ("LIB_RM_VERSION_MISMATCH", "upgraded")],
)
async def test_an_upgraded_driver_needs_a_restart(two: Driver, code: str, said: str | None):
    """A library that no longer fits the driver stays in this process; the other errors heal by themselves."""
    source = NvmlSource(library=two.library)
    assert await attempt(source) is None
    two.fail(code, POWER)
    reason = await attempt(source)
    assert reason is None if said is None else said in reason
    two.recover()
    assert await attempt(source) is None
    await source.close()


@pytest.mark.parametrize("function", [None, POWER])
async def test_revoked_device_nodes_need_a_restart(two: Driver, function: str | None):
    """That is so when every GPU answers 'unknown error', whether or not the node's own calls do."""
    source = NvmlSource(library=two.library)
    assert await attempt(source) is None
    two.fail("UNKNOWN", None, "GPU-a")
    assert await attempt(source) is None
    two.fail("UNKNOWN", None, "GPU-b" if function else None)
    assert "restart the pod" in await attempt(source)
    two.recover()
    assert await attempt(source) is None
    await source.close()


async def test_one_unknown_error_needs_no_restart(two: Driver):
    """A call that fails with 'unknown error' while others answer is that call's trouble."""
    source = NvmlSource(library=two.library)
    two.fail("UNKNOWN", POWER)
    assert await attempt(source) is None
    await source.close()
