"""Requests to release the driver: by a file, a signal or a label of the node."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from exporter.concurrency import NoThreadError, Worker, wait_for

_MIG_STATE: Final = "nvidia.com/mig.config.state"
_IN_PROGRESS: Final = ("pending", "rebooting")
# The GPU Operator and its managers of drivers, MIG and vGPU remove the operator's pods from a node by these,
# with values such as paused-for-driver-upgrade, paused-for-mig-change and paused-for-vgpu-change.
_DEPLOY: Final = "nvidia.com/gpu.deploy."
_PAUSED: Final = "paused-for-"
# For GPU clients that are not the operator's own. The other labels are "false" for good on nodes without that
# part of the operator, which is not a request to us.
_CLIENT: Final = f"{_DEPLOY}client"
log = logging.getLogger(__name__)
CHECK_SECONDS: Final = 0.5
# Before the first poll, and outside of its budget: how long the start waits for a file system that hangs.
FIRST_SECONDS: Final = 5.0
# The sender of a signal may forget the second one, and the writer of a label may die. A file has no limit: it
# can be seen, and is removed by its writer.
LONGEST_BY_SIGNAL: Final = 900.0
LONGEST_BY_LABEL: Final = 3600.0


def reason_of(labels: Mapping[str, str]) -> str:
    """Return the label that requests the driver, as ``nvidia.com/mig.config.state is pending``, or ""."""
    reasons = (f"{name} is {value}" for name, value in sorted(labels.items()) if _is_request(name, value))
    return next(reasons, "")


def _is_request(name: str, value: str) -> bool:
    if name == _MIG_STATE:
        return value in _IN_PROGRESS
    return (name.startswith(_DEPLOY) and value.startswith(_PAUSED)) or (name == _CLIENT and value == "false")


def _exists(file: Path) -> bool:
    """Return whether a file exists; raises OSError if it cannot, because its directory does not."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        if not file.parent.is_dir():
            raise OSError(f"the directory {file.parent} does not exist") from None
        return False
    return True


class Release:
    """The requests to release the driver: ``file`` by its existence, signals, and labels of the node.

    ``changed`` is set whenever the reason changes; its waiter clears it. ``by_signal`` and ``by_label`` limit
    the requests of a signal and of a label, in seconds.
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
        # By requester, in the order in which they are reported.
        self._reasons = {"file": "", "signal": "", "labels": ""}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._label_reason = ""
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._worker = Worker("driver-release-file")
        self.objection = ""  # why the file cannot be looked for

    def reason(self) -> str:
        """Return why the driver is to be released, as a sentence without a full stop; "" if it is not."""
        return next(filter(None, self._reasons.values()), "")

    async def start(self) -> None:
        """Start to watch the file; return after the first look, or after FIRST_SECONDS."""
        if self._file is not None:
            self._task = asyncio.create_task(self._follow_file(self._file))
            await wait_for(self._looked, FIRST_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for end in self._ends.values():
            end.cancel()
        self._worker.stop()

    def release(self) -> None:
        """Release the driver on SIGUSR1, for ``by_signal`` seconds at most; called on the event loop."""
        self._ask("signal", "SIGUSR1 was received", self._by_signal)

    def reopen(self) -> None:
        """Open the driver again on SIGUSR2, unless a file or a label requests its release."""
        self._ask("signal", "")

    async def _follow_file(self, file: Path) -> None:
        while True:
            exists, objection = None, ""
            try:
                exists = await self._worker.run(lambda: _exists(file))
            except NoThreadError as error:
                objection = str(error)
            except OSError as error:
                # An unreadable directory is not a request: GPUs stay visible.
                exists, objection = False, str(error)
            # Logged once until it changes.
            if objection not in ("", self.objection):
                log.warning("cannot look for the release file: %s", objection)
            self.objection = objection
            if exists is not None:
                self._ask("file", f"the file {file} exists" if exists else "")
                self._looked.set()
            await asyncio.sleep(CHECK_SECONDS)

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Take the labels of the node, {} while they are unknown."""
        reason = reason_of(labels)
        # Other labels change all the time; they must not renew an expired request.
        if reason != self._label_reason:
            self._label_reason = reason
            self._ask("labels", reason, self._by_label)

    def _ask(self, requester: str, reason: str, longest: float | None = None) -> None:
        """Note the request of one requester, "" for none; it expires after ``longest`` seconds."""
        if requester in self._ends:
            self._ends.pop(requester).cancel()
        if reason and longest is not None:
            loop = asyncio.get_running_loop()
            self._ends[requester] = loop.call_later(longest, self._expire, requester, longest)
        old = self.reason()
        self._reasons[requester] = reason
        new = self.reason()
        if new != old:
            self.changed.set()
            log.info("driver %s", f"released: {new}" if new else "opened again")

    def _expire(self, requester: str, longest: float) -> None:
        log.warning(
            "release request did not end within %g s (%s); opening the driver again",
            longest,
            self._reasons[requester],
        )
        self._ask(requester, "")
