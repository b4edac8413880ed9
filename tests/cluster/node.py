"""A node of a real cluster on this machine: etcd, API server, controllers, scheduler, containerd, kubelet.

All run in a mount and a network namespace of their own, with their files below one folder. Of the machine
nothing is changed but a control group of the node's own. Their PID namespace is the machine's. There is no
registry: images are imported.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import pytest

from tests.cluster.files import ADDRESS, NAME, SERVICE, hierarchies, make_control_groups, setup, write
from tests.scratch import DISK

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], *, seconds: float = 60, pause: float = 0.2) -> T:
    """Return the first thing that is seen, or fail after some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (seen := look()) is not None and seen is not False:
            return seen
        time.sleep(pause)
    return pytest.fail(f"not within {seconds:.0f} s: {what}")


@dataclass(frozen=True, slots=True)
class Node:
    """A node that runs. ``folder`` has its files and logs, ``programs`` those of Kubernetes."""

    folder: Path
    programs: Path
    first: int  # the pid of a process in its namespaces, which sleeps
    running: dict[str, subprocess.Popen[bytes]]

    @property
    def minor(self) -> int:
        """The version of Kubernetes, such as 37 of 1.37.2."""
        return int(self.output(self.programs / "kubelet", "--version").split(".")[1])

    @property
    def access(self) -> str:
        """The option with the file by which programs find the API server."""
        return f"--kubeconfig={self.folder}/admin"

    def command(self, *words: str | Path) -> list[str]:
        """Return the command that runs another one on the node."""
        return ["nsenter", f"--target={self.first}", "--mount", "--net", "--", *map(str, words)]

    def output(self, *words: str | Path, given: str | None = None, timeout: float = 60) -> str:
        """Return what a command on the node prints; its failure fails the test."""
        done = subprocess.run(
            self.command(*words), input=given, capture_output=True, text=True, check=False, timeout=timeout
        )
        if done.returncode:
            pytest.fail(f"{shlex.join(map(str, words))}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self, program: str, *words: str) -> None:
        """Start a program of Kubernetes or the system in the background, with a log of its name."""
        own = self.programs / program
        with (self.folder / f"{program}.log").open("ab") as log:
            self.running[program] = subprocess.Popen(
                self.command(own if own.exists() else program, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """Kill a program: its state is what a crash leaves."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Return the output of kubectl."""
        return self.output(self.programs / "kubectl", self.access, *words, given=given, timeout=100)

    def objects(self, kind: str, *words: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that the API server has."""
        return list(json.loads(self.kubectl("get", kind, "--output=json", *words))["items"])

    def ctr(self, *words: str | Path) -> str:
        """Return what containerd's client prints about containers of Kubernetes."""
        return self.output("ctr", "--namespace=k8s.io", *words, timeout=300)

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        self.start(
            "kubelet",
            self.access,
            f"--config={self.folder}/kubelet.json",
            f"--node-ip={ADDRESS}",
            f"--hostname-override={NAME}",
            "--node-labels=nvidia.com/gpu.present=true",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
        )

    def start_control_plane(self) -> None:
        """Start etcd, the API server and those who ask it, and wait until it answers."""
        folder = self.folder
        self.start("etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", "--log-level=warn")
        self.start_api_server()
        key = f"--service-account-private-key-file={folder}/key"
        authority = f"--root-ca-file={folder}/api/apiserver.crt"
        self.start("kube-controller-manager", self.access, "--leader-elect=false", key, authority)
        self.start("kube-scheduler", self.access, "--leader-elect=false")

    def start_api_server(self) -> None:
        """Start the API server and wait until it answers."""
        folder = self.folder
        self.start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={ADDRESS}",
            f"--cert-dir={folder}/api",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--secure-port=443",
            f"--service-cluster-ip-range={SERVICE}/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/key",
            f"--service-account-signing-key-file={folder}/key",
        )
        until("the API server answers", self._api_answers, seconds=120)

    def _api_answers(self) -> bool:
        words = (self.programs / "kubectl", self.access, "get", "--raw=/readyz")
        done = subprocess.run(self.command(*words), capture_output=True, check=False, timeout=60)
        return done.returncode == 0


@contextmanager
def running(programs: Path, pause: str) -> Iterator[Node]:
    """Run containerd and the control plane; ``pause`` is the image of sandboxes, which is to be imported."""
    with ExitStack() as stack:
        # The path of a socket has a hundred characters at most.
        folder = Path(mkdtemp(prefix="gpuslice-cluster-", dir=DISK))
        stack.callback(_remove, folder)
        make_control_groups(folder.name)
        write(folder, pause)
        started: dict[str, subprocess.Popen[bytes]] = {}
        process = subprocess.Popen(["unshare", "--mount", "--net", "sh", "-c", setup(folder)])
        stack.callback(_end, folder, process, started)
        until("the namespaces are ready", (folder / "ready").exists)
        node = Node(folder, programs, process.pid, started)
        node.start("containerd", f"--config={folder}/containerd.toml")
        node.start_control_plane()
        yield node


def _end(folder: Path, first: subprocess.Popen[bytes], started: dict[str, subprocess.Popen[bytes]]) -> None:
    """End all processes of the node: ours, those of containerd that outlive it, and containers."""
    for process in reversed(started.values()):
        process.kill()
        process.wait()
    contained = [
        int(pid)
        for hierarchy in hierarchies()
        for path in (hierarchy / folder.name).rglob("cgroup.procs")
        for pid in path.read_text().split()
    ]
    for pid in {*_apart(first.pid), *contained}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.kill()
    first.wait()


def _apart(first: int) -> list[int]:
    """Return the processes in the mount namespace of a process, none if that is this one's."""
    found = {int(path.name): _mounts(path) for path in Path("/proc").glob("[0-9]*")}
    mounts = found.get(first, "")
    return (
        [] if mounts in {"", _mounts(Path("/proc/self"))} else [pid for pid in found if found[pid] == mounts]
    )


def _mounts(process: Path) -> str:
    with suppress(OSError):
        return str((process / "ns/mnt").readlink())
    return ""


def _remove(folder: Path) -> None:
    for hierarchy in hierarchies():
        for path, _, _ in os.walk(hierarchy / folder.name, topdown=False):
            until(f"the control group {path} is empty", lambda path=path: _gone(Path(path)), seconds=20)
    shutil.rmtree(folder)


def _gone(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except OSError:
        return not cgroup.exists()
    return True
