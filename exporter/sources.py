"""The sources of a node as the settings name them, and what it takes to read each."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.hardware import NvmlSource
from exporter.model import PodIdentity, ProcessPlace
from exporter.settings import Settings
from exporter.worker import Worker
from exporter.workloads.identity import index_pods, read_pod_logs
from exporter.workloads.pid_view import process_view
from exporter.workloads.processes import ProcessTable, boot_seconds
from podresources.client import PodResources
from podresources.errors import KubeletError
from podresources.pods import Pods

log = logging.getLogger(__name__)
# The namespace of a running process does not change, but what can be seen from it may appear later.
RECHECK_VIEW_SECONDS = 60.0
SHORTEST_DEADLINE = 2.0
LONGEST_DEADLINE = 10.0


class NoNamesError(Exception):
    """No source of pod names answers; ``reason`` counts it."""

    reason = "no_source"


class NoProcessViewError(Exception):
    """Per-process numbers cannot be trusted on this node; the text says why and what to do."""

    reason = "no_process_view"


def source_deadline(poll_interval: float) -> float:
    """Return how many seconds a source may take before the poll goes on without it."""
    return min(max(poll_interval, SHORTEST_DEADLINE), LONGEST_DEADLINE)


class Sources:
    """Everything that a poll reads. ``nvml_library`` is an object to use in place of the driver's library."""

    def __init__(self, settings: Settings, nvml_library: Any = None) -> None:
        self.nvml = NvmlSource(
            settings.nvml_library, nvml_library, boot_clock=lambda: boot_seconds(settings.proc_root)
        )
        # A client gives up before its collector does, so that its own message is told.
        patience = source_deadline(settings.poll_interval) - 0.5
        self.pod_resources = PodResources(settings.pod_resources_socket, timeout=patience)
        self.names = PodNames(settings.pods_api_socket, settings.pod_logs, patience / 2)
        self.processes = Processes(settings.proc_root)

    async def close(self) -> None:
        """Shut the driver down; a source that hangs is not waited for by this object."""
        self.names.close()
        self.processes.close()
        await self.nvml.close()


class PodNames:
    """The ladder of pod names: the kubelet's Pods API where it is, else the listing of pod logs.

    The Pods API may take ``patience`` seconds, so that there is time left for the logs.
    """

    def __init__(self, socket: Path, logs: Path, patience: float) -> None:
        self._socket = socket
        self._logs = logs
        self._pods = Pods(socket, timeout=patience)
        self._worker = Worker("pod-logs")

    async def read(self) -> Mapping[str, PodIdentity]:
        """Return the pods of this node by uid; raises NoNamesError when no source answers."""
        objections = []
        try:
            if self._socket.exists():
                return index_pods(await self._pods.read())
        except (KubeletError, OSError) as error:
            objections.append(str(error))
        try:
            return index_pods(await self._worker.run(lambda: read_pod_logs(self._logs)))
        except OSError as error:
            objections.append(str(error))
        raise NoNamesError("; ".join(objections))

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()


class Processes:
    """The process table of the node, as long as its pids mean to the driver what they mean to us."""

    def __init__(self, proc_root: Path) -> None:
        self._proc_root = proc_root
        self._table = ProcessTable(proc_root, os.environ.get("POD_UID") or None)
        self._worker = Worker("proc")
        self._view: tuple[bool, str] = (False, "")
        self._checked: float | None = None

    async def read(self, pids: Mapping[int, float | None]) -> Mapping[int, ProcessPlace]:
        """Place pids, each given with the boot clock when the driver named it.

        Raises NoProcessViewError when no per-process number can be trusted.
        """
        return await self._worker.run(lambda: self._read(pids))

    def close(self) -> None:
        """Let the thread end."""
        self._worker.stop()

    def _read(self, pids: Mapping[int, float | None]) -> Mapping[int, ProcessPlace]:
        now = time.monotonic()
        due = self._checked is None or now - self._checked > RECHECK_VIEW_SECONDS
        if due and not self._view[0]:
            self._view, self._checked = process_view(self._proc_root), now
        proven, reason = self._view
        if not proven:
            raise NoProcessViewError(f"per-process numbers are off: {reason}")
        return self._table.read(pids)
