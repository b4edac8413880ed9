"""A node as the real /proc shows it: a sleeping process in a cgroup for each pod, and a kubelet."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from benchmarks.processes import MissingError, module, started
from benchmarks.side_by_side.driver import Layout

# The first hierarchy that the machine has is used.
_HIERARCHIES = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")


class Node(NamedTuple):
    """A running node."""

    pids: list[list[int]]  # by GPU and part
    environment: dict[str, str]  # points our exporter at the node


@contextmanager
def running_node(layout: Layout) -> Iterator[Node]:
    """Run the node; raise MissingError if cgroups cannot be made."""
    hierarchy = next((path for path in _HIERARCHIES if (path / "cgroup.procs").exists()), None)
    if hierarchy is None:
        raise MissingError(f"no cgroups below {_HIERARCHIES[1]}: run this on Linux, with cgroups mounted")
    pods = [[_pod(layout, gpu, part) for part in range(layout.parts)] for gpu in range(layout.gpus)]
    with ExitStack() as stack:
        # The path of a socket is limited to a hundred characters.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="side-")))
        pids = [[stack.enter_context(_sleeping(hierarchy, pod)) for pod in of_gpu] for of_gpu in pods]
        kubelet = stack.enter_context(started(module("fake_node", "kubelet", str(root))))
        kubelet.send(json.dumps([pod for of_gpu in pods for pod in of_gpu]))
        kubelet.answer()
        # The kubelet alone must identify pods.
        empty = root / "empty"
        empty.mkdir()
        environment = {
            "NODE_NAME": "side-by-side",
            "GPUSLICE_KUBELET_ROOT": str(root),
            "GPUSLICE_POD_LOG_DIR": str(empty),
            "GPUSLICE_KUBERNETES_API": "off",
        }
        yield Node(pids, environment)


def _pod(layout: Layout, gpu: int, part: int) -> dict[str, str]:
    """Return a pod with one container and one part of a GPU, as ``fake_node.py`` takes it."""
    name = f"trainer-{gpu}-{part}"
    # Not the same as in a benchmark that runs at the same time.
    digest = sha256(f"{os.getpid()} {name}".encode()).hexdigest()
    if layout.mig:
        device = layout.uuid(gpu, part)
    else:
        device = layout.uuid(gpu) + (f"::{part}" if layout.parts > 1 else "")
    return {
        "namespace": f"team-{part}",
        "name": name,
        "uid": str(UUID(digest[:32])),
        "container_id": digest,
        "resource": "nvidia.com/mig-1g.10gb" if layout.mig else "nvidia.com/gpu",
        "device": device,
    }


@contextmanager
def _sleeping(hierarchy: Path, pod: dict[str, str]) -> Iterator[int]:
    """Run a process in a cgroup with the name that a kubelet gives it, and return its pid."""
    cgroup = hierarchy / "kubepods/burstable" / f"pod{pod['uid']}" / pod["container_id"]
    try:
        cgroup.mkdir(parents=True)
    except OSError as error:
        raise MissingError(f"a cgroup cannot be made ({error}): run this as root") from None
    try:
        with started(["/bin/sleep", "1000"]) as process:
            (cgroup / "cgroup.procs").write_text(str(process.popen.pid))
            yield process.popen.pid
    finally:
        # The folders above may contain cgroups of others.
        with suppress(OSError):
            for folder in (cgroup, *list(cgroup.parents)[:3]):
                folder.rmdir()
