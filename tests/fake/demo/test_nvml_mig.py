"""The fake driver on GPUs with MIG, through the unmodified binding."""

import ctypes

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, NOT_FOUND, NOT_SUPPORTED, code_of, gpu_at, mig_at
from tests.fake.demo.making import MIB, Bench, gpu, instance, made, pod

LAYOUT = {
    "instances": [
        instance(7, 0, overhead="8 MiB"),
        instance(2, 4, profile="3g.8gb", memory_bytes="8 GiB", size=4, multiprocessors=42, reserved="16 MiB"),
    ]
}
PODS = [
    pod("small", {"device": "{gpu:0/mig:0}", "pid": 101, "memory": "1 GiB", "load": {"high": 70}}),
    pod("large", {"device": "{gpu:0/mig:1}", "pid": 102, "memory": "3 GiB", "load": {"high": 70}}),
]


@pytest.fixture
def node(bench) -> Bench:
    """One GPU partitioned into 1g and 3g, a process on process."""
    return bench(made(gpus=[gpu(mig=LAYOUT, fan=20)], pods=PODS))


def test_mig_devices_have_the_indexes_of_their_placement(node):
    assert pynvml.nvmlDeviceGetMigMode(gpu_at()) == [1, 1]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu_at()) == 7
    uuids = []
    for slot in range(7):
        try:
            uuids.append((slot, pynvml.nvmlDeviceGetUUID(mig_at(slot))))
        except pynvml.NVMLError_NotFound:
            continue
    mig = node.scenario.gpus[0].mig
    assert mig is not None
    assert uuids == [(0, mig.instances[0].uuid), (4, mig.instances[1].uuid)]
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu_at(), 7) == INVALID


@pytest.mark.usefixtures("node")
def test_a_mig_device_has_its_profile_ids_and_slices():
    handle = mig_at(4)
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA Test MIG 3g.8gb"
    assert pynvml.nvmlDeviceGetGpuInstanceId(handle) == 2
    assert pynvml.nvmlDeviceGetComputeInstanceId(handle) == 0
    attributes = pynvml.nvmlDeviceGetAttributes(handle)
    assert attributes.multiprocessorCount == 42
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    assert (attributes.sharedCopyEngineCount, attributes.sharedDecoderCount) == (3, 1)
    assert (attributes.sharedEncoderCount, attributes.sharedJpegCount, attributes.sharedOfaCount) == (0, 0, 0)
    assert attributes.memorySizeMB == 8192


@pytest.mark.parametrize(
    ("architecture", "changes", "engines"),
    [
        (7, {"profile": "1g.2gb"}, (1, 0, 0, 0)),
        (7, {"profile": "1g.2gb+me"}, (1, 1, 1, 1)),
        (7, {"profile": "7g.8gb", "size": 8}, (7, 3, 1, 1)),
        (9, {"profile": "2g.4gb", "size": 2}, (2, 2, 2, 0)),
        (9, {"profile": "2g.4gb", "size": 2, "engines": {"copy": 5}}, (5, 0, 0, 0)),
    ],
)
def test_an_instance_has_the_engines_of_its_profile(bench, architecture, changes, engines):
    """Hopper has some for each slice; before, some come with all slices, or on request."""
    bench(made(gpus=[gpu(architecture=architecture, mig={"instances": [instance(1, 0, **changes)]})]))
    attributes = pynvml.nvmlDeviceGetAttributes(mig_at(0))
    assert (
        attributes.sharedCopyEngineCount,
        attributes.sharedDecoderCount,
        attributes.sharedJpegCount,
        attributes.sharedOfaCount,
    ) == engines


def test_a_gpu_instance_has_its_profile_and_placement(node):
    instance_handle = pynvml.nvmlDeviceGetGpuInstanceById(gpu_at(), 2)
    info = pynvml.nvmlGpuInstanceGetInfo(instance_handle)
    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 9, 4, 4)
    assert pynvml.nvmlDeviceGetUUID(info.device) == node.scenario.gpus[0].uuid
    assert code_of(pynvml.nvmlDeviceGetGpuInstanceById, gpu_at(), 9) == NOT_FOUND
    assert code_of(pynvml.nvmlGpuInstanceGetInfo, mig_at(4)) == INVALID
    assert code_of(pynvml.nvmlDeviceGetUUID, instance_handle) == INVALID


@pytest.mark.parametrize(
    ("board", "changes", "profile"),
    [
        ({}, {"profile": "1g.5gb"}, 19),
        ({}, {"profile": "1g.5gb+me"}, 20),
        ({}, {"profile": "1g.10gb", "size": 2}, 15),
        ({"max_slices": 4}, {"profile": "1g.6gb"}, 14),
        ({"max_slices": 4}, {"profile": "2g.12gb+me", "size": 2}, 6),
        ({}, {"profile": "1g.5gb", "gi_profile": 47}, 47),
    ],
)
def test_profile_numbers_are_those_of_nvidia_smi_or_the_scenarios(bench, board, changes, profile):
    """For boards of seven and of four slices."""
    bench(made(gpus=[gpu(mig={**board, "instances": [instance(1, 0, **changes)]})]))
    info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(gpu_at(), 1))
    assert info.profileId == profile


def test_memory_of_instances_adds_up_to_the_parents(node):
    """Plus the parent's own overhead."""
    version = pynvml.nvmlMemory_v2
    infos = [pynvml.nvmlDeviceGetMemoryInfo(mig_at(slot), version=version) for slot in (0, 4)]
    whole = pynvml.nvmlDeviceGetMemoryInfo(gpu_at(), version=version)
    assert [info.used for info in infos] == [(1024 + 8) * MIB, 3072 * MIB]
    assert [info.reserved for info in infos] == [0, 16 * MIB]
    assert all(info.total == info.used + info.free + info.reserved for info in [*infos, whole])
    assert whole.used == sum(info.used for info in infos) + 100 * MIB
    assert whole.reserved == sum(info.reserved for info in infos) + 512 * MIB
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(mig_at(0)).bar1Total == 256 * MIB
    assert node.gpus[0].used == whole.used


def test_with_mig_the_gpu_has_no_utilization_and_no_repairs(node):
    assert node.gpus[0].gpu.mig_enabled
    rates = (
        "UtilizationRates",
        "EncoderUtilization",
        "DecoderUtilization",
        "JpgUtilization",
        "OfaUtilization",
    )
    for name in (*rates, "EncoderStats", "RowRemapperHistogram", "ComputeMode"):
        assert code_of(getattr(pynvml, f"nvmlDeviceGet{name}"), gpu_at()) == NOT_SUPPORTED, name


NOT_OF_A_MIG_DEVICE = {
    "UtilizationRates": (),
    "EncoderUtilization": (),
    "DecoderUtilization": (),
    "JpgUtilization": (),
    "EncoderStats": (),
    "ProcessUtilization": (0,),
    "PowerUsage": (),
    "EnforcedPowerLimit": (),
    "PowerManagementDefaultLimit": (),
    "PowerManagementLimitConstraints": (),
    "TotalEnergyConsumption": (),
    "Temperature": (0,),
    "TemperatureThreshold": (0,),
    "FanSpeed": (),
    "ClockInfo": (0,),
    "MaxClockInfo": (0,),
    "ApplicationsClock": (0,),
    "CurrentClocksEventReasons": (),
    "PerformanceState": (),
    "PcieReplayCounter": (),
    "CurrPcieLinkGeneration": (),
    "PcieThroughput": (0,),
    "NvLinkState": (0,),
    "FieldValues": ([83],),
    "EccMode": (),
    "PersistenceMode": (),
    "AccountingMode": (),
    "CpuAffinity": (2,),
    "VbiosVersion": (),
    "MigMode": (),
}


@pytest.mark.usefixtures("node")
def test_a_mig_device_has_no_power_temperature_clocks_or_utilization():
    for name, arguments in NOT_OF_A_MIG_DEVICE.items():
        assert code_of(getattr(pynvml, f"nvmlDeviceGet{name}"), mig_at(0), *arguments) == NOT_SUPPORTED, name
    assert code_of(pynvml.nvmlDeviceGetArchitecture, mig_at(0)) == INVALID


def test_with_mig_the_gpu_keeps_power_clocks_and_architecture(node):
    """It has no instance id."""
    assert pynvml.nvmlDeviceGetPowerUsage(gpu_at()) > 20_000
    assert pynvml.nvmlDeviceGetArchitecture(gpu_at()) == 7
    assert pynvml.nvmlDeviceGetClockInfo(gpu_at(), pynvml.NVML_CLOCK_SM) > 210
    assert pynvml.nvmlDeviceGetComputeMode(mig_at(0)) == pynvml.NVML_COMPUTEMODE_DEFAULT
    for name in ("GpuInstanceId", "ComputeInstanceId", "Attributes"):
        assert code_of(getattr(pynvml, f"nvmlDeviceGet{name}"), gpu_at()) == INVALID
    assert code_of(pynvml.nvmlDeviceGetProcessUtilization, gpu_at(), 0) == NOT_SUPPORTED
    assert node.gpus[0].power_mw == pynvml.nvmlDeviceGetPowerUsage(gpu_at())


def test_power_counts_an_instance_by_its_slices(node):
    """One slice and three slices of seven, each at 70 %, are 40 % of the GPU."""
    assert node.gpus[0].power_mw == 20_000 + 40_000


def test_the_parent_lists_all_processes_and_a_mig_device_its_own(node):
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())
    assert [(process.pid, process.gpuInstanceId, process.computeInstanceId) for process in listed] == [
        (101, 7, 0),
        (102, 2, 0),
    ]
    own = pynvml.nvmlDeviceGetComputeRunningProcesses(mig_at(4))
    assert [(process.pid, process.usedGpuMemory) for process in own] == [(102, 3 * 1024 * MIB)]
    assert node.nvml.calls["nvmlDeviceGetComputeRunningProcesses_v3", node.scenario.gpus[0].uuid] == 2


def test_compute_instances_of_one_gpu_instance_share_its_memory(bench):
    """Each has its own processes and SMs."""
    cuts = [
        instance(
            1,
            0,
            ci=ci,
            profile=f"{slices}c.3g.8gb",
            memory_bytes="8 GiB",
            size=4,
            multiprocessors=14 * slices,
        )
        for ci, slices in ((0, 1), (1, 2))
    ]
    pods = [
        pod("a", {"device": "{gpu:0/mig:0}", "pid": 201, "memory": "1 GiB"}),
        pod("b", {"device": "{gpu:0/mig:1}", "pid": 202, "memory": "2 GiB"}),
    ]
    bench(made(gpus=[gpu(mig={"instances": cuts})], pods=pods))
    for slot, pid, slices in ((0, 201, 1), (1, 202, 2)):
        assert pynvml.nvmlDeviceGetMemoryInfo(mig_at(slot)).used == 3 * 1024 * MIB
        assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(mig_at(slot))] == [pid]
        attributes = pynvml.nvmlDeviceGetAttributes(mig_at(slot))
        assert (attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount) == (slices, 3)
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu_at()).used == (3 * 1024 + 100 + 512) * MIB


def test_a_new_layout_invalidates_handles_and_ends_processes(bench):
    """The handle of a device that stays works."""
    kept = LAYOUT["instances"][0]
    fault = {"kind": "mig_layout", "at": 10, "for": 10, "gpu": 0, "instances": [kept, instance(2, 4)]}
    node = bench(made(gpus=[gpu(mig=LAYOUT)], pods=PODS, faults=[fault]))
    stays, goes = mig_at(0), mig_at(4)
    uuid = pynvml.nvmlDeviceGetUUID(goes)
    node.step(10)
    assert pynvml.nvmlDeviceGetGpuInstanceId(stays) == 7
    for name in ("UUID", "MemoryInfo", "GpuInstanceId", "ComputeRunningProcesses"):
        assert code_of(getattr(pynvml, f"nvmlDeviceGet{name}"), goes) == INVALID
    assert pynvml.nvmlDeviceGetName(mig_at(4)) == "NVIDIA Test MIG 1g.2gb"
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(mig_at(4)) == []
    node.step(20)
    assert pynvml.nvmlDeviceGetUUID(mig_at(4)) == uuid
    assert code_of(pynvml.nvmlDeviceGetUUID, goes) == INVALID


def test_with_mig_disabled_a_gpu_is_a_whole_one(bench):
    bench(made(gpus=[gpu(mig={"enabled": False})]))
    assert pynvml.nvmlDeviceGetMigMode(gpu_at()) == [0, 0]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu_at()) == 0
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu_at(), 0) == NOT_FOUND
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu_at()).gpu == 0


def test_no_two_devices_share_a_pointer(node):
    pointers = {ctypes.cast(handle, ctypes.c_void_p).value for handle in (gpu_at(), mig_at(0), mig_at(4))}
    assert len(pointers) == 3
    assert None not in pointers
    assert len(node.nvml.board.by_address) == 3
