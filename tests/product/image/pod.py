"""Runs the image with podman as a kubelet would: the options come from the DaemonSet's manifest."""

import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.product.image.engine import output, podman, run
from tests.product.image.node import Node
from tests.waiting import wait_until

NODE_NAME = "gpu-node-1"
FIELDS = {"spec.nodeName": NODE_NAME, "metadata.uid": "0b6f1c1e-7c9e-4a53-8f6b-6b1f2e2d9a10"}
# The path of the driver's library in a Debian image with NVIDIA's container runtime.
DRIVER = f"/usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
UNITS = {"Mi": "m", "Gi": "g"}
# The keys that become options here; with any other one the container would not be that of the manifest.
OF_PODS = {"runAsUser", "runAsGroup", "seccompProfile"}
OF_CONTAINERS = {"privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
FETCH = (
    "import sys, urllib.request, urllib.error\n"
    "opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n"
    "opener.addheaders = [('Accept', 'text/html,*/*;q=0.8')]\n"
    "try: answer = opener.open(sys.argv[1])\n"
    "except urllib.error.HTTPError as error: answer = error\n"
    "except OSError: sys.exit(0)\n"
    "print(answer.status, answer.read().decode(), end='')\n"
)
Spec = dict[str, Any]


def options(spec: Spec, node: Node, *, driver: bool = True) -> list[str]:
    """Return podman's options for a pod of that spec, with or without the driver's library."""
    (container,) = spec["containers"]
    return [
        # podman's own limits need the right to raise limits.
        *("--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096", "--network=none"),
        *_restrictions(spec.get("securityContext", {}), container.get("securityContext", {})),
        *(["--pid=host"] if spec.get("hostPID") else []),
        f"--memory={_memory(container['resources']['limits']['memory'])}",
        *(f"--env={entry['name']}={_value(entry)}" for entry in container["env"]),
        *(f"--volume={volume}" for volume in _volumes(spec, container, node)),
        *([f"--volume={node.driver}:{DRIVER}:ro"] if driver else []),
    ]


def _restrictions(pod: Spec, own: Spec) -> list[str]:
    assert pod.keys() <= OF_PODS
    assert own.keys() <= OF_CONTAINERS
    # podman's default is what the runtimes of Kubernetes call RuntimeDefault.
    default = pod.get("seccompProfile") == {"type": "RuntimeDefault"}
    return [
        *([f"--user={pod['runAsUser']}:{pod.get('runAsGroup', 0)}"] if "runAsUser" in pod else []),
        *([] if default else ["--security-opt=seccomp=unconfined"]),
        *(["--privileged"] if own.get("privileged") else []),
        *(["--security-opt=no-new-privileges"] if own.get("allowPrivilegeEscalation") is False else []),
        *(["--read-only", "--read-only-tmpfs=false"] if own.get("readOnlyRootFilesystem") else []),
        *(f"--cap-drop={name}" for name in own.get("capabilities", {}).get("drop", ())),
        *(f"--cap-add={name}" for name in own.get("capabilities", {}).get("add", ())),
    ]


def _memory(quantity: str) -> str:
    return f"{quantity[:-2]}{UNITS[quantity[-2:]]}"


def _value(entry: Spec) -> str:
    return str(entry["value"]) if "value" in entry else FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]]


def _volumes(spec: Spec, container: Spec, node: Node) -> Iterator[str]:
    sources = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    for mount in container["volumeMounts"]:
        source = node.root / sources[mount["name"]].lstrip("/")
        yield f"{source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A container that runs."""

    name: str
    spec: Spec  # of its pod

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another program in it, under the same restrictions."""
        return run(*podman("exec", self.name, *command))

    def fetch(self, path: str) -> tuple[int, str]:
        """Return the status and body of a response to a client inside; 0 without a response."""
        done = self.execute("python", "-c", FETCH, f"http://127.0.0.1:{self.port}{path}")
        assert done.returncode == 0, done.stderr
        status, _, body = done.stdout.partition(" ")
        return int(status or 0), body

    @property
    def port(self) -> int:
        """The port that the manifest names ``metrics``."""
        (port,) = [port for port in self.spec["containers"][0]["ports"] if port["name"] == "metrics"]
        number: int = port["containerPort"]
        return number

    def inspect(self) -> Spec:
        """Return podman's description of it."""
        (description,) = json.loads(output(*podman("inspect", self.name)))
        return dict(description)


@contextmanager
def running(image: str, spec: Spec, node: Node) -> Iterator[Running]:
    """Run the image's own command until it is ready, and stop it at the end."""
    name = f"gpuslice-{uuid4().hex}"
    output(*podman("run", "--detach", "--name", name, *options(spec, node), image))
    pod = Running(name=name, spec=spec)
    try:
        _wait(pod)
        yield pod
    finally:
        output(*podman("rm", "--force", "--time=2", name))


def _wait(pod: Running) -> None:
    path = pod.spec["containers"][0]["readinessProbe"]["httpGet"]["path"]
    wait_until(
        lambda: not pod.inspect()["State"]["Running"] or pod.fetch(path)[0] == 200, "the container is ready"
    )
    if not pod.inspect()["State"]["Running"]:
        pytest.fail(f"the container ended: {run(*podman('logs', pod.name))}")


def once(
    image: str, spec: Spec, node: Node, *command: str, driver: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of the program's commands to its end."""
    return run(*podman("run", "--rm", *options(spec, node, driver=driver), image, *command))
