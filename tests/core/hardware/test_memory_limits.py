"""The call for memory limits of cgroups: the published record, its errors, and when it is made."""

from collections.abc import Callable
from ctypes import memset, sizeof
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.demo.cgroup_memory import Amounts, DriverLimits
from exporter.model.readings import CgroupMemory
from exporter.nvml.driver import memory_limits
from exporter.nvml.driver.memory_limits import NO_LIMIT, NONE_SET, MemoryLimits, MemoryLimitsRecord
from exporter.nvml.readings.device_reader import SLOW_SECONDS
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.making import GIB, NODE, Clock, Driver, gpu, nvml

CALL = "nvmlDeviceGetMemoryLimits_v1"
NEW_DRIVER = NODE | {"driver_version": "615.43.02", "nvml_version": "13.615.43.02", "cuda_version": 13040}
# The size of nvmlGetMemoryLimits_v1_t on machines of 64 bits: a pointer, and three numbers of 64 bits.
PUBLISHED = 32


def answering(monkeypatch: pytest.MonkeyPatch, write: Callable[[Any], int]) -> None:
    """Let the driver's function write into the record, and return a code."""

    class Library:
        def __getattr__(self, name: str) -> Any:
            assert name == CALL
            return lambda _device, reference: write(reference._obj)

    monkeypatch.setattr(pynvml, "nvmlLib", Library())
    pynvml._nvmlGetFunctionPointer_cache.clear()


def writes(soft: int, hard: int, used: int) -> Callable[[Any], int]:
    def write(record: Any) -> int:
        record.softLimit, record.hardLimit, record.currentUsed = soft, hard, used
        return 0

    return write


def test_the_record_is_the_published_one_with_a_guard_behind_it() -> None:
    assert MemoryLimitsRecord.guard.offset == PUBLISHED
    assert sizeof(MemoryLimitsRecord) > PUBLISHED


def test_the_cgroup_is_named_and_the_answer_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def write(record: Any) -> int:
        asked.append(record.nameSpace)
        return writes(2 * GIB, 4 * GIB, GIB)(record)

    answering(monkeypatch, write)
    assert memory_limits.memory_limits(None, b"/sys/fs/cgroup/\xff") == MemoryLimits(2 * GIB, 4 * GIB, GIB)
    assert asked == [b"/sys/fs/cgroup/\xff"]


@pytest.mark.parametrize("code", [3, 6])
def test_without_a_limit_none_is_set(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    answering(monkeypatch, lambda _record: code)
    assert memory_limits.memory_limits(None, b"/") == NONE_SET == MemoryLimits(0, NO_LIMIT, 0)


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda _record: 4)
    with pytest.raises(pynvml.NVMLError):
        memory_limits.memory_limits(None, b"/")


def longer(record: Any) -> int:
    """Write a record of another layout, such as one that begins with a version and has flags."""
    memset(record.guard, 1, 8)
    return writes(1, 2, 3)(record)


def shorter(record: Any) -> int:
    record.softLimit, record.hardLimit = 1, 2
    return 0


@pytest.mark.parametrize("write", [longer, shorter, lambda _record: 0])
def test_another_record_is_no_answer(monkeypatch: pytest.MonkeyPatch, write: Callable[[Any], int]) -> None:
    answering(monkeypatch, write)
    with pytest.raises(ValueError, match="another record"):
        memory_limits.memory_limits(None, b"/")


def limited(
    tmp_path: Path, *names: str
) -> tuple[Driver, dict[str, list[str]], dict[tuple[str, str], Amounts]]:
    """Return a driver of two GPUs, one with MIG, paths to ask about, and the answers."""
    driver = Driver(gpu("a"), gpu("b", mig={"enabled": False}), node=NEW_DRIVER)
    paths = {uuid: [] for uuid in ("GPU-a", "GPU-b")}
    for name in names:
        (tmp_path / "pod" / name).mkdir(parents=True)
        paths["GPU-b"].append(f"{tmp_path}/pod/{name}")
    return driver, paths, {}


def test_each_limited_cgroup_is_asked_about_once_a_minute(tmp_path: Path, clock: Clock) -> None:
    driver, paths, answers = limited(tmp_path, "x", "y")
    driver.library.limits = DriverLimits(answers)
    answers[f"{tmp_path}/pod/x", "GPU-b"] = Amounts(GIB, 2 * GIB, 4 * GIB)
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, limited_cgroups=lambda: paths))

    def sweep() -> dict[str, CgroupMemory]:
        clock.now += 5
        readings = {reading.identity.uuid: reading for reading in sweeper.sweep()}
        assert readings["GPU-a"].cgroup_memory == {}
        return dict(readings["GPU-b"].cgroup_memory)

    first = sweep()
    assert first[f"{tmp_path}/pod/x"] == CgroupMemory(used=GIB, guaranteed=2 * GIB, limit=4 * GIB)
    assert not first[f"{tmp_path}/pod/y"].limited
    # Each, and the cgroup above a limited one.
    assert driver.library.calls[CALL, "GPU-b"] == 3
    # A new one at once, others when they are due.
    (tmp_path / "pod" / "z").mkdir()
    paths["GPU-b"].append(f"{tmp_path}/pod/z")
    answers[f"{tmp_path}/pod/z", "GPU-b"] = Amounts(GIB, 0, GIB)
    assert sweep()[f"{tmp_path}/pod/z"].limit == GIB
    assert driver.library.calls[CALL, "GPU-b"] == 4
    clock.now += SLOW_SECONDS
    sweep()
    assert driver.library.calls[CALL, "GPU-b"] == 8
    assert driver.library.calls[CALL, "GPU-a"] == 0


def test_the_cgroups_above_are_asked_up_to_the_one_with_the_limit(tmp_path: Path, clock: Clock) -> None:
    driver, paths, answers = limited(tmp_path, "x", "y")
    driver.library.limits = DriverLimits(answers)
    top = str(tmp_path.parent)
    answers[top, "GPU-b"] = Amounts(GIB, 0, 4 * GIB)
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, limited_cgroups=lambda: paths))
    memory = list(sweeper.sweep())[1].cgroup_memory
    below = {top, str(tmp_path), f"{tmp_path}/pod", f"{tmp_path}/pod/x", f"{tmp_path}/pod/y"}
    assert {path for path, each in memory.items() if each.limit == 4 * GIB} == below
    assert memory.keys() - below == {str(tmp_path.parent.parent)}


def test_a_limit_that_is_set_later_is_read(tmp_path: Path, clock: Clock) -> None:
    """The driver's refusal for one cgroup is not one for all, nor for ever."""
    driver, paths, answers = limited(tmp_path, "x")
    driver.library.limits = DriverLimits(answers)
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, limited_cgroups=lambda: paths))
    assert not list(sweeper.sweep())[1].cgroup_memory[f"{tmp_path}/pod/x"].limited
    answers[f"{tmp_path}/pod/x", "GPU-b"] = Amounts(GIB, 0, GIB)
    clock.now += SLOW_SECONDS + 5
    assert list(sweeper.sweep())[1].cgroup_memory[f"{tmp_path}/pod/x"].limited


@pytest.mark.parametrize("amounts", [Amounts(1 << 62, 1, 1), Amounts(1, 1 << 62, 1), Amounts(1, 1, 1 << 62)])
def test_impossible_numbers_are_not_observed(tmp_path: Path, clock: Clock, amounts: Amounts) -> None:
    driver, paths, answers = limited(tmp_path, "x")
    answers[f"{tmp_path}/pod/x", "GPU-b"] = amounts
    driver.library.limits = DriverLimits(answers)
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, limited_cgroups=lambda: paths))
    assert list(sweeper.sweep())[1].cgroup_memory == {}
    assert sweeper.calls.records.errors["GPU-b", CALL, "ImpossibleValue"] == 1


def test_an_older_driver_is_asked_once_and_no_error_is_counted(tmp_path: Path, clock: Clock) -> None:
    _, paths, _ = limited(tmp_path, "x", "y")
    old = Driver(gpu("b", mig={"enabled": False}))
    sweeper = Sweeper(nvml(old.library, clock=clock.monotonic, limited_cgroups=lambda: paths))
    [reading] = sweeper.sweep()
    assert (reading.up, reading.cgroup_memory) == (True, {})
    assert not sweeper.calls.records.errors
    assert CALL in reading.unsupported


def test_a_cgroup_that_is_gone_is_not_asked_about(tmp_path: Path, clock: Clock) -> None:
    driver, paths, _ = limited(tmp_path)
    paths["GPU-b"].append(f"{tmp_path}/gone")
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, limited_cgroups=lambda: paths))
    assert list(sweeper.sweep())[1].cgroup_memory == {}
    assert driver.library.calls[CALL, "GPU-b"] == 0
