"""NVML as a source of the poller, in a worker thread.

A call into a faulty driver can hang forever, and its thread cannot be ended. The thread is abandoned (as a
daemon it does not keep the program from exiting), and a new one sweeps without the place of that call until
the call returns: a GPU, a MIG slot, or a part that all GPUs share, such as the event set. So at most one
thread hangs for each place. A call about the driver as a whole, such as opening it, is not abandoned: the
source fails with ``deadline`` until it returns.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace

from exporter.concurrency import ReplaceableWorker
from exporter.model import Cost, DriverInfo, GpuReading, HardwareReading
from exporter.nvml.driver.library import DriverError, NvmlOptions, remedy
from exporter.nvml.sweep import STUCK, Sweeper

UNKNOWN = "Unknown"
RESTART_REASONS = frozenset({"LibRmVersionMismatch", UNKNOWN, STUCK})
# Reasons of DriverError while the driver is requested to be released: it is, or it cannot be.
RELEASED, HELD = "Released", "NotReleased"
# Errors of a sweep without information about GPUs: the last readings are kept until they are stale.
TEMPORARY = frozenset({"NoCount"})


class NvmlSource:
    """The node's GPUs through NVML. ``wake`` is set by events that call for an early read."""

    def __init__(self, options: NvmlOptions, wake: asyncio.Event | None = None) -> None:
        # Why only a restart of this process can help; None if it is not needed.
        self.restart_reason: str | None = None
        self._options = options
        self._latest: HardwareReading | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = wake
        self._sweeper = Sweeper(options, self._request_read)
        self._worker = ReplaceableWorker("nvml", options.call_timeout, self._sweeper.abandon_if_hung)

    @property
    def latest(self) -> HardwareReading:
        """The newest reading of every GPU, each with its own time, and all events until now."""
        if self._latest is None:
            return HardwareReading()
        # Events also arrive between sweeps, and while a sweep hangs.
        watched, events, recent = self._sweeper.events.log.snapshot()
        return replace(self._latest, watched=watched, events=events, recent=recent)

    async def read(self) -> HardwareReading:
        """Return the readings of one sweep. Raises DriverError if the driver does not answer.

        While it is requested to be released, the driver is shut down, and the error's reason is ``Released``.
        """
        self._loop = asyncio.get_running_loop()
        return await self._worker.run(self._read)

    async def list_again(self, uuids: Collection[str], within: float) -> dict[str, frozenset[int]]:
        """Return the pids on GPUs without MIG after a sweep, by uuid; waits up to ``within`` seconds.

        GPUs that have not answered by then are left out. Never raises: all else of the poll has been read.
        """
        listing = asyncio.ensure_future(self._worker.run(lambda: self._sweeper.list_again(uuids)))
        await asyncio.wait({listing}, timeout=within)
        if not listing.done():
            listing.cancel()
        elif listing.exception() is None:
            return listing.result()
        return {}

    async def close(self) -> None:
        """Shut the driver down, after a running sweep."""
        await self._worker.finish(self._sweeper.close)

    def _request_read(self) -> None:
        """Request an early read; in the thread that waits for events."""
        if self._wake is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _read(self) -> HardwareReading:
        released = self._options.released()
        if not released:
            return self._sweep()
        self.restart_reason = None
        if self._sweeper.close():
            self._publish_gone(released)
            raise DriverError(RELEASED, f"the driver is released because {released}")
        self._publish_gone()
        raise DriverError(
            HELD, f"{released}, but a call into the driver does not return: it cannot be released"
        )

    def _sweep(self) -> HardwareReading:
        earlier_errors = self._sweeper.calls.records.errors.copy()
        last = self._latest.gpus if self._latest is not None else ()
        published = {reading.identity.uuid: reading for reading in last}
        readings: dict[str, GpuReading] = {}
        error: DriverError | None = None
        try:
            for reading in self._sweeper.sweep():
                readings[reading.identity.uuid] = reading
                self._publish((published | readings).values())
        except DriverError as failure:
            error = failure
        # The device nodes of this container were revoked: every GPU answers 'unknown error'.
        failed = {name for _, _, name in self._sweeper.calls.records.errors - earlier_errors}
        if failed == {UNKNOWN} and not any(reading.up for reading in readings.values()):
            error = DriverError(UNKNOWN, remedy(UNKNOWN))
        self.restart_reason = str(error) if error is not None and error.reason in RESTART_REASONS else None
        if error is None:
            return self._publish(readings.values())
        if error.reason not in TEMPORARY:
            self._publish_gone()
        elif self._latest is not None:
            self._latest = replace(
                self._latest, errors=dict(self._sweeper.calls.records.errors), costs=self._costs()
            )
        raise error

    def _publish_gone(self, released: str = "") -> None:
        """Publish the known facts of all GPUs while the driver does not answer."""
        known = self._publish(self._sweeper.gone())
        self._latest = replace(known, driver=DriverInfo(), gpu_count=None, released=released)

    def _publish(self, gpus: Iterable[GpuReading]) -> HardwareReading:
        self._latest = HardwareReading(
            driver=self._sweeper.driver,
            gpus=tuple(gpus),
            gpu_count=self._sweeper.gpu_count,
            errors=dict(self._sweeper.calls.records.errors),
            costs=self._costs(),
        )
        return self._latest

    def _costs(self) -> dict[str, Cost]:
        calls = self._sweeper.calls
        return {
            group: Cost(
                calls=calls.records.asked[group],
                seconds=seconds,
                driver_microseconds=calls.records.driver_microseconds.get(group),
            )
            for group, seconds in sorted(calls.records.seconds.items())
        }
