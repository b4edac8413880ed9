"""The sources of a node as the settings name them, and what it takes to read each."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.amd import AmdSource
from exporter.concurrency import Worker
from exporter.config.settings import Settings
from exporter.kubernetes import Cluster, access
from exporter.model import Allocations, HostDevices, JobFiles, NodeObject, ProcessPlace, SystemFiles
from exporter.model.pid_namespace import counts_machine_pids
from exporter.model.poll_result import NVIDIA_MODULE
from exporter.nvml import NvmlOptions, NvmlSource
from exporter.poll.budget import Budget
from exporter.poll.pod_names import PodNames
from exporter.poll.release_window import Release
from exporter.sharing import Roots, host_devices, read_files, with_known
from exporter.workloads.jobs import read_jobs
from exporter.workloads.pid_view import process_view
from exporter.workloads.processes import ProcessTable, boot_seconds
from exporter.workloads.running import Placed, read_running
from podresources.client import PodResources

if TYPE_CHECKING:
    from exporter.dcgm_scrape.client import DcgmScrape

log = logging.getLogger(__name__)
# The namespace of a running process does not change, but what can be seen from it may appear later.
RECHECK_VIEW_SECONDS = 60.0


class NoProcessViewError(Exception):
    """Per-process numbers cannot be trusted on this node; the text says why and what to do."""

    reason = "no_process_view"


class Sources:
    """Everything that a poll reads. ``nvml_library`` is an object to use in place of the driver's library.

    ``clock`` (seconds) is when GPUs are read. ``wake`` is set when a poll should not wait for its time.
    ``budget`` is that of the polling interval if none is given.
    """

    def __init__(
        self,
        settings: Settings,
        nvml_library: Any = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        budget: Budget | None = None,
    ) -> None:
        self.clock = clock
        self.budget = budget or Budget.of_interval(settings.poll_interval)
        self.wake = asyncio.Event()
        self.release = Release(settings.driver_release_file, changed=self.wake)
        self.cluster = Cluster(
            settings.node_name,
            access(settings.kubernetes_api, settings.kubeconfig),
            self.release.labels_told,
        )
        self.nvml = NvmlSource(
            NvmlOptions(
                path=settings.nvml_library,
                library=nvml_library,
                sys_root=settings.sys_root,
                pcie_throughput=settings.pcie_throughput,
                boot_clock=lambda: boot_seconds(settings.proc_root),
                clock=clock,
                machine_pids=lambda: counts_machine_pids(settings.proc_root),
                released=self.release.reason,
                patience=self.budget.hang,
            ),
            self.wake,
        )
        self.amd = AmdSource(
            settings.sys_root,
            settings.proc_root,
            lambda: boot_seconds(settings.proc_root),
            clock,
            patience=self.budget.hang,
        )
        self.dcgm = _dcgm(settings, self.budget.client)
        self.pod_resources = PodResources(settings.pod_resources_socket, timeout=self.budget.client)
        self.names = PodNames(
            settings.pods_api_socket,
            settings.pod_log_dir,
            # The other sources of names need time, too.
            self.budget.client / 2,
            lambda: self.cluster.pods,
            keep=settings.stale_after,
        )
        self.processes = Processes(settings.proc_root)
        self.host_devices = HostDeviceTable(settings.sys_root)
        self.files = SharingFiles(_roots(settings))
        self.jobs = None if settings.job_mapping_dir is None else Jobs(settings.job_mapping_dir)
        self.own_uid = os.environ.get("POD_UID") or ""

    @property
    def node(self) -> NodeObject | None:
        """What the API server says of the node's object, None where it is not asked or silent."""
        return self.cluster.node

    async def start(self) -> None:
        """Ask whether the driver is wanted by somebody else, which the first poll has to know."""
        await asyncio.gather(self.cluster.start(), self.release.start())

    async def close(self) -> None:
        """Shut the driver down; a source that hangs is not waited for by this object."""
        self.names.close()
        self.processes.close()
        self.host_devices.close()
        self.files.close()
        if self.jobs is not None:
            self.jobs.close()
        if self.dcgm is not None:
            self.dcgm.close()
        await asyncio.gather(self.cluster.close(), self.release.close())
        await asyncio.gather(self.nvml.close(), self.amd.close())


class HostDeviceTable:
    """What sysfs knows of the kubelet's ids that are devices for virtual machines, and of NVIDIA's driver."""

    def __init__(self, sys_root: Path) -> None:
        self._sys_root = sys_root
        self._worker = Worker("sysfs")

    async def read(self, allocations: Allocations | None) -> HostDevices:
        """Look the ids up; without such ids no file is read."""
        return await self._worker.run(lambda: host_devices(self._sys_root, allocations))

    async def nvidia_module(self) -> bool:
        """Look whether the kernel has the module of NVIDIA's driver; OSError where that cannot be seen."""
        return await self._worker.run((self._sys_root / NVIDIA_MODULE).exists)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()


class SharingFiles:
    """The files that sharing systems keep on the node, by system."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._worker = Worker("sharing")
        self._found: dict[str, SystemFiles] = {}

    async def read(self) -> Mapping[str, SystemFiles]:
        """Read the files of every system; those of one that fails as a whole are one problem."""
        return await self._worker.run(self._read)

    def _read(self) -> Mapping[str, SystemFiles]:
        before = self._found
        self._found = {
            name: with_known(files, before.get(name)) for name, files in read_files(self._roots).items()
        }
        return self._found

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()


class Jobs:
    """The files in which a batch system says which of its jobs have which GPU."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._worker = Worker("jobs")

    async def read(self) -> JobFiles:
        """Read the files; raises JobFilesError where there is no such directory."""
        return await self._worker.run(lambda: read_jobs(self._directory))

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()


def _dcgm(settings: Settings, patience: float) -> "DcgmScrape | None":
    """Make the source of a dcgm-exporter's series, where one is named."""
    url = settings.dcgm_exporter_url
    if url is None:
        return None
    # A client of HTTP takes a quarter of a second to import, which one poll without it can do without.
    from exporter.dcgm_scrape.client import DcgmScrape  # noqa: PLC0415

    return DcgmScrape(url, patience, stale_after=settings.stale_after)


def _roots(settings: Settings) -> Roots:
    return Roots(
        hami=settings.hami_root,
        hami_vnpu=settings.hami_vnpu_root,
        cgpu=settings.cgpu_root,
        vcuda=settings.vcuda_root,
        vgpu_manager=settings.vgpu_manager_root,
        mps=settings.mps_root,
        run=settings.runai_root,
        kubelet=settings.kubelet_root,
    )


class Processes:
    """The process table of the node, as long as its pids mean to the driver what they mean to us."""

    def __init__(self, proc_root: Path) -> None:
        self._proc_root = proc_root
        self._table = ProcessTable(proc_root, os.environ.get("POD_UID") or None)
        self._worker = Worker("proc")
        self._view: tuple[bool, str] = (False, "")
        self._checked: float | None = None

    async def read(
        self, pids: Mapping[int, float | None], search: Callable[[Mapping[int, ProcessPlace]], bool]
    ) -> Placed:
        """Place pids, each given with the boot clock when the driver named it.

        ``search`` returns, given the places, True if all processes of the node are to be searched for pods.
        Raises NoProcessViewError when no per-process number can be trusted.
        """
        return await self._worker.run(lambda: self._read(pids, search))

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()

    def _read(
        self, pids: Mapping[int, float | None], search: Callable[[Mapping[int, ProcessPlace]], bool]
    ) -> Placed:
        now = time.monotonic()
        due = self._checked is None or now - self._checked > RECHECK_VIEW_SECONDS
        if due and not self._view[0]:
            self._view, self._checked = process_view(self._proc_root), now
        proven, reason = self._view
        if not proven:
            raise NoProcessViewError(f"per-process numbers are off: {reason}")
        places = self._table.read(pids)
        return Placed(places, read_running(self._proc_root) if search(places) else None)
