"""The asynchronous source: one thread, deadlines of the caller, and errors that say what to do."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

import pynvml
import pytest

from exporter.model import HardwareReading
from exporter.nvml import NvmlSource
from exporter.nvml.driver.library import DriverError
from tests.core.hardware.making import Driver, gpu, nvml
from tests.waiting import LIMIT_SECONDS, wait_until_async

POWER = "nvmlDeviceGetPowerUsage"
Workers = Callable[[], list[threading.Thread]]


@pytest.fixture
def three(driver: Driver) -> Driver:
    """Return a driver of three GPUs."""
    driver.become(*(gpu(name) for name in "abc"))
    return driver


@pytest.fixture
def workers() -> Workers:
    """Return a function that returns the threads that read a driver, but those of earlier tests."""
    earlier = set(threading.enumerate())
    return lambda: [
        thread for thread in threading.enumerate() if thread.name == "nvml" and thread not in earlier
    ]


async def stuck(driver: Driver, source: NvmlSource) -> "asyncio.Task[object]":
    """Start a read and wait until it hangs in the second GPU."""
    calls = driver.asked(POWER, "GPU-b")
    driver.hang(POWER, "GPU-b")
    reading = asyncio.ensure_future(source.read())
    await wait_until_async(lambda: driver.asked(POWER, "GPU-b") > calls)
    return reading


def published(source: NvmlSource) -> dict[str, float]:
    """Return when each published GPU was read."""
    return {reading.identity.uuid: reading.read_monotonic for reading in source.latest.gpus}


async def test_a_sweep_is_returned_and_published(three: Driver):
    source = NvmlSource(nvml(library=three.library))
    assert source.latest == HardwareReading()
    reading = await source.read()
    assert reading.gpus == source.latest.gpus
    assert [gpu.identity.uuid for gpu in reading.gpus] == ["GPU-a", "GPU-b", "GPU-c"]
    assert (reading.gpu_count, reading.driver.driver_version, reading.errors) == (3, "550.90.07", {})
    await source.close()


async def test_gpus_read_before_a_hang_are_published(three: Driver):
    source = NvmlSource(nvml(library=three.library))
    reading = await stuck(three, source)
    assert list(published(source)) == ["GPU-a"]
    assert not reading.done()
    three.recover()
    assert len((await reading).gpus) == 3
    await source.close()


async def test_in_a_hang_each_gpu_keeps_the_time_of_its_own_reading(three: Driver):
    source = NvmlSource(nvml(library=three.library))
    await source.read()
    before = published(source)
    reading = await stuck(three, source)
    during = published(source)
    assert during["GPU-a"] > before["GPU-a"]
    assert (during["GPU-b"], during["GPU-c"]) == (before["GPU-b"], before["GPU-c"])
    three.recover()
    await reading
    await source.close()


async def test_reads_that_are_cancelled_start_no_second_thread(three: Driver, workers: Workers):
    source = NvmlSource(nvml(library=three.library))
    reading = await stuck(three, source)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.read(), 0.005)
    [thread] = workers()
    assert thread.daemon
    three.recover()
    await reading
    assert len((await source.read()).gpus) == 3
    assert workers() == [thread]
    await source.close()


async def test_closing_shuts_the_driver_down_and_ends_the_thread(three: Driver, workers: Workers):
    source = NvmlSource(nvml(library=three.library))
    await source.read()
    await source.close()
    await wait_until_async(lambda: not workers())
    assert three.library.opened == 0


async def test_closing_a_source_that_was_never_read_makes_no_call(three: Driver):
    await NvmlSource(nvml(library=three.library)).close()
    assert three.library.total_calls == 0


async def test_closing_waits_for_the_driver_unless_it_is_cancelled(three: Driver, workers: Workers):
    source = NvmlSource(nvml(library=three.library))
    await stuck(three, source)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.close(), 0.02)
    three.recover()
    await source.close()
    await wait_until_async(lambda: not workers())
    assert three.library.opened == 0


PROGRAM = """
import asyncio
from exporter.model import HardwareReading
from exporter.nvml import NvmlSource
from tests.core.hardware.making import Driver, nvml

async def main():
    driver = Driver()
    driver.hang("nvmlDeviceGetPowerUsage")
    try:
        await asyncio.wait_for(NvmlSource(nvml(library=driver.library)).read(), 0.05)
    except TimeoutError:
        print("gave up")

asyncio.run(main())
"""


def test_a_program_ends_while_its_driver_hangs():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "gave up\n", "")


async def refusal(source: NvmlSource) -> DriverError:
    """Read in vain."""
    with pytest.raises(DriverError) as caught:
        await source.read()
    await source.close()
    return caught.value


async def test_a_missing_library_is_named_with_its_option(tmp_path: Path):
    path = tmp_path / "libnvidia-ml.so.1"
    error = await refusal(NvmlSource(nvml(path=path)))
    assert error.reason == "LibraryNotFound"
    assert f"--nvml-library {path}" in str(error)


async def test_a_file_that_is_no_library_is_named_with_its_option(tmp_path: Path):
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("no library")
    assert "--nvml-library" in str(await refusal(NvmlSource(nvml(path=path))))


async def test_a_library_without_nvml_is_refused():
    error = await refusal(NvmlSource(nvml(path=Path(find_library("c") or "libc.so.6"))))
    assert error.reason == "FunctionNotFound"
    assert "--nvml-library" in str(error)


async def test_without_a_driver_the_error_names_the_remedies(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.nvml.driver.library.SONAME", "libnvidia-ml-that-is-nowhere.so.1")
    error = await refusal(NvmlSource(nvml()))
    assert error.reason == "LibraryNotFound"
    for remedy in ("install the NVIDIA driver", "runtimeClassName", "--nvml-library"):
        assert remedy in str(error)


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        ("DRIVER_NOT_LOADED", "DriverNotLoaded", "kernel module"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch", "restarted"),
        ("NO_PERMISSION", "NoPermission", "root"),
        ("UNKNOWN", "Unknown", "restart the pod"),
        ("MEMORY", "Memory", "Memory"),
    ],
)
async def test_an_error_on_opening_has_a_reason_and_a_remedy(
    three: Driver, code: str, reason: str, remedy: str
):
    three.fail(code, "nvmlInitWithFlags")
    error = await refusal(NvmlSource(nvml(library=three.library)))
    assert error.reason == reason
    assert remedy in str(error)


ERRORS = {
    code: name.removeprefix("NVML_ERROR_")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}


@pytest.mark.parametrize("code", ERRORS.values())
async def test_each_error_on_opening_says_what_to_do(three: Driver, code: str):
    """And names the error. None says what happened while the exporter ran, as it has just started."""
    three.fail(code, "nvmlInitWithFlags")
    three.fail(code, "nvmlInit_v2")
    error = await refusal(NvmlSource(nvml(library=three.library)))
    assert error.reason in str(error)
    assert str(error).count(": ") > 1
    assert "while the exporter was running" not in str(error)


async def test_a_failed_sweep_keeps_the_identities(three: Driver):
    source = NvmlSource(nvml(library=three.library))
    before = await source.read()
    three.fail("DRIVER_NOT_LOADED", "nvmlDeviceGetCount_v2")
    with pytest.raises(DriverError):
        await source.read()
    assert [gpu.identity for gpu in source.latest.gpus] == [gpu.identity for gpu in before.gpus]
    assert not any(gpu.up for gpu in source.latest.gpus)
    assert (source.latest.gpu_count, source.latest.driver.driver_version) == (None, None)
    await source.close()


async def test_the_binding_is_left_as_it_was_found(three: Driver):
    others = pynvml.nvmlLib = Driver().library
    source = NvmlSource(nvml(library=three.library))
    await source.read()
    await source.close()
    assert pynvml.nvmlLib is others
    three.fail("DRIVER_NOT_LOADED", "nvmlInitWithFlags")
    await refusal(NvmlSource(nvml(library=three.library)))
    assert pynvml.nvmlLib is others
