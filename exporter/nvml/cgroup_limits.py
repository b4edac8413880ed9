"""Memory limits of cgroups that the driver enforces itself, on kernels without the controller ``dmem``."""

import os
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.model.bounds import BYTES
from exporter.model.readings import CgroupMemory
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.memory_limits import NO_LIMIT, MemoryLimits
from exporter.nvml.readings.answers import believed, forget, keep_only

CALL = "nvmlDeviceGetMemoryLimits_v1"
GROUP = "memory"


class CgroupLimitReader:
    """Reads the limits of the cgroups of each GPU's holders once a minute, of a new one at once.

    ``paths`` returns the directories of the cgroups to ask about, by UUID of the GPU.
    """

    def __init__(self, paths: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._paths = paths
        self._kept: dict[str, dict[str, CgroupMemory]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, *, slow: bool) -> dict[str, CgroupMemory]:
        """Return the memory of cgroups by their directory; raises as ``Calls.ask`` does.

        For a cgroup without a limit the driver answers with the nearest one above that has a limit, so those
        above a limited one are asked about as well, up to one with other limits.
        """
        wanted = self._paths().get(uuid, ())
        before = {} if slow else self._kept.get(uuid, {})
        answers: dict[str, CgroupMemory | None] = {}

        def ask(path: str) -> CgroupMemory | None:
            if path not in answers:
                answers[path] = before[path] if path in before else _ask(calls, uuid, handle, path)
            return answers[path]

        calls.group = GROUP
        for path in wanted:
            self._ask_upward(path, ask)
        self._kept[uuid] = {path: memory for path, memory in answers.items() if memory is not None}
        return self._kept[uuid]

    @staticmethod
    def _ask_upward(path: str, ask: Callable[[str], CgroupMemory | None]) -> None:
        memory = ask(path)
        while memory is not None and memory.limited and not os.path.ismount(path):
            limits, path = memory.limits, posixpath.dirname(path)
            memory = ask(path)
            if memory is not None and memory.limits != limits:
                return

    def forget(self, uuid: str | None = None) -> None:
        """Drop what is kept of a GPU, or of all."""
        forget(uuid, self._kept)

    def keep_only(self, gpus: Collection[str]) -> None:
        """Drop what is kept of all other GPUs."""
        keep_only(gpus, self._kept)


def _ask(calls: Calls, uuid: str, handle: Any, path: str) -> CgroupMemory | None:
    """Return the driver's answer for a cgroup, None without one, as after the end of a container."""
    if not Path(path).is_dir():
        return None
    answer = calls.ask(uuid, CALL, handle, since=os.fsencode(path))
    return None if answer is None else _memory(calls, uuid, answer)


def _memory(calls: Calls, uuid: str, answer: MemoryLimits) -> CgroupMemory | None:
    """Return the memory of a cgroup, None if the driver's numbers are impossible."""
    numbers = (answer.soft, answer.used, *(() if answer.hard == NO_LIMIT else (answer.hard,)))
    if any(believed(calls, uuid, CALL, number, BYTES) is None for number in numbers):
        return None
    limit = None if answer.hard == NO_LIMIT else answer.hard
    return CgroupMemory(used=answer.used, guaranteed=answer.soft, limit=limit)
