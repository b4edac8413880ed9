"""MIG: devices devices at every sweep, facts kept while they are true, slices counted by size."""

import pytest

from exporter.model import GpuReading, Memory, MigReading
from tests.core.hardware.making import GIB, LARGE, MIB, SMALL, Driver, gpu, instance, process, refuse


def migs(reading: GpuReading) -> dict[str, MigReading]:
    """Return the MIG devices by uuid."""
    assert reading.mig is not None
    return {mig.uuid: mig for mig in reading.mig}


def test_every_reading_of_a_mig_device():
    """Readings of whole GPUs are None."""
    driver = Driver(gpu("a", LARGE), host_processes=[process(41, "MIG-large")])
    reading = driver.read()
    [mig] = reading.mig
    [running] = mig.processes
    assert (running.pid, running.memory) == (41, GIB)
    assert mig == MigReading(
        uuid="MIG-large",
        gi=2,
        ci=0,
        profile="3g.8gb",
        memory=Memory(total=7424 * MIB, reserved=16 * MIB, used=GIB, free=(7424 - 16 - 1024) * MIB),
        memory_shared=False,
        compute_slices=3,
        instance_slices=3,
        memory_slices=4,
        multiprocessors=42,
        processes=(running,),
        bar1=mig.bar1,
        engines=mig.engines,
        gi_profile=9,
        gi_start=0,
        gi_size=4,
    )
    assert mig.bar1.used > 0
    assert (set(mig.engines), mig.engines["copy"]) == ({"copy", "decoder", "encoder", "jpeg", "ofa"}, 3)
    assert (reading.mig_enabled, reading.mig_slices) == (True, 7)
    assert (reading.processes, reading.process_utilization, reading.utilization_percent) == (None, None, None)
    assert reading.power_milliwatts is not None


def test_all_slots_are_read_also_behind_empty_ones():
    driver = Driver(gpu("a", SMALL, LARGE))
    assert list(migs(driver.read())) == ["MIG-large", "MIG-small"]
    assert not driver.errors()


def test_a_new_layout_is_read_in_the_next_sweep():
    driver = Driver(gpu("a", SMALL, LARGE))
    assert set(migs(driver.read())) == {"MIG-small", "MIG-large"}
    other = instance(
        "other", gi=2, start=0, profile="2g.4gb", memory_bytes="3712 MiB", size=2, multiprocessors=28
    )
    driver.become(gpu("a", SMALL, other))
    after = migs(driver.read())
    assert set(after) == {"MIG-small", "MIG-other"}
    assert (after["MIG-other"].profile, after["MIG-other"].instance_slices) == ("2g.4gb", 2)
    assert (after["MIG-other"].multiprocessors, after["MIG-other"].memory.total) == (28, 3712 * MIB)
    assert not driver.errors()
    driver.become(gpu("a", SMALL, LARGE))
    assert set(migs(driver.read())) == {"MIG-small", "MIG-large"}
    assert driver.asked("nvmlDeviceGetAttributes_v2", "MIG-large") == 2


def test_reused_ids_and_uuid_do_not_bring_old_facts_back():
    """The profile differs."""
    driver = Driver(gpu("a", LARGE))
    assert driver.read().mig[0].instance_slices == 3
    driver.become(gpu("a", LARGE | {"profile": "4g.8gb", "multiprocessors": 56}))
    [mig] = driver.read().mig
    assert (mig.profile, mig.instance_slices, mig.multiprocessors) == ("4g.8gb", 4, 56)


def test_fixed_facts_of_a_device_are_read_once():
    driver = Driver(gpu("a", SMALL))
    for _ in range(3):
        driver.read()
    assert driver.asked("nvmlDeviceGetAttributes_v2", "MIG-small") == 1
    assert driver.asked("nvmlDeviceGetGpuInstanceById", "GPU-a") == 1
    assert driver.asked("nvmlDeviceGetMigDeviceHandleByIndex", "GPU-a") == 7 + 7 + 6


PLACING = ("nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo")


@pytest.mark.parametrize("function", PLACING)
@pytest.mark.parametrize("code", ["NO_PERMISSION", "NOT_SUPPORTED", "NOT_FOUND"])
def test_a_refused_placement_is_asked_once_and_costs_nothing_else(function: str, code: str):
    """Only the administrator may see where a device lies."""
    driver = Driver(gpu("a", SMALL))
    driver.fail(code, function)
    for _ in range(3):
        [mig] = driver.read().mig
        assert (mig.gi_profile, mig.gi_start, mig.gi_size) == (None, None, None)
        assert (mig.instance_slices, mig.memory.total, mig.processes) == (1, 1856 * MIB, ())
    asked = sum(driver.asked(function, device) for device in ("GPU-a", "MIG-small"))
    assert asked == 1
    assert driver.sweeper.calls.records.failures == (code == "NO_PERMISSION")


@pytest.mark.parametrize("function", PLACING)
@pytest.mark.parametrize("code", ["TIMEOUT", "IN_USE", "UNKNOWN"])
def test_a_failed_placement_is_asked_again(function: str, code: str):
    """Claims name a device by its placement."""
    driver = Driver(gpu("a", SMALL))
    driver.fail(code, function)
    [mig] = driver.read().mig
    assert (mig.gi_start, mig.instance_slices) == (None, 1)
    driver.recover()
    for _ in range(2):
        [mig] = driver.read().mig
        assert (mig.gi_start, mig.gi_size) == (6, 1)
    assert driver.asked("nvmlDeviceGetAttributes_v2", "MIG-small") == 2


ATTRIBUTES = ("computeInstanceSliceCount", "gpuInstanceSliceCount", "memorySizeMB", "multiprocessorCount")


@pytest.mark.parametrize("blank", [0, 2**32 - 1, 2**64 - 1])
def test_implausible_attributes_are_unknown(blank: int):
    driver = Driver(gpu("a", SMALL))
    real = driver.library.nvmlDeviceGetAttributes_v2

    def attributes(handle, record):
        code = real(handle, record)
        for name in ATTRIBUTES:
            setattr(record._obj, name, blank)
        return code

    driver.library.nvmlDeviceGetAttributes_v2 = attributes
    [mig] = driver.read().mig
    assert (mig.compute_slices, mig.instance_slices, mig.memory_slices) == (None, None, None)
    assert (mig.multiprocessors, mig.profile, mig.fills_instance) == (None, "1g.2gb", False)


def test_facts_that_failed_are_asked_again():
    driver = Driver(gpu("a", SMALL))
    driver.fail("UNKNOWN", "nvmlDeviceGetAttributes_v2")
    [mig] = driver.read().mig
    assert (mig.instance_slices, mig.memory_slices, mig.profile) == (None, None, "1g.2gb")
    assert mig.memory is not None
    driver.recover()
    assert driver.read().mig[0].instance_slices == 1


def test_unsupported_calls_are_tried_again_after_a_new_layout():
    driver = Driver(gpu("a", SMALL))
    for asked in (1, 1):
        assert driver.read().utilization_percent is None
        assert driver.asked("nvmlDeviceGetUtilizationRates", "GPU-a") == asked
    driver.become(gpu("a", LARGE))
    driver.read()
    assert driver.asked("nvmlDeviceGetUtilizationRates", "GPU-a") == 2
    driver.become(gpu("a", mig={"enabled": False}))
    assert driver.read().utilization_percent == 0


def test_unsupported_calls_are_tried_again_after_mig_is_disabled():
    driver = Driver(gpu("a", mig={"enabled": True}))
    assert driver.read().utilization_percent is None
    driver.become(gpu("a", mig={"enabled": False}))
    assert driver.read().utilization_percent == 0


def test_unsupported_calls_are_remembered_by_mig_device():
    silent = [f"nvmlDeviceGetComputeRunningProcesses_{version}" for version in ("v2", "v3")]
    quiet = SMALL | {"unsupported": silent}
    driver = Driver(gpu("a", quiet, LARGE), host_processes=[process(41, "MIG-large")])
    for _ in range(2):
        devices = migs(driver.read())
    assert driver.asked("nvmlDeviceGetComputeRunningProcesses_v3", "MIG-small") == 1
    assert [process.pid for process in devices["MIG-large"].processes] == [41]
    driver.become(gpu("a", SMALL))
    assert driver.read().mig[0].processes == ()


def test_a_failing_reading_of_a_device_costs_that_reading():
    driver = Driver(gpu("a", SMALL, LARGE))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        driver.fail("NO_PERMISSION", function, "MIG-small")
    devices = migs(driver.read())
    assert devices["MIG-small"].memory is None
    assert (devices["MIG-small"].processes, devices["MIG-small"].memory_slices) == ((), 1)
    assert devices["MIG-large"].memory is not None
    assert {device for device, _, _ in driver.errors()} == {"GPU-a"}


def test_without_memory_of_the_gpu_memory_slices_are_unknown():
    driver = Driver(gpu("a", SMALL))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        refuse(driver, function, 4, {"GPU-a"})
    reading = driver.read()
    assert (reading.memory, reading.up) == (None, True)
    assert reading.mig[0].memory.total == 1856 * MIB
    assert (reading.mig[0].memory_slices, reading.mig[0].instance_slices) == (None, 1)


@pytest.mark.parametrize(
    ("max_slices", "board", "instance_mib", "slices"),
    [
        (7, "40 GiB", 4864, 1),
        (7, "40 GiB", 9856, 2),
        (7, "40 GiB", 40192, 8),
        (7, "80 GiB", 81051, 8),
        (7, "143771 MiB", 16384, 1),
        (7, "143771 MiB", 71424, 4),
        (4, "24 GiB", 5952, 1),
        (4, "24 GiB", 12032, 2),
        (4, "24 GiB", 24125, 4),
    ],
)
def test_memory_slices_are_counted_by_size(max_slices: int, board: str, instance_mib: int, slices: int):
    """A GPU of 7 compute slices has 8 of memory, one of 4, such as the A30, has 4."""
    cut = instance("a", gi=1, start=0, size=slices, memory_bytes=f"{instance_mib} MiB")
    sizes = {"memory_total": board, "memory_reserved": 0, "overhead": 0}
    driver = Driver(gpu("a", mig={"max_slices": max_slices, "instances": [cut]}, **sizes))
    reading = driver.read()
    assert (reading.mig_slices, reading.mig[0].memory_slices) == (max_slices, slices)
    assert driver.asked("nvmlDeviceGetMigDeviceHandleByIndex", "GPU-a") == max_slices


def test_compute_instances_of_one_gpu_instance_share_its_memory():
    halves = [
        LARGE | {"uuid": f"MIG-{ci}", "ci": ci, "profile": f"{size}c.3g.8gb", "multiprocessors": 14 * size}
        for ci, size in ((0, 1), (1, 2))
    ]
    driver = Driver(
        gpu("a", *halves, SMALL), host_processes=[process(41, "MIG-0"), process(42, "MIG-1", memory="2 GiB")]
    )
    devices = migs(driver.read())
    assert [devices[f"MIG-{ci}"].memory_shared for ci in (0, 1)] == [True, True]
    assert not devices["MIG-small"].memory_shared
    assert [devices[f"MIG-{ci}"].memory.used for ci in (0, 1)] == [3 * GIB, 3 * GIB]
    assert [devices[f"MIG-{ci}"].compute_slices for ci in (0, 1)] == [1, 2]
    assert [devices[f"MIG-{ci}"].instance_slices for ci in (0, 1)] == [3, 3]
    assert [[one.pid for one in devices[f"MIG-{ci}"].processes] for ci in (0, 1)] == [[41], [42]]


def test_uuids_of_old_drivers_are_kept():
    name = "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/7/0"
    assert list(migs(Driver(gpu("a", SMALL | {"uuid": name})).read())) == [name]


def test_mig_memory_of_an_old_driver_lacks_reserved():
    driver = Driver(gpu("a", LARGE), missing=["nvmlDeviceGetMemoryInfo_v2"])
    assert driver.read().mig[0].memory == Memory(
        total=7424 * MIB, used=16 * MIB, free=7408 * MIB, reserved=None
    )
