"""A GPU node below a folder: a kubelet, the logs of pods, a driver's library; and a real process of a pod.

The process and its cgroup are this machine's, so that a container sees them as those of a node.
"""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Container, Pod
from tests.scratch import DISK
from tests.tools import tool

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
# The pod gets a cgroup in the first of these that the machine has; the program looks in all of them.
HIERARCHIES = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
DRIVER = Path(__file__).with_name("driver.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that runs."""

    root: Path  # of its files
    driver: Path  # the library that its runtime would inject
    holder: int  # the pid of the pod's process


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
    """Serve in an event loop of its own, since the tests wait for programs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(kubelet.start(), loop).result()
        yield
        asyncio.run_coroutine_threadsafe(kubelet.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def _pod_process() -> Iterator[int]:
    """Run a process in a cgroup with a kubelet's name."""
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
        # Others may use the folders above.
        with suppress(OSError):
            for folder in list(cgroup.parents)[:3]:
                folder.rmdir()


def _compiled(library: Path, holder: int) -> Path:
    command = [tool("gcc", "cc"), "-shared", "-fPIC", "-O1", f"-DHOLDER={holder}", "-o", library, DRIVER]
    subprocess.run(command, check=True)
    return library
