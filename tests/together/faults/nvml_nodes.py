"""The nodes under which calls of NVML fail: together their boards are asked all that NVML is asked.

All loads are constant, so that every number of a healthy board is known beforehand. Each board is the
witness of the other.
"""

from typing import Any

from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from tests.fake.demo.making import gpu, instance, made, node_of, pod

WHOLE, CUT = range(2)
"""The boards of ``new``, by their index."""
HOST, GUEST = range(2)
"""The boards of ``old``."""

MDEVS = ("c73f1fa6-489e-4834-9476-d70dabd98c40", "3b356d38-854e-48be-b376-00c72c7d119c")
PROFILES = ("3g.40gb", "1c.2g.20gb", "1c.2g.20gb", "1g.10gb")
IDLE = 3
"""The place of the MIG device without a holder."""
SHARED = "nvidia.com/gpu.shared"
# What the library of the old driver lacks, so that it is asked in older forms.
MISSING = (
    "nvmlInitWithFlags",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlVgpuInstanceGetLicenseInfo_v2",
)


def new() -> Scenario:
    """Make the node of a new driver: a GPU that two pods share, one with MIG devices, and an AMD GPU."""
    gpus = [
        _hopper(links=_linked(CUT), fan=30),
        _hopper(links=_linked(WHOLE), mig={"max_slices": 7, "instances": _cuts()}),
    ]
    pods = [
        pod("a", _process("3 GiB", 30), devices={SHARED: ["{gpu:0}::0"]}),
        pod("b", _process("2 GiB", 20), devices={SHARED: ["{gpu:0}::1"]}),
        *(
            pod(f"cut-{place}", _process("4 GiB", 40), devices={_mig(place): [f"{{gpu:1/mig:{place}}}"]})
            for place in range(IDLE)
        ),
        pod("amd", _process("1 GiB", 10), devices={"amd.com/gpu": ["{amd:0}"]}),
    ]
    offers = [
        {"resource": SHARED, "ids": [f"{{gpu:0}}::{replica}" for replica in range(3)]},
        {"resource": "nvidia.com/mig-{profile}", "of": "mig"},
        {"resource": "amd.com/gpu", "ids": ["{amd:0}"]},
    ]
    return made(node=node_of(580), gpus=gpus, amd=[_amd()], pods=pods, offers=offers)


def old() -> Scenario:
    """Make the node of an old driver: a GPU that runs vGPUs, and one that is itself a vGPU."""
    gpus = [
        gpu(architecture=5, memory_total="48 GiB", virtualization="vgpu_host", vgpus=_vgpus()),
        gpu(
            architecture=5, virtualization="vgpu_guest", license={"product": "NVIDIA Virtual Compute Server"}
        ),
    ]
    pods = [
        pod("vm", devices={"nvidia.com/GRID_A40-12Q": [MDEVS[0]]}),
        pod("guest", _process("1 GiB", 10), devices={"nvidia.com/gpu": ["{gpu:1}"]}),
    ]
    offers = [
        {"resource": "nvidia.com/GRID_A40-12Q", "ids": list(MDEVS)},
        {"resource": "nvidia.com/gpu", "ids": ["{gpu:1}"]},
    ]
    vms = [_process("6 GiB", 20, pid=7000 + place, device="{gpu:0}") for place in range(len(MDEVS))]
    parts = {"gpus": gpus, "pods": pods, "offers": offers, "host_processes": vms}
    return made(node=node_of(450), missing_functions=list(MISSING), **parts)


def _hopper(**changes: Any) -> dict[str, Any]:
    board = {"model": "NVIDIA H100 80GB HBM3", "architecture": 9, "memory_total": "80 GiB"}
    return gpu(**board, memory_temperature=True, **changes)


def _linked(other: int) -> dict[str, Any]:
    """Have two NVLinks to another GPU and one to a switch."""
    return {"nvlinks": 3, "to": {f"{{gpu:{other}}}": 2}, "switch": True}


def _cuts() -> list[dict[str, Any]]:
    """Cut a GPU into an instance that is whole, one that two compute instances share, and an idle one."""
    parts = {"memory_bytes": "30 GiB", "multiprocessors": 20}
    return [
        instance(1, 0, profile=PROFILES[0], size=4, **parts),
        instance(2, 4, profile=PROFILES[1], size=2, **parts),
        instance(2, 4, ci=1, profile=PROFILES[2], size=2, **parts),
        instance(3, 6, profile=PROFILES[3], memory_bytes="9 GiB", multiprocessors=14),
    ]


def _mig(place: int) -> str:
    return f"nvidia.com/mig-{PROFILES[place]}"


def _vgpus() -> list[dict[str, Any]]:
    return [
        {"mdev_uuid": mdev, "type": "GRID A40-12Q", "memory_bytes": "12 GiB", "pid": 7000 + place}
        for place, mdev in enumerate(MDEVS)
    ]


def _process(memory: str, load: int, **more: Any) -> dict[str, Any]:
    return {"memory": memory, "load": {"high": load}} | more


def _amd() -> dict[str, Any]:
    return {
        "model": "AMD Instinct MI210",
        "device": "0x740f",
        "architecture": "gfx90a",
        "compute_units": 104,
        "metrics": "1.3",
        "memory_total": "64 GiB",
        "power_idle_mw": 40000,
        "power_max_mw": 300000,
        "sclk_max": 1700,
        "mclk": 1600,
    }


def show_on_bus(node: FakeNode) -> None:
    """Have sysfs show the NVIDIA GPUs, too."""
    for board in node.scenario.gpus:
        folder = node.paths.sys_root / "bus/pci/devices" / board.pci_bus_id[4:]
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
