"""Watching GPUs: what is registered, what an event becomes, and who is woken."""

from typing import Any

import pynvml
import pytest

from exporter.nvml.events import WAKE_SECONDS
from tests.core.hardware.making import LARGE, SMALL, WALL, Driver, gpu, instance, refuse
from tests.core.hardware.watching import DOUBLE_BIT, MIG_CONFIG, UNAVAILABLE, XID, Watch
from tests.waiting import LIMIT_SECONDS, wait_until

REGISTER, SUPPORTED = "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"
INVALID_ARGUMENT = pynvml.NVML_ERROR_INVALID_ARGUMENT


def masks(driver: Driver) -> list[int]:
    """Keep what is asked to be registered from now on."""
    asked: list[int] = []
    real = getattr(driver.library, REGISTER)

    def call(handle: Any, mask: Any, event_set: Any) -> int:
        asked.append(mask.value)
        return int(real(handle, mask, event_set))

    setattr(driver.library, REGISTER, call)
    return asked


def test_an_xid_becomes_an_event_of_its_gpu(watch: Watch) -> None:
    watched = watch(gpu("a"), gpu("b"))
    watched.happen(XID, 79)
    assert watched.events() == [("GPU-a", "", "xid", 79)]
    assert watched.recent()[0].at == WALL + watched.clock.now
    assert watched.watched() == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(
    ("bit", "kind"),
    [
        (0x1, "single_bit_ecc"),
        (DOUBLE_BIT, "double_bit_ecc"),
        (0x200, "ecc_storm"),
        (0x400, "dram_retirement"),
        (0x800, "dram_retirement_failure"),
        (0x1000, "poison"),
        (0x2000, "fatal_poison"),
        (UNAVAILABLE, "gpu_unavailable"),
        (0x8000, "recovery_action"),
        (MIG_CONFIG, "mig_config"),
    ],
)
def test_other_event_types_are_named(watch: Watch, bit: int, kind: str) -> None:
    watched = watch(gpu("a", mig={"enabled": False}))
    watched.happen(bit, 5)
    assert watched.events() == [("GPU-a", "", kind, None)]


def test_frequent_events_are_not_subscribed_to(watch: Watch) -> None:
    """Changes of clocks, performance state and power source."""
    watched = watch(gpu("a", mig={"enabled": False}), start=False)
    asked = masks(watched.driver)
    watched.start()
    assert asked == [0x1 | DOUBLE_BIT | XID, 0xFE00, MIG_CONFIG]


def test_a_refused_mig_event_costs_no_other_event(watch: Watch) -> None:
    watched = watch(gpu("a", mig={"enabled": False}), start=False)
    real = getattr(watched.driver.library, REGISTER)

    def call(handle: Any, mask: Any, event_set: Any) -> int:
        return INVALID_ARGUMENT if mask.value & MIG_CONFIG else int(real(handle, mask, event_set))

    setattr(watched.driver.library, REGISTER, call)
    watched.start()
    watched.happen(XID, 31)
    assert watched.events() == [("GPU-a", "", "xid", 31)]
    assert watched.calls.records.errors == {}
    assert watched.watched() == {"GPU-a"}


@pytest.mark.parametrize("call", [SUPPORTED, REGISTER, "nvmlEventSetCreate"])
def test_a_gpu_without_events_is_asked_once_and_not_watched(watch: Watch, call: str) -> None:
    set_missing = call == "nvmlEventSetCreate"
    watched = watch(missing=[call]) if set_missing else watch(gpu("a", unsupported=[call]))
    before = watched.driver.library.calls.copy()
    watched.start()
    assert watched.watched() == frozenset()
    assert watched.calls.records.errors == {}
    assert watched.driver.library.calls[SUPPORTED, "GPU-a"] - before[SUPPORTED, "GPU-a"] <= 1
    assert watched.driver.library.calls[call, ""] == before[call, ""]
    assert watched.driver.library.calls[call, "GPU-a"] == before[call, "GPU-a"]


def test_a_gpu_without_xid_events_is_not_watched(watch: Watch) -> None:
    """No XID could be said not to have occurred."""
    watched = watch(gpu("a"), start=False)

    def call(_handle: Any, mask: Any) -> int:
        mask._obj.value = 0x1 | 0x10
        return 0

    setattr(watched.driver.library, SUPPORTED, call)
    watched.start()
    assert watched.watched() == frozenset()
    assert watched.driver.asked("nvmlEventSetCreate") == 0


@pytest.mark.parametrize("call", [SUPPORTED, REGISTER])
def test_a_failed_registration_costs_its_gpu_and_is_tried_again(watch: Watch, call: str) -> None:
    watched = watch(gpu("a"), gpu("b"), start=False)
    real = getattr(watched.driver.library, call)
    refuse(watched.driver, call, pynvml.NVML_ERROR_GPU_IS_LOST, {"GPU-b"})
    watched.start()
    assert watched.watched() == {"GPU-a"}
    assert watched.calls.records.errors == {("GPU-b", call, "GpuIsLost"): 1}

    setattr(watched.driver.library, call, real)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    watched.start()
    assert watched.watched() == {"GPU-a", "GPU-b"}


def test_starting_again_without_a_change_makes_no_call(watch: Watch) -> None:
    watched = watch(gpu("a"), gpu("b"))
    handles = watched.handles
    asked = [watched.driver.library.calls[call, "GPU-a"] for call in (SUPPORTED, REGISTER)]
    watched.watcher.start(handles)
    watched.watcher.start(handles)
    assert [watched.driver.library.calls[call, "GPU-a"] for call in (SUPPORTED, REGISTER)] == asked
    assert watched.driver.asked("nvmlEventSetCreate") == 1


def test_an_added_gpu_joins_the_same_event_set(watch: Watch) -> None:
    watched = watch(gpu("a"))
    watched.driver.become(gpu("b"), gpu("a"))
    watched.start()
    watched.happen(XID, 48)
    assert watched.events() == [("GPU-b", "", "xid", 48)]
    assert watched.watched() == {"GPU-a", "GPU-b"}
    assert watched.driver.asked("nvmlEventSetCreate") == 1

    watched.driver.become(gpu("b"))
    watched.start()
    assert watched.watched() == {"GPU-b"}


def test_registration_is_counted_for_its_group(watch: Watch) -> None:
    watched = watch(gpu("a"))
    assert watched.calls.records.asked["events"] == 4
    assert watched.calls.records.seconds["events"] > 0
    assert watched.calls.group == "core"


def test_an_xid_names_the_mig_device_of_its_instances(watch: Watch) -> None:
    watched = watch(gpu("a", LARGE, SMALL))
    watched.watcher.note_layout("GPU-a", {(2, 0): "MIG-large", (7, 0): "MIG-small"})
    watched.happen(XID, 31, gi=7, ci=0)
    watched.happen(XID, 48)
    watched.happen(DOUBLE_BIT, gi=7, ci=0)
    assert watched.events(3) == [
        ("GPU-a", "MIG-small", "xid", 31),
        ("GPU-a", "", "xid", 48),
        ("GPU-a", "", "double_bit_ecc", None),
    ]


def test_a_gpu_instance_alone_names_its_only_compute_instance(watch: Watch) -> None:
    shared = [instance("x", gi=1, ci=0), instance("y", gi=1, ci=1)]
    watched = watch(gpu("a", *shared, SMALL))
    watched.watcher.note_layout("GPU-a", {(1, 0): "MIG-x", (1, 1): "MIG-y", (7, 0): "MIG-small"})
    watched.happen(XID, 31, gi=7)
    watched.happen(XID, 31, gi=1)
    watched.happen(XID, 31, gi=5, ci=0)
    assert [mig for _, mig, _, _ in watched.events(3)] == ["MIG-small", "", ""]


def test_after_a_new_layout_no_former_mig_device_is_named(watch: Watch) -> None:
    watched = watch(gpu("a", SMALL))
    watched.watcher.note_layout("GPU-a", {(7, 0): "MIG-small"})
    watched.happen(XID, 31, gi=7, ci=0)
    watched.events(1)
    watched.driver.become(gpu("a", instance("other", gi=7, start=6)))
    watched.happen(XID, 31, gi=7, ci=0)
    watched.events(3)
    watched.watcher.note_layout("GPU-a", {(7, 0): "MIG-other"})
    watched.happen(XID, 31, gi=7, ci=0)
    assert [event[1:] for event in watched.events(4)] == [
        ("MIG-small", "xid", 31),
        ("", "mig_config", None),
        ("", "xid", 31),
        ("MIG-other", "xid", 31),
    ]


def test_the_poller_is_woken_at_most_once_a_second(watch: Watch) -> None:
    """The first event that may change the node wakes at once; later ones are not forgotten."""
    watched = watch(gpu("a", mig={"enabled": False}))
    watched.happen(MIG_CONFIG)
    wait_until(lambda: watched.wakes == 1)
    for _ in range(200):
        watched.happen(XID, 31)
    watched.events(201)
    watched.driver.library.events.settle(LIMIT_SECONDS)
    assert watched.wakes == 1

    watched.clock.now += WAKE_SECONDS
    wait_until(lambda: watched.wakes == 2)


def test_ecc_events_do_not_wake_the_poller(watch: Watch) -> None:
    watched = watch(gpu("a"))
    watched.happen(0x1)
    watched.happen(DOUBLE_BIT)
    watched.events(2)
    assert watched.wakes == 0


def test_a_failing_callback_does_not_stop_the_watcher(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(gpu("a"))

    def broken() -> None:
        raise RuntimeError("the loop is closed")

    watched.watcher.wake = broken
    watched.happen(XID, 13)
    watched.events(1)
    watched.happen(XID, 31)
    assert [xid for *_, xid in watched.events(2)] == [13, 31]
    assert watched.watched() == {"GPU-a"}
    assert len([record for record in caplog.records if "could not be read" in record.message]) == 1
