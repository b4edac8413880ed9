"""GPM: two buffers for each device, a window from sweep to sweep, nothing leaked."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from exporter.demo.nvml.gpm import Pool
from exporter.model import Profile
from exporter.nvml.driver.calls import Calls, DeviceLostError
from exporter.nvml.driver.library import Library
from exporter.nvml.mig import MigReader
from exporter.nvml.mig_layout import LayoutReader, MigIdentity
from exporter.nvml.readings.gpm import GpmReader, counted
from exporter.nvml.readings.gpu_processes import ProcessLists
from tests.core.hardware.making import Clock, Driver, gpu, instance, process, refuse

NEW = {"name": "n", "driver_version": "580.65.06", "nvml_version": "13.580.65.06", "cuda_version": 13000}
FIRST = instance("first", 1, ci=0, profile="1c.3g.8gb", memory_bytes="8 GiB", start=0, size=4)
SECOND = FIRST | {"uuid": "MIG-second", "ci": 1, "profile": "2c.3g.8gb"}
SINGLE = instance("single", 5, start=5)


def load(percent: float) -> dict[str, Any]:
    """Return a steady load."""
    return {"load": {"high": percent}}


class Node:
    """An opened driver, a reader on it, and the clock of both."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self.driver = driver
        self.reader, self.calls = GpmReader(clock.monotonic), Calls()
        self.layouts = LayoutReader()
        self.migs_reader = MigReader(self.layouts, ProcessLists(), ())
        self.library = Library(library=driver.library)
        self.library.open()
        self._clock = clock

    @property
    def pool(self) -> Pool:
        """Return the account of the driver's buffers."""
        return self.driver.library.gpm

    def after(self, seconds: float) -> "Node":
        """Let time pass for the hardware and for the reader."""
        self._clock.now += seconds
        self.driver.advance(seconds)
        return self

    def gpu(self) -> Profile | None:
        """Read the GPU."""
        return self.reader.read_gpu(self.calls, "GPU-a", pynvml.nvmlDeviceGetHandleByIndex(0))

    def migs(self) -> dict[str, Profile]:
        """Find the MIG devices and read them all."""
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        layout = self.layouts.read(self.calls, "GPU-a", parent)
        devices = self.migs_reader.read(self.calls, layout, None)
        return self.reader.read_migs(self.calls, "GPU-a", parent, layout, devices)

    def mig(self, slot: int, *, alone: bool = True) -> Profile | None:
        """Read the MIG device in a slot."""
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, slot)
        mark = MigIdentity(
            pynvml.nvmlDeviceGetGpuInstanceId(handle),
            pynvml.nvmlDeviceGetComputeInstanceId(handle),
            pynvml.nvmlDeviceGetUUID(handle),
            pynvml.nvmlDeviceGetName(handle),
        )
        self.calls.records.parents[mark.uuid] = "GPU-a"
        return self.reader.read_mig(self.calls, "GPU-a", parent, (mark, handle), alone=alone)


@pytest.fixture
def node() -> Iterator[Callable[..., Node]]:
    """Return a function that makes a half busy Hopper GPU, or another driver; no buffer may be misused."""
    clock, nodes = Clock(), []

    def make(*gpus: dict[str, Any], **parts: Any) -> Node:
        boards = gpus or (gpu("a", architecture=9),)
        if boards[0]["mig"] is None:
            parts = {"host_processes": [process(41, "GPU-a", **load(50))]} | parts
        nodes.append(Node(Driver(*boards, **parts), clock))
        return nodes[-1]

    yield make
    for made in nodes:
        made.driver.library.release()
        assert not made.pool.misuses


def graphics(profile: Profile | None) -> float | None:
    """Return the time with the engine at work."""
    return None if profile is None else profile.active.get("graphics_engine")


def test_the_window_is_the_time_between_two_sweeps(node: Callable[..., Node]):
    board = node(host_processes=[process(41, "GPU-a", load={"shape": "square", "high": 80, "period": 40})])
    assert board.gpu() is None
    assert graphics(board.after(10).gpu()) == pytest.approx(0.8)
    assert graphics(board.after(10).gpu()) == pytest.approx(0.4)
    assert graphics(board.after(10).gpu()) == pytest.approx(0)
    assert board.pool.live == 2
    assert board.driver.asked("nvmlGpmSampleGet", "GPU-a") == 4


def test_every_metric_of_a_gpu(node: Callable[..., Node]):
    board = node(gpu("a", architecture=10, links={"nvlinks": 2, "switch": True}), node=NEW)
    board.gpu()
    profile = board.after(10).gpu()
    totals = board.driver.library.board.gpus[0].state.totals
    assert profile.source == "gpm"
    assert len(profile.active) == 13
    assert all(0 <= share <= 0.5 for share in profile.active.values())
    assert profile.engines == {"decoder": 0, "jpeg": 0, "ofa": 0, "encoder": 0}
    assert profile.rates == pytest.approx({name: totals[name] / 10 for name in profile.rates})
    assert set(profile.rates) == {"pcie_transmit", "pcie_receive", "nvlink_transmit", "nvlink_receive"}
    assert profile.bytes_total == {name: totals[name] for name in ("pcie_transmit", "pcie_receive")}
    assert len(profile.cycles) == 11
    ratio = profile.cycles["sm_active"] / profile.cycles["sm_elapsed"]
    assert ratio == pytest.approx(profile.active["sm"])
    assert all(isinstance(count, int) for count in profile.cycles.values())
    assert profile.context_switches == {(0, "active"): 0}


def test_two_sweeps_within_100_ms_share_an_answer(node: Callable[..., Node]):
    """The driver may have no newer counters."""
    board = node()
    board.gpu()
    before = board.after(10).gpu()
    assert board.after(0.05).gpu() is before
    assert board.driver.asked("nvmlGpmSampleGet", "GPU-a") == 2
    assert graphics(board.after(0.05).gpu()) == pytest.approx(0.5)


def test_a_gpu_without_gpm_is_asked_once_until_the_driver_is_reopened(node: Callable[..., Node]):
    board = node(gpu("a", architecture=8))
    assert [board.after(5).gpu() for _ in range(3)] == [None] * 3
    assert (board.pool.live, board.driver.asked("nvmlGpmQueryDeviceSupport", "GPU-a")) == (0, 1)
    assert board.calls.records.withheld("GPU-a") == {"profiling": "not supported by this GPU or its driver"}
    assert not board.calls.records.errors
    board.reader.free_all(board.calls)
    board.calls.records.forget_unsupported()
    board.driver.become(gpu("a", architecture=8, gpm=True))
    board.gpu()
    assert board.after(5).gpu() is not None


def test_a_driver_without_gpm_functions_is_no_failure(node: Callable[..., Node]):
    board = node(missing=["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"])
    assert board.gpu() is None
    assert not board.calls.records.errors
    assert board.calls.records.withheld("GPU-a")["profiling"]


def test_a_mig_device_alone_in_its_gpu_instance_has_its_own_share(node: Callable[..., Node]):
    board = node(gpu("a", SINGLE, architecture=9), host_processes=[process(41, "MIG-single", **load(70))])
    assert (board.gpu(), board.mig(5)) == (None, None)
    whole, cut = board.after(10).gpu(), board.mig(5)
    assert graphics(cut) == pytest.approx(0.7)
    assert graphics(whole) == pytest.approx(0.1)
    assert (cut.rates, cut.bytes_total) == ({}, {})
    assert "dram" in cut.active
    assert cut.engines
    assert board.pool.live == 4


def test_compute_instances_of_one_gpu_instance_have_their_own_shares(node: Callable[..., Node]):
    running = [process(41, "MIG-first", **load(90)), process(42, "MIG-second", **load(30))]
    board = node(gpu("a", FIRST, SECOND, architecture=9), host_processes=running)
    for slot in (0, 1):
        board.mig(slot, alone=False)
    board.after(10)
    profiles = [board.mig(slot, alone=False) for slot in (0, 1)]
    assert [graphics(profile) for profile in profiles] == pytest.approx([0.9, 0.3])
    assert all("dram" not in profile.active and not profile.engines for profile in profiles)
    assert board.driver.asked("nvmlGpmMigSampleGet", "GPU-a") == 0


def test_all_mig_devices_of_a_gpu_are_read_by_their_kind(node: Callable[..., Node]):
    running = [process(41, "MIG-first", **load(90)), process(42, "MIG-single", **load(30))]
    board = node(gpu("a", FIRST, SECOND, SINGLE, architecture=9), host_processes=running)
    assert board.migs() == {}
    profiles = board.after(5).migs()
    assert {uuid: graphics(profile) for uuid, profile in profiles.items()} == pytest.approx(
        {"MIG-first": 0.9, "MIG-second": 0, "MIG-single": 0.3}
    )
    assert {uuid for uuid, profile in profiles.items() if "dram" in profile.active} == {"MIG-single"}
    assert node().migs() == {}


def test_a_compute_instance_that_does_not_fill_its_gpu_instance_is_asked_itself(node: Callable[..., Node]):
    board = node(gpu("a", FIRST, architecture=9), host_processes=[process(41, "MIG-first", **load(90))])
    board.migs()
    profiles = board.after(5).migs()
    assert graphics(profiles["MIG-first"]) == pytest.approx(0.9)
    assert board.driver.asked("nvmlGpmMigSampleGet", "GPU-a") == 0


def test_two_devices_that_both_claim_a_gpu_instance_are_asked_themselves(node: Callable[..., Node]):
    """Wrong attributes must not make two whole instances of one: sums hold."""
    whole = [one | {"profile": "3g.8gb"} for one in (FIRST, SECOND)]
    board = node(gpu("a", *whole, architecture=9), host_processes=[process(41, "MIG-first", **load(90))])
    board.migs()
    profiles = board.after(5).migs()
    assert {uuid: graphics(profile) for uuid, profile in profiles.items()} == pytest.approx(
        {"MIG-first": 0.9, "MIG-second": 0}
    )
    assert board.driver.asked("nvmlGpmMigSampleGet", "GPU-a") == 0


def test_an_unreadable_slot_costs_its_neighbours_no_meter(node: Callable[..., Node]):
    """A device that fills its GPU instance has no neighbour in it, also after a change."""
    running = [process(41, "MIG-single", **load(30))]
    other = instance("other", 3, start=3)
    board = node(gpu("a", SINGLE, other, architecture=9), host_processes=running)
    refuse(board.driver, "nvmlDeviceGetUUID", 999, {"MIG-other"})
    board.migs()
    assert {uuid: graphics(profile) for uuid, profile in board.after(5).migs().items()} == {
        "MIG-single": pytest.approx(0.3)
    }
    changed = instance("changed", 4, start=4)
    board.driver.become(gpu("a", SINGLE, other, changed, architecture=9), host_processes=running)
    board.after(5).migs()
    assert {uuid: graphics(profile) for uuid, profile in board.after(5).migs().items()} == {
        "MIG-single": pytest.approx(0.3),
        "MIG-changed": 0,
    }


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_SUPPORTED"])
def test_a_driver_that_refuses_compute_instances_is_asked_once(node: Callable[..., Node], code: str):
    board = node(gpu("a", FIRST, SECOND, architecture=9))
    board.driver.fail(code, "nvmlGpmSampleGet", "MIG-first")
    assert [board.after(5).mig(0, alone=False) for _ in range(3)] == [None] * 3
    assert board.driver.asked("nvmlGpmSampleGet", "MIG-first") == 1
    assert board.calls.records.failures == (code == "INVALID_ARGUMENT")


def test_support_is_asked_of_the_gpu_never_of_its_mig_devices(node: Callable[..., Node]):
    board = node(gpu("a", SINGLE, architecture=9))
    board.mig(5)
    assert board.driver.asked("nvmlGpmQueryDeviceSupport", "MIG-single") == 0
    assert board.driver.asked("nvmlGpmQueryDeviceSupport", "GPU-a") == 1


def test_a_changed_profile_discards_the_older_sample(node: Callable[..., Node]):
    """Its buffers are kept."""
    board = node(gpu("a", SINGLE, architecture=9), host_processes=[process(41, "MIG-single", **load(70))])
    board.mig(5)
    assert board.after(5).mig(5) is not None
    again = SINGLE | {"profile": "2g.4gb", "multiprocessors": 28}
    board.driver.become(
        gpu("a", again, architecture=9), host_processes=[process(41, "MIG-single", **load(20))]
    )
    assert board.after(5).mig(5) is None
    assert graphics(board.after(5).mig(5)) == pytest.approx(0.2)
    assert board.pool.live == 2


def test_a_new_neighbour_discards_the_older_sample(node: Callable[..., Node]):
    """Samples of the GPU instance and of the compute instance are never compared."""
    board = node(gpu("a", FIRST, SECOND, architecture=9))
    board.mig(0)
    assert board.after(5).mig(0, alone=False) is None
    assert board.after(5).mig(0, alone=False) is not None


def test_after_a_failed_sample_the_next_window_is_longer(node: Callable[..., Node]):
    board = node(host_processes=[process(41, "GPU-a", load={"shape": "square", "high": 80, "period": 40})])
    board.gpu()
    board.driver.fail("UNKNOWN", "nvmlGpmSampleGet")
    assert board.after(10).gpu() is None
    board.driver.recover()
    assert graphics(board.after(10).gpu()) == pytest.approx(0.6)


def test_a_lost_gpu_keeps_its_two_buffers(node: Callable[..., Node]):
    board = node()
    board.gpu()
    board.driver.fail("GPU_IS_LOST", "nvmlGpmSampleGet")
    with pytest.raises(DeviceLostError):
        board.after(5).gpu()
    board.driver.recover()
    assert board.after(5).gpu() is not None
    assert board.pool.live == 2


def test_buffers_of_removed_devices_are_freed(node: Callable[..., Node]):
    board = node(gpu("a", SINGLE, architecture=9))
    board.gpu()
    board.mig(5)
    board.reader.keep_only(board.calls, {"GPU-a"})
    assert board.pool.live == 2
    assert board.after(5).gpu() is not None
    board.reader.keep_only(board.calls, set())
    assert board.pool.live == 0


def test_buffers_are_freed_once_before_the_driver_is_closed(node: Callable[..., Node]):
    board = node()
    board.gpu()
    board.reader.free_all(board.calls)
    assert board.pool.live == 0
    board.library.close()
    board.library.open()
    assert board.after(5).gpu() is None
    assert board.after(5).gpu() is not None
    board.reader.free_all(board.calls)
    board.reader.free_all(board.calls)
    assert board.pool.live == 0


def test_freeing_ignores_a_driver_that_is_gone(node: Callable[..., Node]):
    board = node()
    board.gpu()
    board.driver.fail("DRIVER_NOT_LOADED")
    board.reader.free_all(board.calls)
    assert not board.calls.records.errors


def test_freeing_is_never_repeated(node: Callable[..., Node]):
    """A second call could free a buffer of another device."""
    board = node()
    board.gpu()
    real, freed = board.driver.library.nvmlGpmSampleFree, []

    def free(sample: Any) -> int:
        freed.append(sample)
        real(sample)
        return pynvml.NVML_ERROR_INSUFFICIENT_SIZE

    board.driver.library.nvmlGpmSampleFree = free
    board.reader.free_all(board.calls)
    assert len(freed) == 2
    assert not board.pool.misuses


def test_a_failed_allocation_frees_the_other_buffer(node: Callable[..., Node]):
    board = node()
    real, given = board.driver.library.nvmlGpmSampleAlloc, []

    def alloc(reference: Any) -> int:
        given.append(reference)
        return pynvml.NVML_ERROR_MEMORY if len(given) == 2 else real(reference)

    board.driver.library.nvmlGpmSampleAlloc = alloc
    assert board.gpu() is None
    assert board.pool.live == 0
    assert board.after(5).gpu() is None
    assert board.pool.live == 2
    assert math.isclose(graphics(board.after(5).gpu()), 0.5)


def test_refused_metrics_are_remembered_and_nothing_else_is_forgotten(node: Callable[..., Node]):
    board = node()
    board.driver.fail("NOT_SUPPORTED", "nvmlGpmMetricsGet")
    board.calls.refused("GPU-a", "nvmlDeviceGetFanSpeed")
    board.gpu()
    for _ in range(3):
        assert board.after(10).gpu() is None
    assert board.driver.asked("nvmlGpmMetricsGet") == 2
    assert board.calls.records.unsupported("GPU-a") == ("nvmlDeviceGetFanSpeed", "nvmlGpmMetricsGet")


def test_pcie_bytes_always_come_from_one_counter(node: Callable[..., Node]):
    """From GPM if the GPU has it, else from its fields; NVLink bytes always from its fields."""
    from_fields = {"pcie_transmit": 7 << 32, "nvlink_transmit": 5}
    board = node(node=NEW)
    board.gpu()
    profile = board.after(10).gpu()
    both = counted(board.calls, "GPU-a", from_fields, profile)
    assert both == {"nvlink_transmit": 5, **profile.bytes_total}
    assert counted(board.calls, "GPU-a", from_fields, None) == {"nvlink_transmit": 5}
    older = node(gpu("a", architecture=8))
    assert older.gpu() is None
    assert counted(older.calls, "GPU-a", from_fields, None) == from_fields


@pytest.mark.parametrize(("code", "for_good"), [("INVALID_ARGUMENT", True), ("UNKNOWN", False)])
def test_newer_metrics_are_given_up_after_a_refusal_only(
    node: Callable[..., Node], code: str, for_good: bool
):
    board = node(gpu("a", architecture=10), node=NEW)
    real, stumbles = board.driver.library.nvmlGpmMetricsGet, [getattr(pynvml, f"NVML_ERROR_{code}")]
    board.driver.library.nvmlGpmMetricsGet = lambda struct: stumbles.pop() if stumbles else real(struct)
    board.gpu()
    first, later = board.after(10).gpu(), board.after(10).gpu()
    assert (graphics(first), graphics(later)) == (pytest.approx(0.5), pytest.approx(0.5))
    assert not first.cycles
    assert bool(later.cycles) is not for_good
