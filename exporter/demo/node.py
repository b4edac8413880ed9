"""A running fake node: driver, kubelet and files, driven by one clock.

async with FakeNode(scenario) as node:
    ...  # point the exporter at node.nvml and node.paths
"""

import asyncio
import contextlib
import math
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from exporter.demo.amd_tree import AmdTree
from exporter.demo.cgroup_memory import CgroupMemory
from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.machine import GpuState, Machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import Present, present
from exporter.demo.scenario import Scenario
from exporter.demo.sharing_files import SharingFiles
from exporter.demo.tree import Tree

PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Paths of the node for the exporter's options of these names; by default relative to its root."""

    kubelet_root: Path = Path("var/lib/kubelet")
    pod_resources_socket: Path = Path("var/lib/kubelet/pod-resources/kubelet.sock")
    pods_api_socket: Path = Path("var/lib/kubelet/pods-api/pods-api.sock")
    pod_log_dir: Path = Path("var/log/pods")
    proc_root: Path = Path("proc")
    sys_root: Path = Path("sys")
    cgroup_root: Path = Path("sys/fs/cgroup")
    hami_root: Path = Path("usr/local/vgpu")
    hami_vnpu_root: Path = Path("usr/local/hami-vnpu-core")
    cgpu_root: Path = Path("proc/cgpu_km")
    vcuda_root: Path = Path("etc/gpu-manager/vm")
    vgpu_manager_root: Path = Path("etc/vgpu-manager")
    mps_root: Path = Path("run/nvidia/mps")
    runai_root: Path = Path("runai")

    def below(self, root: Path) -> Self:
        """Return the same paths below ``root``."""
        return replace(self, **{field.name: root / getattr(self, field.name) for field in fields(self)})


class FakeNode:
    """A node that plays ``scenario``; an async context manager.

    Without ``clock`` time passes by itself. With one (seconds since the start) it changes only when
    ``advance`` or ``step`` is called. ``now`` is the node at the current time, ``gpus`` and ``amd`` are the
    states of its GPUs. Files are below ``root``, by default a temporary folder that is removed at the end.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        root: Path | None = None,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.scenario = scenario
        self.name = scenario.node.name
        self._root = root or Path(tempfile.mkdtemp(prefix="gpuslice-"))
        # Removes a temporary root, at the latest with this object.
        self._remove = None if root else weakref.finalize(self, shutil.rmtree, self._root)
        self._clock = clock
        self._started = time.time()
        uptime = time.monotonic()
        self._tree = Tree(scenario, self._root, booted=self._started - uptime, uptime=uptime)
        self._amd_tree = AmdTree(scenario.amd, self._root / "sys")
        self._files = SharingFiles(scenario, self._root)
        self._cgroups = CgroupMemory(scenario, self._root)
        self._machine = Machine(seed)
        self._amd_machine = Machine(seed)
        self.nvml = FakeNvml(scenario.node, scenario.missing_functions, host_pid=scenario.host_pid)
        self.paths = Paths().below(self._root)
        self.kubelet = FakeKubelet(
            self.paths.kubelet_root,
            api_versions=scenario.kubelet_api,
            pods_api=scenario.identity == "pods_api",
        )
        self._kubelet_up = False
        self._offered = tuple((offer.resource, key) for offer in scenario.offers for key in offer.ids)
        self.now: Present = present(scenario, 0.0)
        self.gpus: tuple[GpuState, ...] = ()
        self.amd: tuple[GpuState, ...] = ()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            self._tree.create()
            self._amd_tree.create()
            await self.step(0.0)
        except BaseException:
            await self._stop()
            raise
        if self._clock is None:
            began = time.monotonic()
            self._clock = lambda: time.monotonic() - began
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stop()

    @property
    def time(self) -> float:
        """The current time of the scenario in seconds."""
        return self.now.time

    async def advance(self) -> None:
        """Bring the node to the time of its clock."""
        if self._clock is not None:
            await self.step(self._clock())

    async def step(self, t: float) -> None:
        """Bring the node to ``t`` seconds after its start; time must not go back."""
        self.now = present(self.scenario, t)
        # Files first: a process that the driver lists must exist in /proc.
        self._tree.step(self.now)
        wall = self._started + t
        self.gpus = self._machine.step(self.now, wall)
        self._files.step(self.now, self.gpus)
        self.amd = self._amd_machine.step(replace(self.now, gpus=self.now.amd, loaded=True), wall)
        self._amd_tree.step(self.amd)
        self.nvml.limits = self._cgroups.step(self.now, (*self.gpus, *self.amd))
        self.nvml.show(self.gpus, self.now.nvml_faults, loaded=self.now.loaded)
        await self._step_kubelet(self.now)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.advance()

    async def _step_kubelet(self, now: Present) -> None:
        self.kubelet.pods = now.pods
        self.kubelet.offered = tuple(offer for offer in self._offered if offer not in now.unhealthy)
        self.kubelet.rate_limited = "kubelet_rate_limit" in now.kubelet_failures
        self.kubelet.delay = math.inf if "kubelet_hang" in now.kubelet_failures else 0.0
        down = "kubelet_down" in now.kubelet_failures
        restarted = now.kubelet_filled is not None and self.kubelet.filled is None
        self.kubelet.filled = now.kubelet_filled
        if self._kubelet_up and (down or restarted):
            self._kubelet_up = False
            await self.kubelet.stop()
        if not down and not self._kubelet_up:
            await self.kubelet.start()
            self._kubelet_up = True

    async def _stop(self) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._task
        finally:
            # A call that hangs in the driver would keep its thread and the program alive.
            self.nvml.release()
            await self.kubelet.stop()
            if self._remove is not None:
                self._remove()
