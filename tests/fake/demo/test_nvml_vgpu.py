"""vGPUs on the fake driver: the host's list and utilization, the guest's license, and mistakes."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.demo.node import FakeNode
from exporter.demo.scenario import catalog
from exporter.documents import DocumentError
from exporter.model import ContainerRef, DeviceKey, VgpuReading
from exporter.nvml.driver.calls import Calls
from exporter.nvml.vgpu import VgpuReader
from exporter.sharing.kubevirt import host_devices
from tests.core.attribution.build import held
from tests.core.hardware.making import ticking
from tests.core.sharing.build import allocations
from tests.fake.demo.driver import INVALID, NOT_FOUND, NOT_SUPPORTED, code_of, gpu_at
from tests.fake.demo.making import MIB, WALL, gpu, instance, made
from tests.truth import truth_of

MDEV = "c73f1fa6-489e-4834-9476-d70dabd98c40"
OTHER = "3b356d38-854e-48be-b376-00c72c7d119c"
SECOND = 1_000_000
START = int(WALL) * SECOND


def vgpu(mdev: str = MDEV, pid: int = 41, **changes: Any) -> dict[str, Any]:
    """Return a vGPU of 4 GiB."""
    return {"mdev_uuid": mdev, "type": "NVIDIA Test-4Q", "memory_bytes": "4 GiB", "pid": pid} | changes


def manager(pid: int = 41, device: str = "{gpu:0}", **changes: Any) -> dict[str, Any]:
    """Return the host process of a vGPU."""
    return {"pid": pid, "command": "vgpu", "device": device, "memory": "1 GiB"} | changes


def host(*vgpus: dict[str, Any], **parts: Any) -> Any:
    """Return a scenario of one GPU that hosts these vGPUs."""
    board = gpu(virtualization="vgpu_host", vgpus=list(vgpus), **parts.pop("board", {}))
    return made(gpus=[board], **({"host_processes": [manager()]} | parts))


def utilization(last_seen: int) -> list[tuple[int, int]]:
    """Return (percent, seconds after the start) of every vGPU."""
    samples = pynvml.nvmlDeviceGetVgpuUtilization(gpu_at(), last_seen)
    return [(sample.smUtil.uiVal, (sample.timeStamp - START) // SECOND) for sample in samples]


def read() -> dict[str, Any]:
    """Read the GPU as the exporter does."""
    return VgpuReader(ticking()).read(Calls(), "", gpu_at())


def test_a_driver_that_answers_the_newer_call_only_meters_vgpus(bench):
    """Both calls return the same samples; the other one is asked once."""
    older, newer = "nvmlDeviceGetVgpuUtilization", "nvmlDeviceGetVgpuInstancesUtilizationInfo"
    processes = [manager(41, load={"high": 30}), manager(42)]
    vgpus = vgpu(), vgpu(OTHER, 42)
    bench(host(*vgpus, host_processes=processes))
    samples = pynvml.nvmlDeviceGetVgpuInstancesUtilizationInfo(gpu_at(), 0)
    assert [(sample.smUtil.uiVal, (sample.timeStamp - START) // SECOND) for sample in samples] == utilization(
        0
    )
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetVgpuInstancesUtilizationInfo(gpu_at(), START)
    expected = read()["vgpus"]
    assert sorted(one.sm_percent for one in expected) == [0, 30]
    for unsupported in (older, newer):
        node = bench(host(*vgpus, host_processes=processes, board={"unsupported": [unsupported]}))
        calls = Calls()
        for _ in range(2):
            assert VgpuReader(ticking()).read(calls, "", gpu_at())["vgpus"] == expected
        assert node.nvml.calls[unsupported, node.nvml.board.gpus[0].spec.uuid] == (unsupported == older)


def test_the_exporter_reads_every_running_vgpu(bench):
    """Type, size, use, machine and license, through the real binding."""
    processes = [manager(41, load={"high": 30}), manager(42, memory="6 MiB")]
    bench(
        host(
            vgpu(uuid="v1", vm_id="m1"), vgpu(OTHER, 42, uuid="v2", licensed=False), host_processes=processes
        )
    )
    first, second = read()["vgpus"]
    assert first == VgpuReading(
        uuid="v1",
        mdev_uuid=MDEV,
        vm_id="m1",
        type_name="NVIDIA Test-4Q",
        memory_total=4096 * MIB,
        memory_used=1024 * MIB,
        sm_percent=30,
        memory_percent=15,
        encoder_percent=3,
        decoder_percent=3,
        licensed=True,
    )
    assert (second.sm_percent, second.memory_used, second.licensed) == (0, 6 * MIB, False)


def test_more_than_four_gibibytes_overflow_the_variable_of_the_binding(bench):
    """The exporter reads them all."""
    bench(host(vgpu(), host_processes=[manager(memory="9 GiB")]))
    (number,) = pynvml.nvmlDeviceGetActiveVgpus(gpu_at())
    assert pynvml.nvmlVgpuInstanceGetFbUsage(number) == 1024 * MIB
    assert read()["vgpus"][0].memory_used == 9 * 1024 * MIB


def test_a_vgpu_exists_while_its_process_runs(bench):
    """Its mediated device exists before and after."""
    ends = {"kind": "process_exit", "at": 5, "for": 5, "pid": 41}
    node = bench(host(vgpu(), vgpu(OTHER, 0), faults=[ends]))
    seen = []
    for t in (0, 5, 10):
        node.step(t)
        seen.append([running.mdev_uuid for running in read()["vgpus"]])
    assert seen == [[MDEV], [], [MDEV]]


def test_a_vgpu_that_ended_is_not_found(bench):
    """A machine may end between the list and the call."""
    node = bench(host(vgpu(), faults=[{"kind": "process_exit", "at": 5, "pid": 41}]))
    (number,) = pynvml.nvmlDeviceGetActiveVgpus(gpu_at())
    kind = pynvml.nvmlVgpuInstanceGetType(number)
    node.step(5)
    assert code_of(pynvml.nvmlVgpuInstanceGetUUID, number) == NOT_FOUND
    assert pynvml.nvmlVgpuTypeGetName(kind) == "NVIDIA Test-4Q"
    assert code_of(pynvml.nvmlVgpuTypeGetName, kind + 1) == INVALID


def test_every_vgpu_has_a_sample_and_only_newer_ones_count(bench):
    processes = [manager(41, load={"high": 20}), manager(42)]
    node = bench(host(vgpu(), vgpu(OTHER, 42), host_processes=processes))
    assert utilization(0) == [(20, 0), (0, 0)]
    assert code_of(pynvml.nvmlDeviceGetVgpuUtilization, gpu_at(), START) == NOT_FOUND
    node.step(5)
    assert utilization(START) == [(20, 5), (0, 5)]


def test_a_host_without_vgpus_lists_none_and_has_no_samples(bench):
    """A GPU that cannot host vGPUs refuses the call."""
    bench(host(host_processes=[]))
    assert pynvml.nvmlDeviceGetActiveVgpus(gpu_at()) == []
    assert pynvml.nvmlDeviceGetVgpuUtilization(gpu_at(), 0) == []
    bench(made())
    assert pynvml.nvmlDeviceGetVirtualizationMode(gpu_at()) == pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
    assert code_of(pynvml.nvmlDeviceGetActiveVgpus, gpu_at()) == NOT_SUPPORTED


def test_a_vgpu_inside_mig_has_its_instance_and_no_utilization(bench):
    board = {"mig": {"instances": [instance(3, 0)]}}
    bench(host(vgpu(), board=board, host_processes=[manager(device="{gpu:0/mig:0}")]))
    (inside,) = read()["vgpus"]
    assert (inside.gi, inside.sm_percent, inside.memory_used) == (3, None, 1024 * MIB)
    assert code_of(pynvml.nvmlDeviceGetVgpuUtilization, gpu_at(), 0) == NOT_SUPPORTED


@pytest.mark.parametrize(("expires", "timestamp"), [("2031-01-31T23:59:59", 1_927_670_399.0), ("", None)])
def test_a_guest_has_a_license_with_or_without_an_end(bench, expires, timestamp):
    board = gpu(virtualization="vgpu_guest", license={"product": "vWS", "expires": expires})
    bench(made(gpus=[board]))
    reading = read()
    assert (reading["virtualization"], reading["vgpus"]) == ("vgpu_guest", None)
    assert (reading["license"].product, reading["license"].licensed) == ("vWS", True)
    assert reading["license"].expires == timestamp


def test_a_guest_can_lack_licenses(bench):
    bench(made(gpus=[gpu(virtualization="vgpu_guest")]))
    assert read() == {"virtualization": "vgpu_guest", "license": None, "vgpus": None}


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ({"vgpus": [vgpu()]}, "gpus[0].virtualization: must be vgpu_host for a GPU with vGPUs, not none"),
        ({"vgpus": [vgpu("../../etc")]}, "gpus[0].vgpus[0].mdev_uuid: must be a UUID, not '../../etc'"),
        ({"vgpus": [vgpu(), vgpu(MDEV.upper(), 42)]}, "gpus[0].vgpus[1].mdev_uuid: is C73F1FA6-"),
        ({"license": {"product": "x", "expires": "never"}}, "gpus[0].license.expires: must look like"),
    ],
)
def test_an_impossible_vgpu_is_an_error_with_its_path(board, message):
    mode = {} if message.startswith("gpus[0].virtualization") else {"virtualization": "vgpu_host"}
    with pytest.raises(DocumentError) as caught:
        made(gpus=[gpu(**mode, **board)], host_processes=[manager()])
    assert message in str(caught.value)


def test_the_process_of_a_vgpu_must_be_on_its_gpu():
    boards = [gpu(virtualization="vgpu_host", vgpus=[vgpu()]), gpu()]
    with pytest.raises(DocumentError, match=r"gpus\[0\].vgpus\[0\].pid: host process 41 does not"):
        made(gpus=boards, host_processes=[manager(device="{gpu:1}")])


async def _node(name: str) -> tuple[Any, dict[str, str], Any]:
    async with FakeNode(catalog.load(name), clock=lambda: 0.0) as node:
        await node.step(0)
        ids = [device.mdev_uuid for board in node.scenario.gpus for device in board.vgpus]
        kubelet = allocations(held("vm", *ids, resource="nvidia.com/NVIDIA_A40-12Q"))
        root = Path(asdict(node.paths)["sys_root"])
        return truth_of(node), dict(host_devices(root, kubelet).vgpus), node.scenario


def test_the_truth_of_a_host():
    """The use of a vGPU belongs to its container; that of a machine outside Kubernetes is unattributed."""
    truth, mdevs, scenario = asyncio.run(_node("vgpu-host"))
    first, second = (board.uuid for board in scenario.gpus)
    busy = truth.containers[
        ContainerRef("desktops", "virt-launcher-cad-1-x7k2p", "compute"), DeviceKey(first)
    ]
    assert (busy.slices, busy.processes, busy.memory, busy.sm_percent) == (1, 0, 9200 * MIB, 25)
    waiting = truth.containers[
        ContainerRef("training", "virt-launcher-new-vm-m2t6h", "compute"), DeviceKey(second)
    ]
    assert (waiting.slices, waiting.memory) == (1, 0)
    assert truth.devices[DeviceKey(first)].unattributed == 300 * MIB
    assert truth.devices[DeviceKey(second)].unattributed == (300 + 17300) * MIB
    assert not truth.unresolved
    # The kernel knows all mediated devices, also those whose machine does not run.
    assert mdevs.keys() == {device.mdev_uuid for board in scenario.gpus for device in board.vgpus}
    assert set(mdevs.values()) == {board.pci_bus_id[4:].lower() for board in scenario.gpus}


def test_the_truth_of_a_guest_is_that_of_any_time_sliced_gpu():
    truth, mdevs, scenario = asyncio.run(_node("vgpu-guest"))
    key = DeviceKey(scenario.gpus[0].uuid)
    assert not mdevs
    assert {ref.pod: container.slices for (ref, _), container in truth.containers.items()} == {
        "ranker-0": 1,
        "lab-0": 1,
        "lab-1": 1,
    }
    assert truth.devices[key].memory_total == 24576 * MIB
