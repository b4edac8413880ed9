"""A node of a real cluster on this machine: etcd, API server, controllers, scheduler, containerd, kubelet.

All run in a mount and a network namespace of their own, with their files below one folder; their PID
namespace is the machine's. They only add a control group to the machine. There is no registry: images are
imported.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.scratch import DISK
from tests.together.cluster.files import (
    ADDRESS,
    NAME,
    SERVICE,
    hierarchies,
    make_control_groups,
    setup,
    write,
)
from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Node:
    """A node that runs."""

    folder: Path  # of its files and logs
    programs: Path  # the folder with those of Kubernetes
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

    def output(self, *words: str | Path, given: str | None = None) -> str:
        """Return what a command on the node prints; its failure fails the test."""
        done = subprocess.run(self.command(*words), input=given, capture_output=True, text=True, check=False)
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
        return self.output(self.programs / "kubectl", self.access, *words, given=given)

    def objects(self, kind: str, *words: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that the API server has."""
        return list(json.loads(self.kubectl("get", kind, "--output=json", *words))["items"])

    def ctr(self, *words: str | Path) -> str:
        """Return what containerd's client prints about containers of Kubernetes."""
        return self.output("ctr", "--namespace=k8s.io", *words)

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
        """Start etcd, the API server and its clients, and wait until it answers."""
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
        wait_until(self._api_answers, "the API server answers")

    def _api_answers(self) -> bool:
        words = (self.programs / "kubectl", self.access, "get", "--raw=/readyz")
        return subprocess.run(self.command(*words), capture_output=True, check=False).returncode == 0


@contextmanager
def running(programs: Path, pause: str) -> Iterator[Node]:
    """Run containerd and the control plane; the image ``pause``, of sandboxes, must be imported."""
    with ExitStack() as stack:
        # The path of a socket has a hundred characters at most.
        folder = Path(mkdtemp(prefix="gpuslice-cluster-", dir=DISK))
        stack.callback(_remove, folder)
        make_control_groups(folder.name)
        write(folder, pause)
        started: dict[str, subprocess.Popen[bytes]] = {}
        process = subprocess.Popen(["unshare", "--mount", "--net", "sh", "-c", setup(folder)])
        stack.callback(_end, folder, process, started)
        wait_until((folder / "ready").exists, "the namespaces are ready")
        node = Node(folder, programs, process.pid, started)
        node.start("containerd", f"--config={folder}/containerd.toml")
        node.start_control_plane()
        yield node


def _end(folder: Path, first: subprocess.Popen[bytes], started: dict[str, subprocess.Popen[bytes]]) -> None:
    """End all processes of the node: ours, those that outlive containerd, and containers."""
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
    namespaces = {int(path.name): _mounts(path) for path in Path("/proc").glob("[0-9]*")}
    namespace = namespaces.get(first, "")
    if namespace in {"", _mounts(Path("/proc/self"))}:
        return []
    return [pid for pid, each in namespaces.items() if each == namespace]


def _mounts(process: Path) -> str:
    with suppress(OSError):
        return str((process / "ns/mnt").readlink())
    return ""


def _remove(folder: Path) -> None:
    for hierarchy in hierarchies():
        for path, _, _ in os.walk(hierarchy / folder.name, topdown=False):
            wait_until(lambda path=path: _gone(Path(path)), f"the control group {path} is empty")
    shutil.rmtree(folder)


def _gone(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except OSError:
        return not cgroup.exists()
    return True
