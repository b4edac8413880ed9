"""The files of a fake node: processes and their control groups, pod logs and the driver's version.

Files are replaced atomically, so that a reader sees either the old or the new one.
"""

import contextlib
import hashlib
import os
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from exporter.demo.present import AGE, Present, RunningProcess
from exporter.demo.scenario import CgroupStyle, Scenario
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Pod, Qos

# The exporter's own container; inside its cgroup namespace, other paths are relative to it.
OWN_POD_UID = "7a0a3bd4-7c4e-45c5-9c5a-5a7a1c2f9e11"
OWN_CONTAINER_ID = "e6" * 32
INIT = "/init.scope"
V1_CONTROLLERS = ("12:memory", "11:devices", "4:cpu,cpuacct", "1:name=systemd")
# Pids above those of scenarios, below the maximum of the kernel.
BYSTANDERS = range(4_010_000, 4_190_000)
OVER = frozenset({"Succeeded", "Failed"})
TICKS = os.sysconf("SC_CLK_TCK")
# Earliest start of a process after the boot, in seconds.
EARLIEST = 1.0
CORES = 32
INIT_PID = 1


def file_content(path: str, style: CgroupStyle) -> str:
    """Return the lines of /proc/PID/cgroup for a path on the host."""
    if style == "cgroupfs-v1":
        return "".join(f"{controller}:{path}\n" for controller in V1_CONTROLLERS) + "0::/\n"
    if style == "relative":
        relative = posixpath.relpath(path, own_path(style))
        return "0::/\n" if relative == "." else f"0::/{relative}\n"
    return f"0::{path}\n"


def process_path(running: RunningProcess, style: CgroupStyle) -> str:
    """Return the path of a process's cgroup on the host."""
    if running.pod is None or running.container is None or running.process.cgroup:
        return running.process.cgroup
    return container_path(running.pod.uid, running.pod.qos, running.container.container_id, style)


def own_path(style: CgroupStyle) -> str:
    """Return the path of the exporter's own cgroup on the host."""
    return container_path(OWN_POD_UID, "besteffort", OWN_CONTAINER_ID, style)


def container_path(pod_uid: str, qos: Qos, container_id: str, style: CgroupStyle) -> str:
    """Return the path of a container's cgroup on the host."""
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


def bystanders(now: Present, style: CgroupStyle) -> Iterator[tuple[str, str, str]]:
    """Yield the command, the uid of the pod, and the cgroup's path of each process that does not use a GPU.

    Pods that are over have none, and init containers have ended.
    """
    # A process outside its container has a parent in it.
    inside = (each for each in now.running if not each.process.cgroup)
    busy = {(each.pod.uid, each.container.name) for each in inside if each.pod and each.container}
    for pod in now.pods:
        if pod.phase in OVER:
            continue
        sandbox = hashlib.sha256(pod.uid.encode()).hexdigest()
        yield "pause", pod.uid, container_path(pod.uid, pod.qos, sandbox, style)
        for container in pod.containers:
            if container.container_id and not container.init and (pod.uid, container.name) not in busy:
                yield "sleep", pod.uid, container_path(pod.uid, pod.qos, container.container_id, style)


class Written:
    """Writes files, and skips those that have not changed."""

    def __init__(self) -> None:
        self._content: dict[Path, str | bytes] = {}

    def write(self, path: Path, content: str | bytes) -> None:
        """Write a file and its folders."""
        if self._content.get(path) == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        new.replace(path)
        self._content[path] = content

    def write_all(self, folder: Path, contents: Mapping[str, str | bytes]) -> None:
        """Write files by their paths below a folder."""
        for name, content in contents.items():
            self.write(folder / name, content)

    def remove(self, path: Path) -> None:
        """Remove a file, and its folders if they are empty."""
        self._content.pop(path, None)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.parents:
                folder.rmdir()

    def remove_folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            self._content.pop(path, None)
        shutil.rmtree(folder)


class Tree:
    """Writes the files of ``scenario`` below ``root``.

    ``booted`` is the Unix time of the machine's boot, ``uptime`` its uptime in seconds at scenario time 0.
    """

    def __init__(self, scenario: Scenario, root: Path, *, booted: float, uptime: float) -> None:
        self._scenario = scenario
        self._proc = root / "proc"
        self._logs = root / "var/log/pods"
        self._sys = root / "sys"
        self._module = self._sys / "module/nvidia"
        self._driver = self._sys / "bus/pci/drivers/nvidia"
        self._booted, self._uptime = booted, uptime
        self._written = Written()
        self._processes: dict[int, tuple[str, str, float]] = {}
        self._bystanders: dict[tuple[str, str], int] = {}
        self._free_pids = cycle(BYSTANDERS)

    def create(self) -> None:
        """Create the folders, and the files that never change."""
        self._proc.mkdir(parents=True, exist_ok=True)
        self._module.parent.mkdir(parents=True, exist_ok=True)
        if self._scenario.identity != "none":
            self._logs.mkdir(parents=True, exist_ok=True)
        self._written.write(self._proc / "stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {int(self._booted)}\n")
        if self._scenario.host_pid:
            self._write_process(INIT_PID, "systemd", INIT, start=0)
        else:
            path = own_path(self._scenario.cgroup)
            self._write_process(INIT_PID, "gpuslice-exporte", path, start=self._at(0))
        # Mediated devices exist whether or not a vGPU runs on them.
        for gpu in self._scenario.gpus:
            for vgpu in gpu.vgpus:
                _link(self._sys / "bus/mdev/devices" / vgpu.mdev_uuid, self._sys_device(gpu) / vgpu.mdev_uuid)

    def step(self, now: Present) -> None:
        """Bring the files to ``now``. The clock is first: no process may start after it."""
        uptime = self._at(now.time)
        self._written.write(self._proc / "uptime", f"{uptime:.2f} {uptime * CORES * 0.8:.2f}\n")
        if self._scenario.host_pid:
            self._step_processes(now)
        if self._scenario.identity != "none":
            self._step_logs(now.pods)
        if self._scenario.node.driver_version:
            self._step_driver(now)

    def _at(self, time: float) -> float:
        """Return the uptime at a time of the scenario."""
        return max(EARLIEST, self._uptime + time)

    def _sys_device(self, gpu: Gpu) -> Path:
        domain, rest = gpu.pci_bus_id.lower().split(":", 1)
        return self._sys / "devices" / f"pci{domain[-4:]}:00" / f"{domain[-4:]}:{rest}"

    def _step_driver(self, now: Present) -> None:
        """Write the kernel module's version, and link the GPUs that it is bound to."""
        if not now.loaded:
            for folder in filter(Path.exists, (self._module, self._driver)):
                self._written.remove_folder(folder)
            return
        self._written.write(self._module / "version", f"{self._scenario.node.driver_version}\n")
        self._driver.mkdir(parents=True, exist_ok=True)
        devices = {device.name: device for device in map(self._sys_device, now.gpus)}
        for path in self._driver.iterdir():
            if path.is_symlink() and path.name not in devices:
                path.unlink()
        for name, device in devices.items():
            _link(self._driver / name, device)

    def _step_processes(self, now: Present) -> None:
        pids = {INIT_PID}
        style = self._scenario.cgroup
        # Processes without a GPU: sandboxes, and containers that use none. They keep their pids.
        earlier, self._bystanders = self._bystanders, {}
        for command, pod_uid, path in bystanders(now, style):
            pid = earlier.get((pod_uid, path)) or next(self._free_pids)
            self._write_process(pid, command, path, self._at(-AGE))
            self._bystanders[pod_uid, path] = pid
        for running in now.running:
            process, path = running.process, process_path(running, style)
            inside = process_path(replace(running, process=replace(process, cgroup="")), style)
            parent = self._bystanders[running.pod.uid, inside] if running.pod and path != inside else INIT_PID
            self._write_process(process.pid, process.command, path, self._at(running.born), parent)
            pids.add(process.pid)
        pids.update(self._bystanders.values())
        for folder in list(self._proc.iterdir()):
            if folder.name.isdigit() and int(folder.name) not in pids:
                self._written.remove_folder(folder)
                self._processes.pop(int(folder.name), None)

    def _write_process(self, pid: int, command: str, path: str, start: float, parent: int = INIT_PID) -> None:
        """Write the files of a process; ``path`` is its cgroup, ``start`` the uptime at its start."""
        if self._processes.get(pid) == (command, path, start):
            return
        self._processes[pid] = (command, path, start)
        name = command[:15]
        parent = 0 if pid == INIT_PID else parent
        # The 22nd of the 52 fields of proc(5) is the start in clock ticks after the boot.
        between = f"{pid} {pid} 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0"
        files = {
            "cgroup": file_content(path, self._scenario.cgroup),
            "comm": f"{name}\n",
            "stat": f"{pid} ({name}) S {parent} {between} {round(start * TICKS)} {' '.join(['0'] * 30)}\n",
            "status": f"Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\n"
            f"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t{pid}\nThreads:\t1\n",
        }
        self._written.write_all(self._proc / str(pid), files)

    def _step_logs(self, pods: tuple[Pod, ...]) -> None:
        folders = {f"{pod.namespace}_{pod.name}_{pod.uid}": pod for pod in pods}
        for folder, pod in folders.items():
            for container in pod.containers:
                (self._logs / folder / container.name).mkdir(parents=True, exist_ok=True)
        for path in self._logs.iterdir():
            if path.name not in folders:
                shutil.rmtree(path)


def _link(link: Path, device: Path) -> None:
    if not link.is_symlink():
        device.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(device, link.parent))
