"""Nodes with a fault, one for each finding of the doctor."""

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario, catalog
from exporter.poll.poller import Poller
from tests.core.commands.doctor_bench import Sick
from tests.core.commands.limit_nodes import limit_nodes
from tests.core.hardware.amd.tree import Tree, unreadable
from tests.core.kubernetes.api import api_server
from tests.fake.demo.making import gpu, instance, made, pod
from tests.waiting import wait_until_async

GPU, SECOND = (f"GPU-{number * 11111111}-2222-4333-8444-555555555555" for number in (1, 2))
INIT = ("nvmlInitWithFlags", "nvmlInit_v2")
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")
MEMORY = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
WAIT = "nvmlEventSetWait_v2"


def one_gpu(*faults: dict[str, Any], **parts: Any) -> Scenario:
    """Return a node with one GPU, which a pod holds and uses."""
    train = pod("train", {"device": GPU, "memory": "1 GiB"}, devices={"nvidia.com/gpu": [GPU]})
    usual = {"gpus": [gpu(uuid=GPU)], "pods": [train], "faults": faults, "identity": "pods_api"}
    return made(**usual | parts)


def failing(code: str, *functions: str, device: str | None = None) -> tuple[dict[str, Any], ...]:
    """Return faults that make calls of the driver fail."""
    fault = {"kind": "nvml_error", "code": code, "device": device}
    return tuple(fault | {"function": function} for function in functions)


def driver(code: str, **changes: Any) -> Sick:
    """Return a node whose driver cannot be opened."""
    return Sick(name="driver", scenario=one_gpu(*failing(code, *INIT), pods=[]), **changes)


def kubelet(*faults: dict[str, Any], **changes: Any) -> Sick:
    """Return a node whose kubelet does not list allocations."""
    return Sick(name="pod-resources", scenario=one_gpu(*faults), **changes)


def amd(name: str, root: Path, spoil: Callable[[Tree], object]) -> Sick:
    """Return a node with AMD GPUs, whose files are below ``root``."""
    settings = {"sys_root": root / "sys", "proc_root": root / "proc"}
    return Sick(name=name, scenario=made(gpus=[]), settings=settings, spoil=lambda _node: spoil(Tree(root)))


def _dead(path: Path) -> None:
    """Make the socket of a program that has ended."""
    with socket(AF_UNIX) as bound:
        bound.bind(str(path))


def _mig(*faults: dict[str, Any]) -> Scenario:
    cut = gpu(uuid=GPU, architecture=7, mig={"instances": [instance(7, 0)]})
    return one_gpu(*faults, gpus=[cut], pods=[])


async def _released(node: FakeNode, poller: Poller) -> None:
    """Request the release of the driver while a call hangs."""
    await wait_until_async(lambda: node.nvml.calls[WAIT, ""] == 1)
    poller._sources.release.release()
    await poller.poll()


async def _unplugged(_node: FakeNode, poller: Poller) -> None:
    """Make the files of a known card unreadable."""
    for name in ("vendor", "device", "unique_id", "gpu_busy_percent", "mem_info_vram_total"):
        for path in poller.settings.sys_root.rglob(name):
            if path.is_file():
                unreadable(path)
    await poller.poll()


async def api_fails(_node: FakeNode, poller: Poller) -> None:
    """Poll again when the failure of the API server is known."""
    await wait_until_async(lambda: poller._sources.cluster.failures)
    await poller.poll()


async def _later(node: FakeNode, poller: Poller) -> None:
    """Poll again a second later."""
    await node.step(1)
    await poller.poll()


async def _hanging(node: FakeNode, poller: Poller) -> None:
    """Poll again while a call hangs for good."""
    poller._budget = poller._budget.patient(0.5)
    await _later(node, poller)


def _no_processes(node: FakeNode) -> None:
    for folder in node.paths.proc_root.iterdir():
        if folder.name.isdecimal() and folder.name not in ("1", str(os.getpid())):
            shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _damaged(node: FakeNode) -> None:
    for cache in node.paths.hami_root.rglob("*.cache"):
        cache.write_bytes(b"no cache")


def _two_gpus() -> list[dict[str, Any]]:
    return [gpu(uuid=GPU), gpu(uuid=SECOND)]


def _unidentified() -> Scenario:
    """Return a node with two GPUs, the second without a UUID."""
    return one_gpu(*failing("NO_PERMISSION", "nvmlDeviceGetUUID", device=SECOND), gpus=_two_gpus())


def _two_containers() -> Scenario:
    """Return a pod with two containers, each with a replica of the same GPU, known by name only."""
    both = [
        {
            "name": name,
            "processes": [{"device": GPU, "memory": "1 GiB"}],
            "devices": {"nvidia.com/gpu": [f"{GPU}::{number}"]},
        }
        for number, name in enumerate(("one", "other"))
    ]
    return one_gpu(pods=[{"namespace": "ml", "name": "train", "containers": both}], identity="pod_logs")


def _replicas(*unhealthy: int, held: int = 0) -> Scenario:
    """Return a GPU with two replicas, one of which is held; these numbers are unhealthy."""
    holder = pod("train", {"memory": "1 GiB"}, devices={"nvidia.com/gpu": [f"{GPU}::{held}"]})
    offers = [{"resource": "nvidia.com/gpu", "of": "gpus", "replicas": 2}]
    ids = [f"{GPU}::{number}" for number in unhealthy]
    fault = {"kind": "unhealthy", "resource": "nvidia.com/gpu", "devices": ids}
    return one_gpu(*([fault] if ids else []), pods=[holder], offers=offers)


DRIVER = "dra.example.com"


def _hidden() -> Scenario:
    other = "GPU-99999999-2222-4333-8444-555555555555"
    return one_gpu(pods=[pod("train", devices={"nvidia.com/gpu": [other]})])


def _renamed() -> Scenario:
    """Return a node whose device plugin has names of its own, for its resource and for its devices."""
    return one_gpu(pods=[pod("train", devices={"example.com/small": ["part-0"]})], offers=[])


def _held_twice() -> Scenario:
    """Return a node whose kubelet gave one GPU to two pods."""
    return one_gpu(pods=[pod(name, devices={"nvidia.com/gpu": [GPU]}) for name in ("train", "eval")])


def nodes(tmp_path: Path) -> Mapping[str, Callable[[], Sick]]:
    """Return functions that make the nodes, by the code of the finding."""
    nothing = tmp_path / "nothing"
    # In MIG mode and with a hanging call the scenarios differ; the rest is one GPU that works.
    return {
        "library-not-mounted": lambda: Sick(
            name="driver", scenario=one_gpu(pods=[]), settings={"nvml_library": None}
        ),
        "library-unusable": lambda: Sick(
            name="driver", scenario=one_gpu(pods=[]), settings={"nvml_library": nothing / "libnvidia-ml.so.1"}
        ),
        "driver-not-installed": lambda: Sick(
            name="driver", scenario=one_gpu(pods=[]), settings={"nvml_library": None}, module=False
        ),
        "library-too-old": lambda: driver("FUNCTION_NOT_FOUND"),
        "driver-not-loaded": lambda: driver("DRIVER_NOT_LOADED", module=False),
        "device-nodes-missing": lambda: driver("DRIVER_NOT_LOADED"),
        "device-nodes-revoked": lambda: driver("UNKNOWN"),
        "driver-mismatch": lambda: driver("LIB_RM_VERSION_MISMATCH"),
        "driver-denies": lambda: driver("NO_PERMISSION"),
        "driver-fails": lambda: driver("GPU_IS_LOST"),
        "driver-hangs": lambda: Sick(
            name="driver", scenario=one_gpu({"kind": "nvml_hang", "function": INIT[0]}, pods=[]), within=0.3
        ),
        "driver-not-released": lambda: Sick(
            name="driver", scenario=one_gpu({"kind": "nvml_hang", "function": WAIT}), also=_released
        ),
        "no-gpu-visible": lambda: Sick(name="driver", scenario=one_gpu(gpus=[], pods=[])),
        "gpu-unidentified": lambda: Sick(name="driver", scenario=_unidentified()),
        "dcgm-silent": lambda: Sick(
            name="dcgm-exporter",
            scenario=one_gpu(),
            settings={"dcgm_exporter_url": "http://127.0.0.1:9/metrics"},
        ),
        "driver-released": lambda: Sick(
            name="driver", scenario=one_gpu(), settings={"driver_release_file": tmp_path}
        ),
        "gpu-behind-driver": lambda: Sick(
            name="GPU 0", scenario=one_gpu({"kind": "driver_reload", "at": 1}), also=_later
        ),
        "gpu-hangs": lambda: Sick(
            name="GPU 0",
            scenario=one_gpu({"kind": "nvml_hang", "device": GPU, "at": 1}),
            settings={"stale_after": 0.4},
            also=_hanging,
        ),
        "gpu-lost": lambda: Sick(
            name="GPU 0", scenario=one_gpu(*failing("GPU_IS_LOST", MEMORY[0], device=GPU))
        ),
        "gpu-needs-reset": lambda: Sick(
            name="GPU 0",
            scenario=one_gpu({"kind": "nvml_error", "code": "RESET_REQUIRED", "device": GPU, "at": 1}),
            also=_later,
        ),
        "gpu-unhealthy": lambda: Sick(
            name="GPU 0 health",
            scenario=one_gpu(gpus=[gpu(uuid=GPU, health={"row_remap_pending": True})]),
        ),
        "gpu-unread": lambda: Sick(name="GPU 0", scenario=one_gpu(*failing("UNKNOWN", *MEMORY, device=GPU))),
        "mig-unread": lambda: Sick(
            name="GPU 0 MIG", scenario=_mig(*failing("NO_PERMISSION", "nvmlDeviceGetMigDeviceHandleByIndex"))
        ),
        "readings-denied": lambda: Sick(
            name="BAR1",
            scenario=one_gpu(
                *failing("NO_PERMISSION", "nvmlDeviceGetBAR1MemoryInfo", device=SECOND), gpus=_two_gpus()
            ),
        ),
        "readings-fail": lambda: Sick(
            name="BAR1", scenario=one_gpu(*failing("UNKNOWN", "nvmlDeviceGetBAR1MemoryInfo"))
        ),
        "kubelet-socket-absent": lambda: kubelet(settings={"pod_resources_socket": nothing / "kubelet.sock"}),
        "kubelet-down": lambda: kubelet(
            settings={"pod_resources_socket": tmp_path / "dead.sock"},
            spoil=lambda _node: _dead(tmp_path / "dead.sock"),
        ),
        "kubelet-slow": lambda: kubelet({"kind": "kubelet_hang"}, within=0.3),
        "kubelet-filling": lambda: kubelet({"kind": "kubelet_filling"}),
        "slices-unhealthy": lambda: Sick(name="slices", scenario=_replicas(0)),
        "device-unhealthy": lambda: Sick(name="device health", scenario=catalog.load("dra-only")),
        "slices-unknown": lambda: Sick(name="slices", scenario=_replicas(1, held=1)),
        "resource-not-offered": lambda: Sick(
            name="offered resources", scenario=replace(_replicas(), offers=())
        ),
        "kubelet-busy": lambda: kubelet({"kind": "kubelet_rate_limit"}),
        "ids-hidden": lambda: Sick(name="device ids", scenario=_hidden()),
        "ids-unplaced": lambda: Sick(name="ids without a GPU", scenario=catalog.load("gpu-manager")),
        "claims-unknown": lambda: Sick(
            name="resource claims",
            scenario=one_gpu(pods=[pod("train", claims=[{"driver": DRIVER, "device": "a", "name": "c"}])]),
        ),
        "devices-contested": lambda: Sick(name="devices held twice", scenario=_held_twice()),
        "host-pid-missing": lambda: Sick(name="processes", scenario=catalog.load("gke")),
        "proc-root-wrong": lambda: Sick(
            name="processes", scenario=one_gpu(), settings={"proc_root": tmp_path}
        ),
        "processes-hidden": lambda: Sick(name="processes", scenario=one_gpu(), spoil=_no_processes),
        "process-lists-fail": lambda: Sick(
            name="processes", scenario=one_gpu(*failing("UNKNOWN", *PROCESSES))
        ),
        "pod-names-missing": lambda: Sick(
            name="pod names", scenario=one_gpu(identity="pod_logs"), settings={"pod_log_dir": nothing}
        ),
        "pod-names-of-others": lambda: Sick(
            name="pod names",
            scenario=one_gpu(identity="pod_logs"),
            spoil=lambda n: _empty(n.paths.pod_log_dir),
        ),
        **limit_nodes(),
        "container-ids-unknown": lambda: Sick(name="pod names", scenario=_two_containers()),
        "api-not-configured": lambda: Sick(
            name="Kubernetes API", scenario=one_gpu(), settings={"kubernetes_api": "on"}, also=api_fails
        ),
        "pod-annotations-unreadable": lambda: Sick(
            name="sharing by hami", scenario=replace(catalog.load("hami"), identity="pod_logs")
        ),
        "files-not-here": lambda: Sick(
            name="files of hami", scenario=catalog.load("hami"), settings={"hami_root": nothing}
        ),
        "files-unreadable": lambda: Sick(name="files of hami", scenario=catalog.load("hami"), spoil=_damaged),
        "jobs-unreadable": lambda: Sick(
            name="jobs of a batch system", scenario=one_gpu(), settings={"job_mapping_dir": nothing}
        ),
        "series-unmatched": lambda: Sick(
            name="series by name",
            scenario=one_gpu(),
            settings={"metric_denylist": (re.compile("gpuslice_gpu_fans"),)},
        ),
        "pod-labels-unreadable": lambda: Sick(
            name="pod labels",
            scenario=one_gpu(identity="pod_logs"),
            settings={"pod_labels": (re.compile("team"),)},
        ),
        "resources-unmatched": lambda: Sick(
            name="resources by name",
            scenario=_renamed(),
            settings={"resource_pattern": (re.compile("example.com/big"),)},
        ),
        "resources-not-here": lambda: Sick(
            name="resources by name",
            scenario=one_gpu(),
            settings={"resource_pattern": (re.compile("example.com/big"),)},
        ),
        "throughput-not-here": lambda: Sick(
            name="requested PCIe throughput",
            scenario=one_gpu(*failing("NOT_SUPPORTED", "nvmlDeviceGetPcieThroughput")),
            settings={"pcie_throughput": True, "metric_set": "standard"},
        ),
        "throughput-not-shown": lambda: Sick(
            name="requested PCIe throughput", scenario=one_gpu(), settings={"pcie_throughput": True}
        ),
        "release-file-unreadable": lambda: Sick(
            name="release file", scenario=one_gpu(), settings={"driver_release_file": nothing / "release"}
        ),
        "amd-lost": lambda: replace(amd("GPU 0", tmp_path / "amd", Tree.card), also=_unplugged),
        "amd-suspended": lambda: amd(
            "GPU 0", tmp_path / "amd", lambda tree: tree.card(power__runtime_status="suspended")
        ),
        "amd-unread": lambda: amd("GPU 0 partitions", tmp_path / "amd", _partitions),
    }


def _partitions(tree: Tree) -> None:
    tree.partitions(8)
    for number in range(3, 9):
        unreadable(tree.kfd / f"topology/nodes/{number}/gpu_id")


@contextlib.asynccontextmanager
async def refusing(tmp_path: Path, status: int) -> AsyncIterator[Sick]:
    """Yield a node whose API server refuses everything with that status."""
    async with api_server() as api:
        api.pods.refuse = status
        settings = {"kubeconfig": api.kubeconfig(tmp_path / "config")}
        yield Sick(name="Kubernetes API", scenario=one_gpu(), settings=settings, also=api_fails)
