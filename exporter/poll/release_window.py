"""Requests to release the driver: by a file, a signal or a label of the node."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from exporter.concurrency import NoThreadError, Worker, wait_for

_MIG_STATE: Final = "nvidia.com/mig.config.state"
_AT_WORK: Final = ("pending", "rebooting")
# The GPU Operator and its managers of drivers, MIG and vGPU take the operator's pods off a node by these,
# with values such as paused-for-driver-upgrade, paused-for-mig-change and paused-for-vgpu-change.
_DEPLOY: Final = "nvidia.com/gpu.deploy."
_PAUSED: Final = "paused-for-"
# For GPU clients that are not the operator's own. The others are "false" for good where somebody does not
# want one of the operator's parts, which says nothing about us.
_CLIENT: Final = f"{_DEPLOY}client"


def reason_of(labels: Mapping[str, str]) -> str:
    """Return why the labels ask for the driver, such as ``nvidia.com/mig.config.state is pending``, or ""."""
    reasons = (f"{name} is {value}" for name, value in sorted(labels.items()) if _asks(name, value))
    return next(reasons, "")


def _asks(name: str, value: str) -> bool:
    if name == _MIG_STATE:
        return value in _AT_WORK
    return (name.startswith(_DEPLOY) and value.startswith(_PAUSED)) or (name == _CLIENT and value == "false")


log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.5
# So long the first poll waits for a file system that hangs.
FIRST_SECONDS: Final = 5.0
# Whoever sends the signal may forget the other one, and whoever sets a label may die of it. A file is
# removed by who made it: it is there to be seen.
LONGEST_BY_SIGNAL: Final = 900.0
LONGEST_BY_LABEL: Final = 3600.0


class Release:
    """Answers whether the driver is to be given up, and why.

    ``file`` asks for it by being there, the node's labels as they are told. ``changed`` is set whenever the
    reason changes; who waits for it clears it. The two durations, in seconds, bound what a signal and a label
    can ask for.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        changed: asyncio.Event | None = None,
        by_signal: float = LONGEST_BY_SIGNAL,
        by_label: float = LONGEST_BY_LABEL,
    ) -> None:
        self.changed = changed or asyncio.Event()
        self._file = file
        self._by_signal = by_signal
        self._by_label = by_label
        # By who asks, the one who is named first where several do.
        self._reasons = {"file": "", "signal": "", "labels": ""}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._label_reason = ""
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._worker = Worker("driver-release-file")
        self._objection = ""

    def reason(self) -> str:
        """Return why the driver is to be given up, as a sentence without a full stop; "" if it is not."""
        return next(filter(None, self._reasons.values()), "")

    async def start(self) -> None:
        """Begin to look for the file, and return once that was done, or some seconds later."""
        if self._file is not None:
            self._task = asyncio.create_task(self._follow_file(self._file))
            await wait_for(self._looked, FIRST_SECONDS)

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for end in self._ends.values():
            end.cancel()
        self._worker.stop()

    def give_up(self) -> None:
        """Give the driver up because SIGUSR1 says so, for a while at most; called on the event loop."""
        self._ask("signal", "SIGUSR1 was received", self._by_signal)

    def take_again(self) -> None:
        """Take the driver again because SIGUSR2 says so, unless somebody else wants it."""
        self._ask("signal", "")

    async def _follow_file(self, file: Path) -> None:
        while True:
            try:
                there = await self._worker.run(lambda: self._exists(file))
            except NoThreadError as error:
                self._object(f"cannot look for the release file: {error}")
            else:
                self._ask("file", f"the file {file} exists" if there else "")
                self._looked.set()
            await asyncio.sleep(LOOK_SECONDS)

    def _exists(self, file: Path) -> bool:
        try:
            file.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._objection = ""
            return False
        except OSError as error:
            # A directory that nobody may look into asks for nothing: it is better to see than to be blind.
            self._object(f"cannot look for the release file: {error}")
            return False
        self._objection = ""
        return True

    def _object(self, objection: str) -> None:
        """Tell the log of it, once until it is over."""
        if objection != self._objection:
            log.warning("%s", objection)
        self._objection = objection

    def labels_told(self, labels: Mapping[str, str]) -> None:
        """Hear the labels of the node, {} when they are not known any more."""
        reason = reason_of(labels)
        # Other labels change all the time; a wish that has run out is not renewed by them.
        if reason != self._label_reason:
            self._label_reason = reason
            self._ask("labels", reason, self._by_label)

    def _ask(self, who: str, reason: str, longest: float | None = None) -> None:
        """Note what somebody wants, for ``longest`` seconds at most."""
        if who in self._ends:
            self._ends.pop(who).cancel()
        if reason and longest is not None:
            loop = asyncio.get_running_loop()
            self._ends[who] = loop.call_later(longest, self._run_out, who, longest)
        before = self.reason()
        self._reasons[who] = reason
        if self.reason() != before:
            self.changed.set()
            log.info("driver %s", f"released: {now}" if (now := self.reason()) else "opened again")

    def _run_out(self, who: str, longest: float) -> None:
        log.warning(
            "%s, but it did not end within %g s; opening the driver again", self._reasons[who], longest
        )
        self._ask(who, "")


__all__ = ["Release"]
