"""Readers of /proc, sysfs and files of other programs, each in a worker thread of its own."""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from exporter.concurrency import Worker
from exporter.model import Allocations, HostDevices, JobFiles, ProcessPlace, SystemFiles
from exporter.model.memory_limits import CgroupTree
from exporter.model.poll_result import NVIDIA_MODULE
from exporter.sharing import read_files
from exporter.sharing.base import Roots
from exporter.sharing.dra.checkpoint import with_known
from exporter.sharing.kubevirt import host_devices
from exporter.workloads.device_memory import own_cgroup, read_tree
from exporter.workloads.jobs import read_jobs
from exporter.workloads.pid_namespace import why_no_view
from exporter.workloads.places import Placed, read_running
from exporter.workloads.processes import ProcessTable, cgroup_text

# The pid namespace of a running process does not change, but a procfs may be mounted later.
RECHECK_VIEW_SECONDS = 60.0
# Pause between two checks of a socket's file.
CHECK_SECONDS = 1.0
# Without the controller ``dmem`` all of the tree is walked, for directories of containers.
WALK_SECONDS = 15.0
# Device, inode and time of change of a file: what is new when it is created or made accessible.
FileVersion = tuple[int, int, int]
ABSENT: Final[FileVersion] = (0, 0, 0)


class _FileReader:
    """Has a worker thread, because a file system may hang."""

    def __init__(self, thread: str) -> None:
        self._worker = Worker(thread)

    def close(self) -> None:
        self._worker.stop()


class NoProcessViewError(Exception):
    """Per-process usage cannot be attributed on this node; the text says why and what to do."""

    reason = "no_process_view"


class ProcessReader(_FileReader):
    """Reads the node's process table, if the driver's pids mean the same processes to us.

    ``own_uid`` is the uid of our own pod, "" outside a pod.
    """

    def __init__(self, proc_root: Path, own_uid: str) -> None:
        super().__init__("proc")
        self._proc_root = proc_root
        self._table = ProcessTable(proc_root, own_uid or None)
        # Why pids cannot be attributed, "" if they can.
        self._objection = "not checked yet"
        self._checked = -math.inf

    async def read(
        self, pids: Mapping[int, float | None], search: Callable[[Mapping[int, ProcessPlace]], bool]
    ) -> Placed:
        """Return the containers of ``pids``, which maps each to the boot clock (seconds) of its reading.

        ``search`` decides, given the places of these pids, whether all processes of the node are searched for
        pods. Raises NoProcessViewError if pids cannot be attributed.
        """
        return await self._worker.run(lambda: self._read(pids, search))

    def _read(
        self, pids: Mapping[int, float | None], search: Callable[[Mapping[int, ProcessPlace]], bool]
    ) -> Placed:
        now = time.monotonic()
        if self._objection and now - self._checked > RECHECK_VIEW_SECONDS:
            self._objection, self._checked = why_no_view(self._proc_root), now
        if self._objection:
            raise NoProcessViewError(self._objection)
        places = self._table.read(pids)
        return Placed(places, read_running(self._proc_root) if search(places) else None)


class CgroupReader(_FileReader):
    """Reads the cgroups that may have memory of GPUs; ``own_uid`` as for ProcessReader."""

    def __init__(self, root: Path, proc_root: Path, own_uid: str) -> None:
        super().__init__("cgroups")
        self._root = root
        self._proc_root = proc_root
        self._own_uid = own_uid
        self._tree: CgroupTree | None = None
        self._walked = -math.inf
        self._asked: frozenset[str] = frozenset()  # in the last walk

    async def read(self, asked: Collection[str]) -> CgroupTree:
        """Return the cgroups; ``asked`` are PCI addresses of GPUs whose driver can be asked about cgroups.

        If the kernel does not meter one of these, all containers are listed, at most every WALK_SECONDS.
        """
        return await self._worker.run(lambda: self._read(asked))

    def _read(self, asked: Collection[str]) -> CgroupTree:
        now = time.monotonic()
        due = now - self._walked >= WALK_SECONDS or not self._asked.issuperset(asked)
        if self._tree is None or due:
            own = own_cgroup(cgroup_text(self._proc_root, "self"))
            tree = read_tree(self._root, self._own_uid, own, asked)
            self._asked = frozenset(asked)
            # What the kernel meters is read in each poll.
            self._tree, self._walked = (tree, now) if not tree.capacity else (None, -math.inf)
            return tree
        return self._tree


class HostDeviceReader(_FileReader):
    """Reads from sysfs the devices for virtual machines, and whether NVIDIA's kernel module is loaded."""

    def __init__(self, sys_root: Path) -> None:
        super().__init__("sysfs")
        self._sys_root = sys_root

    async def read(self, allocations: Allocations | None) -> HostDevices:
        """Return the devices for virtual machines among the kubelet's ids; without any, read no file."""
        return await self._worker.run(lambda: host_devices(self._sys_root, allocations))

    async def nvidia_module(self) -> bool:
        """Return whether the kernel has NVIDIA's module; raises OSError if that cannot be read."""
        return await self._worker.run((self._sys_root / NVIDIA_MODULE).exists)


class SocketFileReader(_FileReader):
    """Watches the file of a socket, from a thread: that wakes the event loop for changes only."""

    def __init__(self, socket: Path) -> None:
        super().__init__("kubelet-socket")
        self._socket = socket

    async def changed(self, seen: FileVersion | None) -> FileVersion:
        """Return the file's version as soon as it is not ``seen``; None stands for one not known yet."""
        given_up = threading.Event()
        try:
            return await self._worker.run(lambda: self._watch(seen, given_up))
        finally:
            given_up.set()

    def _watch(self, seen: FileVersion | None, given_up: threading.Event) -> FileVersion:
        found = self._version()
        while found == seen and not given_up.wait(CHECK_SECONDS):
            found = self._version()
        return found

    def _version(self) -> FileVersion:
        try:
            status = self._socket.stat()
        except OSError:
            return ABSENT
        return status.st_dev, status.st_ino, status.st_ctime_ns


class SharingFileReader(_FileReader):
    """Reads the files that sharing systems keep on the node."""

    def __init__(self, roots: Roots) -> None:
        super().__init__("sharing")
        self._roots = roots
        self._files: dict[str, SystemFiles] = {}

    async def read(self) -> Mapping[str, SystemFiles]:
        """Return the files by system; a system that cannot be read at all has one problem."""
        return await self._worker.run(self._read)

    def _read(self) -> Mapping[str, SystemFiles]:
        self._files = {
            name: with_known(files, self._files.get(name)) for name, files in read_files(self._roots).items()
        }
        return self._files


class JobFileReader(_FileReader):
    """Reads the files in which a batch system lists the jobs of each GPU."""

    def __init__(self, directory: Path) -> None:
        super().__init__("jobs")
        self._directory = directory

    async def read(self) -> JobFiles:
        """Return the jobs by device; raises JobFilesError if the directory does not exist."""
        return await self._worker.run(lambda: read_jobs(self._directory))
