"""The files of a fake node: processes, pod logs and the driver's version, kept in step with the scenario.

Files are replaced whole, so that a reader sees the old one or the new one and nothing between.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from exporter.demo.files import cgroups
from exporter.demo.files.cgroups import BYSTANDERS, bystanders
from exporter.demo.present import AGE, Present, Running
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Pod
from exporter.demo.scenario.schema import Scenario


class Written:
    """Remembers what it wrote."""

    def __init__(self) -> None:
        self._content: dict[Path, str | bytes] = {}

    def write(self, path: Path, content: str | bytes) -> None:
        """Make a file say this, with the folders around it."""
        if self._content.get(path) == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
        self._content[path] = content

    def forget(self, path: Path) -> None:
        """Take one file away, with the folders around it that are empty then."""
        self._content.pop(path, None)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.parents:
                folder.rmdir()

    def remove(self, folder: Path) -> None:
        """Take a folder away with all that is in it."""
        # Comparing texts takes a fiftieth of the time that comparing paths does.
        inside = f"{folder}/"
        self._content = {
            path: text for path, text in self._content.items() if not str(path).startswith(inside)
        }
        shutil.rmtree(folder)


TICKS = os.sysconf("SC_CLK_TCK")
# A process that was there from the start began no earlier than this after the machine did, in seconds.
EARLIEST = 1.0
CORES = 32
INIT_PID = 1


class Tree:
    """Writes the files of ``scenario`` below ``root``.

    ``booted`` is the Unix time at which the machine was started, ``uptime`` how long it had run at scenario
    time 0, ``speed`` how many scenario seconds pass in one of the clock's.
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
        self._bystanders_so_far = 0

    def create(self) -> None:
        """Make the folders and what never changes."""
        self._proc.mkdir(parents=True, exist_ok=True)
        (self._module.parent).mkdir(parents=True, exist_ok=True)
        if self._scenario.identity != "none":
            self._logs.mkdir(parents=True, exist_ok=True)
        self._write(self._proc / "stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {int(self._booted)}\n")
        self._create_first_process()
        self._create_mdevs()

    def step(self, now: Present) -> None:
        """Bring the files to ``now``. The clock goes first: no process may be younger than it."""
        uptime = self._at(now.time)
        self._write(self._proc / "uptime", f"{uptime:.2f} {uptime * CORES * 0.8:.2f}\n")
        if self._scenario.host_pid:
            on_gpus = {str(each.process.pid): self._files(each) for each in now.running}
            self._replace(self._proc, {**on_gpus, **self._without_gpu(now)})
        if self._scenario.identity != "none":
            self._step_logs(now.pods)
        if self._scenario.node.driver_version:
            self._step_driver(now)

    def _at(self, time: float) -> float:
        """Return the boot clock at a time of the scenario."""
        return max(EARLIEST, self._uptime + time / self._speed)

    def _create_first_process(self) -> None:
        style = self._scenario.cgroup
        host = self._scenario.host_pid
        command = "systemd" if host else "gpuslice-exporte"
        cgroup = cgroups.of_init(style) if host else cgroups.of_exporter(style)
        files = _process_files(INIT_PID, command, cgroup, 0 if host else round(self._at(0) * TICKS))
        for name, content in files.items():
            self._write(self._proc / str(INIT_PID) / name, content)

    def _create_mdevs(self) -> None:
        """Make the mediated devices, which are there whether or not a vGPU runs on them."""
        for gpu in self._scenario.gpus:
            for vgpu in gpu.vgpus:
                device = self._sys_device(gpu) / vgpu.mdev_uuid
                _link(self._sys / "bus/mdev/devices" / vgpu.mdev_uuid, device)

    def _sys_device(self, gpu: Gpu) -> Path:
        domain, rest = gpu.pci_bus_id.lower().split(":", 1)
        return self._sys / "devices" / f"pci{domain[-4:]}:00" / f"{domain[-4:]}:{rest}"

    def _step_driver(self, now: Present) -> None:
        """Show the kernel module, and the GPUs that it is bound to."""
        if not now.loaded:
            for folder in filter(Path.exists, (self._module, self._driver)):
                self._written.remove(folder)
            return
        self._write(self._module / "version", f"{self._scenario.node.driver_version}\n")
        self._driver.mkdir(parents=True, exist_ok=True)
        devices = {device.name: device for device in map(self._sys_device, now.gpus)}
        for path in self._driver.iterdir():
            if path.is_symlink() and path.name not in devices:
                path.unlink()
        for name, device in devices.items():
            _link(self._driver / name, device)

    def _files(self, running: Running) -> Mapping[str, str]:
        start = round(self._at(running.born) * TICKS)
        cgroup = cgroups.of_running(running, self._scenario.cgroup)
        return _process_files(running.process.pid, running.process.command, cgroup, start)

    def _without_gpu(self, now: Present) -> Mapping[str, Mapping[str, str]]:
        """Return the files of the processes that no GPU knows: sandboxes, and containers that use none."""
        found = {}
        before, self._bystanders = self._bystanders, {}
        start = round(self._at(-AGE) * TICKS)
        for command, uid, path in bystanders(now, self._scenario.cgroup):
            pid = before.get((uid, path)) or self._free_pid()
            self._bystanders[uid, path] = pid
            cgroup = cgroups.of_path(path, self._scenario.cgroup)
            found[str(pid)] = _process_files(pid, command, cgroup, start)
        return found

    def _free_pid(self) -> int:
        self._bystanders_so_far += 1
        return BYSTANDERS[(self._bystanders_so_far - 1) % len(BYSTANDERS)]

    def _replace(self, parent: Path, folders: Mapping[str, Mapping[str, str]]) -> None:
        for name, files in folders.items():
            for file, content in files.items():
                self._write(parent / name / file, content)
        for path in list(parent.iterdir()):
            if path.name.isdigit() and path.name not in {*folders, str(INIT_PID)}:
                self._written.remove(path)

    def _step_logs(self, pods: tuple[Pod, ...]) -> None:
        wanted = {f"{pod.namespace}_{pod.name}_{pod.uid}": pod for pod in pods}
        for folder, pod in wanted.items():
            for container in pod.containers:
                (self._logs / folder / container.name).mkdir(parents=True, exist_ok=True)
        for path in self._logs.iterdir():
            if path.name not in wanted:
                shutil.rmtree(path)

    def _write(self, path: Path, content: str) -> None:
        self._written.write(path, content)


def _link(link: Path, device: Path) -> None:
    if not link.is_symlink():
        device.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(device, link.parent))


def _process_files(pid: int, command: str, cgroup: str, start: int) -> Mapping[str, str]:
    name = command[:15]
    parent = 0 if pid == INIT_PID else INIT_PID
    return {
        "cgroup": cgroup,
        "comm": f"{name}\n",
        "stat": _stat(pid, name, parent, start),
        "status": f"Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\n"
        f"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t{pid}\nThreads:\t1\n",
    }


def _stat(pid: int, name: str, parent: int, start: int) -> str:
    """Return the 52 fields of proc(5); the 22nd is the start in clock ticks since boot."""
    between = f"{pid} {pid} 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0"
    return f"{pid} ({name}) S {parent} {between} {start} {' '.join(['0'] * 30)}\n"
