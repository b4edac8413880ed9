"""One cluster for all tests: a node with a whole GPU and one in eight replicas, our chart, and pods.

The chart is installed once for each source of pods: Kubernetes API, and kubelet (Pods API, from 1.37 on).
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.product.image.engine import require_engine
from tests.together.cluster import images, node
from tests.together.cluster.node import Node
from tests.together.cluster.plugin import Plugin
from tests.together.cluster.truth import Exporter, Holder, slices, tasks
from tests.tools import ROOT
from tests.waiting import wait_until

WHOLE, SHARED = "GPU-0a1b2c3d-0000-4000-8000-000000000001", "GPU-0a1b2c3d-0000-4000-8000-000000000002"
REPLICAS = tuple(f"{SHARED}::{number}" for number in range(8))
RESOURCES = {"nvidia.com/gpu": (WHOLE,), "nvidia.com/gpu.shared": REPLICAS}
NUMA_NODES = (0, 1)
LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
CHART = ROOT / "deploy/charts/gpuslice-exporter"


def container(name: str, *, whole: int = 0, shared: int = 0, seconds: int = 0, **more: Any) -> dict[str, Any]:
    """Return a container with a number of devices; it ends after ``seconds`` unless these are 0."""
    limits = {"nvidia.com/gpu": whole, "nvidia.com/gpu.shared": shared}
    return {
        "name": name,
        "image": images.HOLD,
        "args": [str(seconds)] if seconds else [],
        "resources": {"limits": {key: count for key, count in limits.items() if count}},
        **more,
    }


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1, **spec},
    }


# The minor versions of Kubernetes that first have these by default.
PODS_API, SIDECARS, HEALTH = 37, 29, 36


def pods(minor: int) -> tuple[dict[str, Any], ...]:
    """Return the pods that run in all tests; without sidecars ``guard`` is an ordinary container."""
    guard = container("guard", shared=1)
    init = [guard | {"restartPolicy": "Always"}]
    main = container("main")
    return (
        pod("whole", container("train", whole=1)),
        pod("pair", container("first", shared=1), container("second", shared=2), container("helper")),
        pod("guarded", main, initContainers=init) if minor >= SIDECARS else pod("guarded", main, guard),
        pod("plain", container("web")),
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """A node with its device plugins by resource, and the releases of the chart on it."""

    node: Node
    plugins: Mapping[str, Plugin]
    exporters: tuple[Exporter, ...]

    def apply(self, *pods: dict[str, Any]) -> None:
        """Create pods in the namespace ``default``."""
        objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        self.node.kubectl("apply", "--filename=-", given=objects)

    def run(self, *pods: dict[str, Any]) -> None:
        """Create pods, and wait until they run."""
        self.apply(*pods)
        names = [f"pod/{each['metadata']['name']}" for each in pods]
        self.node.kubectl("wait", "--for=condition=Ready", "--timeout=120s", *names)

    def delete(self, name: str) -> None:
        """Delete a pod at once, and wait until its object is gone and its containers have ended."""
        self.node.kubectl("delete", "pod", name, "--force", "--grace-period=0")
        wait_until(
            lambda: all(each.pod != f"default/{name}" for each in tasks(self.node)), f"{name} has ended"
        )

    def use(self, *processes: tuple[str, int, int, int]) -> None:
        """Make the driver list only these processes: UUID, pid, MiB, percent."""
        order = (WHOLE, SHARED)
        lines = [f"{order.index(uuid)} {pid} {mib} {percent}\n" for uuid, pid, mib, percent in processes]
        place = self.node.folder / "driver" / LIBRARIES / "processes"
        place.with_suffix(".new").write_text("".join(lines))
        place.with_suffix(".new").replace(place)

    def settled(self) -> dict[Holder, int]:
        """Wait until each exporter reports the holders that containerd runs, and return these."""

        def agreed() -> tuple[dict[Holder, int]] | None:
            held = slices(tasks(self.node))
            return (held,) if all(each.slices() == held for each in self.exporters) else None

        (held,) = wait_until(agreed, "the exporters report the holders that containerd runs")
        return held

    def expect(self, name: str, samples: Mapping[tuple[str, ...], float]) -> None:
        """Wait until each exporter has these samples of a series, and no others."""
        wait_until(
            lambda: all(each.samples(name) == samples for each in self.exporters), f"{name} is {samples}"
        )


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Run the cluster; it starts in 40 seconds, or some minutes if the image must be built."""
    require_engine("containerd", "ctr", "nsenter", "gcc")
    with ExitStack() as stack:
        running = stack.enter_context(node.running(ROOT / os.environ["CLUSTER"], images.HOLD))
        for archive in (images.hold(running.folder), images.exporter(running.folder)):
            running.ctr("images", "import", archive)
        _compile(running.folder / "driver" / LIBRARIES)
        running.start_kubelet()
        kubelet = running.folder / "kubelet"
        plugins = {name: Plugin(kubelet, name, ids, NUMA_NODES) for name, ids in RESOURCES.items()}
        for plugin in plugins.values():
            stack.callback(plugin.close)
        wait_until(lambda: _allocatable(running), "the devices are allocatable")
        made = Cluster(running, plugins, _exporters(running))
        made.run(*pods(running.minor))
        yield made


def _compile(folder: Path) -> None:
    folder.mkdir(parents=True)
    names = [f'-D{name}="{uuid}"' for name, uuid in (("WHOLE", WHOLE), ("SHARED", SHARED))]
    source = Path(__file__).with_name("driver.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", *names, "-o", folder / "libnvidia-ml.so.1", source]
    subprocess.run(command, check=True)


def _allocatable(running: Node) -> bool:
    counts = {name: str(len(ids)) for name, ids in RESOURCES.items()}
    return any(
        item["status"].get("allocatable", {}).items() >= counts.items() for item in running.objects("nodes")
    )


def _exporters(running: Node) -> tuple[Exporter, ...]:
    sources = {"api": "kubernetesApi"} | ({"pods": "podsApi"} if running.minor >= PODS_API else {})
    for release, source in sources.items():
        _install(running, release, source)
    # helm does not wait for the first pod of a DaemonSet.
    addresses = {
        release: wait_until(lambda release=release: _address(running, release), f"{release} is ready")
        for release in sources
    }
    return tuple(Exporter(running, release, address) for release, address in addresses.items())


def _install(running: Node, release: str, source: str) -> None:
    repository, _, tag = images.EXPORTER.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag},
        "driverRoot": "/run/nvidia/driver",
        source: {"enabled": True},
        "config": {"poll-interval": "1s", "metric-set": "full"},
    }
    words = [release, CHART, "--namespace=gpuslice", "--create-namespace", "--values=-", running.access]
    running.output(ROOT / ".cache/tools/bin/helm", "install", *words, given=json.dumps(values))


def _address(running: Node, release: str) -> str | None:
    """Return the address of a release's pod once that is ready."""
    chosen = ("--namespace=gpuslice", f"--selector=app.kubernetes.io/instance={release}")
    for item in running.objects("pods", *chosen):
        conditions = {each["type"]: each["status"] for each in item["status"].get("conditions", ())}
        if conditions.get("Ready") == "True":
            return str(item["status"]["podIP"])
    return None
