"""The files of a fake node: processes, pod logs and the driver's version.

Files are replaced atomically, so that a reader sees either the old or the new one.
"""

import contextlib
import os
import shutil
from itertools import cycle
from pathlib import Path

from exporter.demo.files import cgroups
from exporter.demo.present import AGE, Present
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Pod
from exporter.demo.scenario.schema import Scenario


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

    def remove(self, path: Path) -> None:
        """Remove a file, and its folders if they are empty."""
        self._content.pop(path, None)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.parents:
                folder.rmdir()

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder with its content."""
        # Comparing strings is fifty times as fast as comparing paths.
        inside = f"{folder}/"
        self._content = {
            path: text for path, text in self._content.items() if not str(path).startswith(inside)
        }
        shutil.rmtree(folder)


TICKS = os.sysconf("SC_CLK_TCK")
# Earliest start of a process after the boot, in seconds.
EARLIEST = 1.0
CORES = 32
INIT_PID = 1


class Tree:
    """Writes the files of ``scenario`` below ``root``.

    ``booted`` is the Unix time of the machine's boot, ``uptime`` its uptime in seconds at scenario time 0,
    ``speed`` the number of scenario seconds per second.
    """

    def __init__(
        self, scenario: Scenario, root: Path, *, booted: float, uptime: float, speed: float = 1.0
    ) -> None:
        self._scenario = scenario
        self._proc = root / "proc"
        self._logs = root / "var/log/pods"
        self._sys = root / "sys"
        self._module = self._sys / "module/nvidia"
        self._driver = self._sys / "bus/pci/drivers/nvidia"
        self._booted, self._uptime, self._speed = booted, uptime, speed
        self._written = Written()
        self._bystanders: dict[tuple[str, str], int] = {}
        self._free_pids = cycle(cgroups.BYSTANDERS)

    def create(self) -> None:
        """Create the folders, and the files that never change."""
        self._proc.mkdir(parents=True, exist_ok=True)
        self._module.parent.mkdir(parents=True, exist_ok=True)
        if self._scenario.identity != "none":
            self._logs.mkdir(parents=True, exist_ok=True)
        self._written.write(self._proc / "stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {int(self._booted)}\n")
        self._create_first_process()
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
        return max(EARLIEST, self._uptime + time / self._speed)

    def _create_first_process(self) -> None:
        if self._scenario.host_pid:
            self._write_process(INIT_PID, "systemd", cgroups.INIT, start=0)
        else:
            path = cgroups.own_path(self._scenario.cgroup)
            self._write_process(INIT_PID, "gpuslice-exporte", path, start=self._at(0))

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
        for running in now.running:
            process = running.process
            path = cgroups.process_path(running, self._scenario.cgroup)
            self._write_process(process.pid, process.command, path, self._at(running.born))
            pids.add(process.pid)
        # Processes without a GPU: sandboxes, and containers that use none. They keep their pids.
        earlier, self._bystanders = self._bystanders, {}
        for command, pod_uid, path in cgroups.bystanders(now, self._scenario.cgroup):
            pid = earlier.get((pod_uid, path)) or next(self._free_pids)
            self._write_process(pid, command, path, self._at(-AGE))
            self._bystanders[pod_uid, path] = pid
        pids.update(self._bystanders.values())
        for folder in list(self._proc.iterdir()):
            if folder.name.isdigit() and int(folder.name) not in pids:
                self._written.remove_folder(folder)

    def _write_process(self, pid: int, command: str, path: str, start: float) -> None:
        """Write the files of a process; ``path`` is its cgroup, ``start`` the uptime at its start."""
        name = command[:15]
        parent = 0 if pid == INIT_PID else INIT_PID
        # The 22nd of the 52 fields of proc(5) is the start in clock ticks after the boot.
        between = f"{pid} {pid} 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0"
        files = {
            "cgroup": cgroups.file_content(path, self._scenario.cgroup),
            "comm": f"{name}\n",
            "stat": f"{pid} ({name}) S {parent} {between} {round(start * TICKS)} {' '.join(['0'] * 30)}\n",
            "status": f"Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\n"
            f"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t{pid}\nThreads:\t1\n",
        }
        for file, content in files.items():
            self._written.write(self._proc / str(pid) / file, content)

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
