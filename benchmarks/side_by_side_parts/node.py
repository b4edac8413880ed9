"""A node as the real /proc shows it: a sleeping process in a cgroup for each pod, and a kubelet."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from benchmarks.side_by_side_parts.driver import Layout

# The first kind of hierarchy that the machine has.
_HIERARCHIES = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")
_KUBELET = Path(__file__).with_name("kubelet.py")


class NodeError(Exception):
    """The node cannot be made on this machine; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What the kubelet tells of a pod with one container and one part of a GPU."""

    namespace: str
    name: str
    uid: str
    container_id: str
    resource: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A running node: its pods and their processes, by GPU and part, and where our exporter finds it."""

    layout: Layout
    pods: tuple[tuple[Pod, ...], ...]
    pids: tuple[tuple[int, ...], ...]
    environment: dict[str, str]


@contextmanager
def running_node(layout: Layout) -> Iterator[Node]:
    """Run the node; raise NodeError where cgroups cannot be made."""
    pods = tuple(tuple(_pod(layout, gpu, part) for part in range(layout.parts)) for gpu in range(layout.gpus))
    with ExitStack() as stack:
        # The path of a socket has a hundred characters at most.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="side-")))
        hierarchy = _hierarchy()
        pids = tuple(
            tuple(stack.enter_context(_sleeping(hierarchy, pod)) for pod in of_gpu) for of_gpu in pods
        )
        stack.enter_context(_kubelet(root, [pod for of_gpu in pods for pod in of_gpu]))
        # Nothing but the kubelet tells who a pod is.
        empty = root / "empty"
        empty.mkdir()
        environment = {
            "NODE_NAME": "side-by-side",
            "GPUSLICE_KUBELET_ROOT": str(root),
            "GPUSLICE_POD_LOG_DIR": str(empty),
            "GPUSLICE_KUBERNETES_API": "off",
        }
        yield Node(layout=layout, pods=pods, pids=pids, environment=environment)


def _pod(layout: Layout, gpu: int, part: int) -> Pod:
    name = f"trainer-{gpu}-{part}"
    digest = sha256(name.encode()).hexdigest()
    whole = layout.uuid(gpu)
    return Pod(
        namespace=f"team-{part}",
        name=name,
        uid=str(UUID(digest[:32])),
        container_id=digest,
        resource="nvidia.com/mig-1g.10gb" if layout.mig else "nvidia.com/gpu",
        device=layout.uuid(gpu, part) if layout.mig else f"{whole}::{part}",
    )


def _hierarchy() -> Path:
    found = next((path for path in _HIERARCHIES if (path / "cgroup.procs").exists()), None)
    if found is None:
        raise NodeError(f"no cgroups below {_HIERARCHIES[1]}: run this on Linux, with cgroups mounted")
    return found


@contextmanager
def _sleeping(hierarchy: Path, pod: Pod) -> Iterator[int]:
    """Run a process in a cgroup with the name that a kubelet gives it."""
    cgroup = hierarchy / "kubepods/burstable" / f"pod{pod.uid}" / pod.container_id
    try:
        cgroup.mkdir(parents=True)
    except OSError as error:
        raise NodeError(f"a cgroup cannot be made ({error}): run this as root") from None
    process = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        yield process.pid
    finally:
        process.kill()
        process.wait()
        # The folders above may be others' too.
        with suppress(OSError):
            for folder in (cgroup, *list(cgroup.parents)[:3]):
                folder.rmdir()


@contextmanager
def _kubelet(root: Path, pods: list[Pod]) -> Iterator[None]:
    told = root / "pods.json"
    told.write_text(json.dumps([{name: getattr(pod, name) for name in pod.__slots__} for pod in pods]))
    command = [sys.executable, str(_KUBELET), str(root), str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own file
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            if process.stdout.readline() != "serving\n":
                raise NodeError("the kubelet did not start: its words are above")
            yield
        finally:
            process.kill()
