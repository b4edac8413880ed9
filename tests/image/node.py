"""A GPU node below a folder: a kubelet, the logs of pods, a driver's library; and a real process of a pod.

Its process and that one's cgroup are this machine's, so that a container sees them as it sees a node's.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Container, Pod
from tests.scratch import DISK

GPU, MIG = "GPU-0", "MIG-a"
CONTAINER = "c0ffee" * 10 + "0001"
POD = Pod(
    namespace="team-a",
    name="trainer-0",
    uid="5d2cbb6f-4f2c-4d7e-9a53-0c8a3d6d0b11",
    containers=(
        Container(
            name="worker",
            container_id=CONTAINER,
            devices={"nvidia.com/gpu": (GPU,), "nvidia.com/mig-4g.20gb": (MIG,)},
        ),
    ),
)
OFFERED = (
    ("nvidia.com/gpu", GPU),
    ("nvidia.com/mig-4g.20gb", MIG),
    ("nvidia.com/mig-1c.3g.20gb", "MIG-b"),
)
# A cgroup of the first kind of hierarchy that the machine has; the program looks for the pod in all of them.
HIERARCHIES = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
DRIVER = Path(__file__).with_name("driver.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Files as they lie on a node are below ``root``; ``driver`` is what its runtime would inject."""

    root: Path
    driver: Path
    holder: int


@contextmanager
def running_node() -> Iterator[Node]:
    """Run the kubelet and the pod's process."""
    with ExitStack() as stack:
        # The path of a socket has a hundred characters at most.
        root = Path(mkdtemp(prefix="gpuslice-node-", dir=DISK))
        stack.callback(shutil.rmtree, root)
        (root / "var/log/pods" / f"{POD.namespace}_{POD.name}_{POD.uid}" / "worker").mkdir(parents=True)
        holder = stack.enter_context(_pod_process())
        kubelet = FakeKubelet(root / "var/lib/kubelet", pods_api=True)
        kubelet.pods, kubelet.offered = (POD,), OFFERED
        stack.enter_context(_serving(kubelet))
        yield Node(root=root, driver=_compiled(root / "libnvidia-ml.so.1", holder), holder=holder)


@contextmanager
def _serving(kubelet: FakeKubelet) -> Iterator[None]:
    """Serve in a loop of its own, since these tests wait for programs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(kubelet.start(), loop).result(20)
        yield
        asyncio.run_coroutine_threadsafe(kubelet.stop(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def _pod_process() -> Iterator[int]:
    """Run a process in a cgroup with the name that a kubelet gives it."""
    hierarchy = next(path for path in HIERARCHIES if (path / "cgroup.procs").exists())
    cgroup = hierarchy / "kubepods/burstable" / f"pod{POD.uid}" / CONTAINER
    cgroup.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "1000"])
    try:
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        yield process.pid
    finally:
        process.kill()
        process.wait()
        cgroup.rmdir()
        # The folders above may be others' too.
        with suppress(OSError):
            for folder in list(cgroup.parents)[:3]:
                folder.rmdir()


def _compiled(library: Path, holder: int) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no C compiler on PATH")
    command = [compiler, "-shared", "-fPIC", "-O1", f"-DHOLDER={holder}", "-o", library, DRIVER]
    subprocess.run(command, check=True, timeout=60)
    return library
