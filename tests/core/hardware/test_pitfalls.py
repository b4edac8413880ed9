"""Pitfalls of the binding: they exist, and do no harm."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from exporter.model import Memory
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.driver.library import DriverError, Library
from exporter.nvml.readings.device_reader import DeviceReader
from exporter.nvml.readings.gpu_processes import read_utilization
from exporter.nvml.readings.samples import SampleReader
from tests.core.hardware.making import ticking
from tests.core.hardware.tiny import (
    HANDLE,
    answers,
    fills,
    installed,
    library,
    writes,
)

GPU = "GPU-a"
SAMPLES = "nvmlDeviceGetProcessUtilization"


def memory_of(calls: Calls) -> Memory | None:
    """Return the frame buffer of a reading."""
    return DeviceReader().read(calls, GPU, HANDLE)[0].get("memory")


def test_a_success_raised_as_an_error_means_no_samples():
    calls = installed(**{SAMPLES: answers(0)})
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetProcessUtilization(HANDLE, 0)
    assert caught.value.value == 0
    assert read_utilization(SampleReader(ticking()), calls, GPU, HANDLE, ()) == {}
    assert not calls.records.errors


def test_a_typeerror_of_the_binding_costs_that_answer():
    name = "nvmlDeviceGetMemoryInfo"
    calls = installed(**{name: answers(0)})
    with pytest.raises(TypeError):
        pynvml.nvmlDeviceGetMemoryInfo(HANDLE, version="no number")
    assert calls.ask("", name, HANDLE, "no number") is None
    assert calls.records.errors == {("", name, "TypeError"): 1}


def test_invalid_utf8_costs_that_answer():
    def name(_handle: Any, buffer: Any, _length: Any) -> int:
        buffer.value = b"\xff\xfe"
        return 0

    calls = installed(nvmlDeviceGetName=name)
    assert calls.ask(GPU, "nvmlDeviceGetName", HANDLE) is None
    assert calls.records.errors == {(GPU, "nvmlDeviceGetName", "UnicodeDecodeError"): 1}


@pytest.mark.parametrize("code", [*range(30), 999, 4242])
def test_every_error_code_is_a_value_a_lost_gpu_or_a_lost_driver(code: int):
    calls = installed(nvmlDeviceGetPowerUsage=answers(code) if code else writes(5))
    try:
        answer = calls.ask(GPU, "nvmlDeviceGetPowerUsage", HANDLE)
    except (DeviceLostError, DriverGoneError) as error:
        answer = type(error)
    special = {0: 5, **dict.fromkeys((15, 28), DeviceLostError), **dict.fromkeys((1, 9, 18), DriverGoneError)}
    assert answer == special.get(code)
    silent = {0, 3, 6, 13, 25, 26}
    assert sum(calls.records.errors.values()) == (0 if code in silent else 1)
    assert all(name.isalnum() and name[0].isupper() for _, _, name in calls.records.errors)
    assert code != 4242 or calls.records.errors == {(GPU, "nvmlDeviceGetPowerUsage", "Error4242"): 1}


def test_a_ctypes_number_becomes_an_int():
    calls = installed(nvmlDeviceIsMigDeviceHandle=writes(1))
    assert not isinstance(pynvml.nvmlDeviceIsMigDeviceHandle(HANDLE), int)
    answer = calls.ask(GPU, "nvmlDeviceIsMigDeviceHandle", HANDLE)
    assert (answer, type(answer)) == (1, int)


def test_bytes_become_text():
    def version(_handle: Any, buffer: Any) -> int:
        buffer.value = b"550.90.07"
        return 0

    calls = installed(nvmlDeviceGetGspFirmwareVersion=version)
    assert pynvml.nvmlDeviceGetGspFirmwareVersion(HANDLE) == b"550.90.07"
    assert calls.ask(GPU, "nvmlDeviceGetGspFirmwareVersion", HANDLE) == "550.90.07"


def test_memory_v2_is_requested_with_its_version():
    marks = []

    def info(_handle: Any, reference: Any) -> int:
        marks.append(reference._obj.version)
        return fills(total=1000, reserved=100, used=300, free=600)(reference)

    calls = installed(nvmlDeviceGetMemoryInfo_v2=info, nvmlDeviceGetMemoryInfo=answers(999))
    memory = memory_of(calls)
    assert marks == [0x02000028]
    assert (memory.total, memory.used, memory.free, memory.reserved) == (1000, 300, 600, 100)


@pytest.mark.parametrize("newer", [{}, {"nvmlDeviceGetMemoryInfo_v2": answers(25)}])
def test_memory_v1_replaces_a_missing_v2(newer: dict[str, Any]):
    """Used then includes reserved."""
    calls = installed(nvmlDeviceGetMemoryInfo=fills(total=1000, used=400, free=600), **newer)
    memory = memory_of(calls)
    assert (memory.total, memory.used, memory.free, memory.reserved) == (1000, 400, 600, None)
    assert not calls.records.errors


def test_memory_v1_does_not_replace_a_failing_v2():
    """It counts otherwise."""
    older = fills(total=1000, used=400, free=600)
    calls = installed(nvmlDeviceGetMemoryInfo_v2=answers(999), nvmlDeviceGetMemoryInfo=older)
    assert memory_of(calls) is None
    assert sum(calls.records.errors.values()) == 1


def test_an_invalid_argument_for_a_slot_means_an_empty_slot():
    calls = installed(nvmlDeviceGetMigDeviceHandleByIndex=answers(2))
    assert calls.ask("GPU-a", "nvmlDeviceGetMigDeviceHandleByIndex", HANDLE, 1) is None
    assert not calls.records.errors


@pytest.mark.parametrize(("code", "opens"), [(0, True), (9, False)])
def test_a_library_without_nvmlinitwithflags_is_initialised_by_nvmlinit_v2(code: int, opens: bool):
    thin = SimpleNamespace(nvmlInit_v2=lambda: code, nvmlShutdown=lambda: 0)
    library = Library(library=thin)
    if opens:
        library.open()
        library.close()
    else:
        with pytest.raises(DriverError, match="kernel module"):
            library.open()


def test_cached_functions_of_a_closed_library_are_not_used():
    def version(text: bytes) -> Any:
        def function(buffer: Any, _length: Any) -> int:
            buffer.value = text
            return 0

        return function

    answers_seen = []
    for text in (b"535.1", b"580.2"):
        driver = Library(library=library(nvmlSystemGetDriverVersion=version(text)))
        driver.open()
        answers_seen.append(Calls().ask("", "nvmlSystemGetDriverVersion"))
        driver.close()
    assert answers_seen == ["535.1", "580.2"]
