"""The sources of a node, made from the settings."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exporter.amd import AmdOptions, AmdSource
from exporter.config import Settings
from exporter.kubernetes import Cluster, access
from exporter.nvml import NvmlOptions, NvmlSource
from exporter.poll.budget import Budget
from exporter.poll.file_readers import (
    CgroupReader,
    HostDeviceReader,
    JobFileReader,
    ProcessReader,
    SharingFileReader,
    SocketFileReader,
)
from exporter.poll.pod_names import PodNames
from exporter.poll.release_window import Release
from exporter.sharing.base import Roots
from exporter.workloads.pid_namespace import counts_machine_pids
from exporter.workloads.processes import boot_seconds
from podresources.client import PodResourcesApi

if TYPE_CHECKING:
    from exporter.dcgm_scrape.client import DcgmScrape


class Sources:
    """All sources of a poll. ``nvml_library`` is an object to use in place of the driver's library.

    ``clock`` (seconds) dates the readings of GPUs and the answers of the Pods API. ``budget`` defaults to
    that of the polling interval. ``skip`` are readings of NVIDIA GPUs that are not read, as for NvmlOptions.
    """

    def __init__(
        self,
        settings: Settings,
        nvml_library: Any = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        budget: Budget | None = None,
        skip: frozenset[str] = frozenset(),
    ) -> None:
        self.clock = clock
        self.budget = budget or Budget.of_interval(settings.poll_interval)
        self.wake = asyncio.Event()  # set when the next poll should start at once
        self.release = Release(settings.driver_release_file, changed=self.wake)
        self.cluster = Cluster(
            settings.node_name, access(settings.kubernetes_api, settings.kubeconfig), self.release.set_labels
        )
        # Directories of the cgroups that the driver is asked about, by UUID of the GPU; set after each poll.
        self.limited_cgroups: Mapping[str, Sequence[str]] = {}
        self.nvml = NvmlSource(self._nvml_options(settings, nvml_library, skip), self.wake)
        self.amd = AmdSource(
            AmdOptions(
                sys_root=settings.sys_root,
                call_timeout=self.budget.call_timeout,
                card_budget=self.budget.card,
                boot_clock=lambda: boot_seconds(settings.proc_root),
                clock=clock,
                machine_pids=lambda: counts_machine_pids(settings.proc_root),
            )
        )
        self.dcgm = _dcgm(settings, self.budget.request_timeout)
        self.pod_resources = PodResourcesApi(
            settings.pod_resources_socket, timeout=self.budget.request_timeout
        )
        self.kubelet_socket = SocketFileReader(settings.pod_resources_socket)
        self.names = PodNames(
            settings.pods_api_socket,
            settings.pod_log_dir,
            self.budget.pods_api,
            lambda: self.cluster.pods,
            keep=settings.stale_after,
            clock=clock,
        )
        self.own_uid = os.environ.get("POD_UID") or ""  # uid of our own pod, "" outside a pod
        self.processes = ProcessReader(settings.proc_root, self.own_uid)
        self.cgroups = CgroupReader(settings.cgroup_root, settings.proc_root, self.own_uid)
        self.host_devices = HostDeviceReader(settings.sys_root)
        self.files = SharingFileReader(_roots(settings))
        self.jobs = None if settings.job_mapping_dir is None else JobFileReader(settings.job_mapping_dir)

    def _nvml_options(self, settings: Settings, library: Any, skip: frozenset[str]) -> NvmlOptions:
        return NvmlOptions(
            path=settings.nvml_library,
            library=library,
            sys_root=settings.sys_root,
            pcie_throughput=settings.pcie_throughput,
            skip=skip,
            boot_clock=lambda: boot_seconds(settings.proc_root),
            clock=self.clock,
            machine_pids=lambda: counts_machine_pids(settings.proc_root),
            released=self.release.reason,
            limited_cgroups=lambda: self.limited_cgroups,
            call_timeout=self.budget.call_timeout,
            gpu_budget=self.budget.gpu,
        )

    async def start(self) -> None:
        """Read the requests to release the driver, which the first poll must obey."""
        await asyncio.gather(self.cluster.start(), self.release.start())

    async def close(self) -> None:
        """Shut the driver down, and stop all threads; does not wait for a source that hangs."""
        await self.pod_resources.close()
        await self.names.close()
        readers = self.kubelet_socket, self.processes, self.cgroups, self.host_devices, self.files
        for reader in (*readers, self.jobs, self.dcgm):
            if reader is not None:
                reader.close()
        await asyncio.gather(self.cluster.close(), self.release.close())
        await asyncio.gather(self.nvml.close(), self.amd.close())


def _dcgm(settings: Settings, timeout: float) -> "DcgmScrape | None":
    """Return the source of a dcgm-exporter's series, None if no URL is set."""
    url = settings.dcgm_exporter_url
    if url is None:
        return None
    # An HTTP client takes a quarter of a second to import.
    from exporter.dcgm_scrape.client import DcgmScrape  # noqa: PLC0415

    return DcgmScrape(url, timeout, stale_after=settings.stale_after)


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
