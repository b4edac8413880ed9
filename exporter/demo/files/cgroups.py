"""Control group paths as kubelets, runtimes and cgroup drivers form them."""

import hashlib
import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from exporter.demo.present import Present, Running
from exporter.demo.scenario.pods import Qos
from exporter.demo.scenario.schema import CgroupStyle

# The exporter's own container; inside its cgroup namespace, other paths are relative to it.
OWN_POD_UID = "7a0a3bd4-7c4e-45c5-9c5a-5a7a1c2f9e11"
OWN_CONTAINER_ID = "e6" * 32
INIT = "/init.scope"
V1_CONTROLLERS = ("12:memory", "11:devices", "4:cpu,cpuacct", "1:name=systemd")
# Pids above those of scenarios, below the maximum of the kernel.
BYSTANDERS = range(4_010_000, 4_190_000)
OVER = frozenset({"Succeeded", "Failed"})


def file_content(path: str, style: CgroupStyle) -> str:
    """Return the lines of /proc/PID/cgroup for a path on the host."""
    if style == "cgroupfs-v1":
        return "".join(f"{controller}:{path}\n" for controller in V1_CONTROLLERS) + "0::/\n"
    if style == "relative":
        relative = posixpath.relpath(path, own_path(style))
        return "0::/\n" if relative == "." else f"0::/{relative}\n"
    return f"0::{path}\n"


def process_path(running: Running, style: CgroupStyle) -> str:
    """Return the path of a process's cgroup on the host."""
    if running.pod is None or running.container is None:
        return running.process.cgroup
    return _container_path(running.pod.uid, running.pod.qos, running.container.container_id, style)


def own_path(style: CgroupStyle) -> str:
    """Return the path of the exporter's own cgroup on the host."""
    return _container_path(OWN_POD_UID, "besteffort", OWN_CONTAINER_ID, style)


def _container_path(pod_uid: str, qos: Qos, container_id: str, style: CgroupStyle) -> str:
    if style in ("cgroupfs", "cgroupfs-v1"):
        parent = "" if qos == "guaranteed" else f"/{qos}"
        return f"/kubepods{parent}/pod{pod_uid}/{container_id}"
    parents = "" if qos == "guaranteed" else f"kubepods-{qos}.slice/"
    prefix = "kubepods-" if qos == "guaranteed" else f"kubepods-{qos}-"
    pod = f"/kubepods.slice/{parents}{prefix}pod{pod_uid.replace('-', '_')}.slice"
    if style == "crio":
        # crun puts the container's processes one level below the scope.
        return f"{pod}/crio-{container_id}.scope/container"
    return f"{pod}/cri-containerd-{container_id}.scope"


class Bystander(NamedTuple):
    """A process of a pod that does not use a GPU."""

    command: str
    pod_uid: str
    path: str  # of its cgroup


def bystanders(now: Present, style: CgroupStyle) -> Iterator[Bystander]:
    """Yield the processes without a GPU; pods that are over have none, init containers have ended."""
    busy = {(each.pod.uid, each.container.name) for each in now.running if each.pod and each.container}
    for pod in now.pods:
        if pod.phase in OVER:
            continue
        sandbox = hashlib.sha256(pod.uid.encode()).hexdigest()
        yield Bystander("pause", pod.uid, _container_path(pod.uid, pod.qos, sandbox, style))
        for container in pod.containers:
            if container.container_id and not container.init and (pod.uid, container.name) not in busy:
                path = _container_path(pod.uid, pod.qos, container.container_id, style)
                yield Bystander("sleep", pod.uid, path)
