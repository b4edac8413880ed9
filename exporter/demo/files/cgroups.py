"""The paths of control groups as kubelets, runtimes and cgroup drivers write them."""

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from exporter.demo.present import Present, Running
from exporter.demo.scenario.pods import Pod, Qos
from exporter.demo.scenario.schema import CgroupStyle

# Where the exporter itself runs; a cgroup namespace of its own shows all else relative to this.
OWN_POD_UID = "7a0a3bd4-7c4e-45c5-9c5a-5a7a1c2f9e11"
OWN_CONTAINER_ID = "e6" * 32
INIT = "/init.scope"
V1_CONTROLLERS = ("12:memory", "11:devices", "4:cpu,cpuacct", "1:name=systemd")


def of_running(running: Running, style: CgroupStyle) -> str:
    """Return the content of a process's cgroup file."""
    if running.pod is None or running.container is None:
        return of_path(running.process.cgroup, style)
    return of_path(
        container_path(running.pod.uid, running.pod.qos, running.container.container_id, style), style
    )


def of_init(style: CgroupStyle) -> str:
    """Return the content of the cgroup file of the host's first process."""
    return of_path(INIT, style)


def of_exporter(style: CgroupStyle) -> str:
    """Return the content of the cgroup file of the exporter's own process."""
    return of_path(container_path(OWN_POD_UID, "besteffort", OWN_CONTAINER_ID, style), style)


def of_path(path: str, style: CgroupStyle) -> str:
    """Return a path on the host as the lines of a cgroup file."""
    if style == "cgroupfs-v1":
        return "".join(f"{controller}:{path}\n" for controller in V1_CONTROLLERS) + "0::/\n"
    if style == "relative":
        own = _systemd(OWN_POD_UID, "besteffort", OWN_CONTAINER_ID, "cri-containerd-")
        above = posixpath.relpath(path, own)
        return "0::/\n" if above == "." else f"0::/{above}\n"
    return f"0::{path}\n"


def container_path(pod_uid: str, qos: Qos, container_id: str, style: CgroupStyle) -> str:
    """Return the path of a container's cgroup on the host."""
    return _WRITERS[style](pod_uid, qos, container_id)


def _systemd(pod_uid: str, qos: Qos, container_id: str, runtime: str) -> str:
    pod = f"pod{pod_uid.replace('-', '_')}.slice"
    scope = f"{runtime}{container_id}.scope"
    if qos == "guaranteed":
        return f"/kubepods.slice/kubepods-{pod}/{scope}"
    return f"/kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-{pod}/{scope}"


def _containerd(pod_uid: str, qos: Qos, container_id: str) -> str:
    return _systemd(pod_uid, qos, container_id, "cri-containerd-")


def _cgroupfs(pod_uid: str, qos: Qos, container_id: str) -> str:
    parent = "" if qos == "guaranteed" else f"/{qos}"
    return f"/kubepods{parent}/pod{pod_uid}/{container_id}"


_WRITERS: Mapping[CgroupStyle, Callable[[str, Qos, str], str]] = {
    "systemd": _containerd,
    "relative": _containerd,
    # crun puts the container's processes one level below the scope.
    "crio": lambda pod_uid, qos, container_id: _systemd(pod_uid, qos, container_id, "crio-") + "/container",
    "cgroupfs": _cgroupfs,
    "cgroupfs-v1": _cgroupfs,
}


# Above the pids of scenarios, below the highest that a kernel gives out.
BYSTANDERS = range(4_010_000, 4_190_000)
OVER = frozenset({"Succeeded", "Failed"})


class Bystander(NamedTuple):
    """A process by its command name, the uid of its pod and the path of its cgroup."""

    command: str
    uid: str
    path: str


def bystanders(now: Present, style: CgroupStyle) -> Iterator[Bystander]:
    """Yield the processes without a GPU; pods that are over have none, init containers have ended."""
    busy = {(each.pod.uid, each.container.name) for each in now.running if each.pod and each.container}
    for pod in now.pods:
        if pod.phase in OVER:
            continue
        sandbox = hashlib.sha256(pod.uid.encode()).hexdigest()
        yield Bystander("pause", pod.uid, _path(pod, sandbox, style))
        for container in pod.containers:
            runs = container.container_id and not container.init and (pod.uid, container.name) not in busy
            if runs:
                yield Bystander("sleep", pod.uid, _path(pod, container.container_id, style))


def _path(pod: Pod, container_id: str, style: CgroupStyle) -> str:
    return container_path(pod.uid, pod.qos, container_id, style)
