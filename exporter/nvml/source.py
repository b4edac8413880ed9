"""NVML as a source of the poller: one worker thread, one hop per sweep.

A call into a sick driver can hang for ever, in a thread that nothing can end. It is a daemon (the program can
still exit) and is left behind: another thread sweeps in its place, and leaves out the device that the call
is about until it returns. So no more threads hang than there are devices.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from exporter.hangs import ReplaceableWorker
from exporter.model import Cost, DriverInfo, GpuReading, HardwareReading
from exporter.nvml.driver.library import DriverError, NvmlOptions, advice
from exporter.nvml.sweep import STUCK, Sweeper

UNKNOWN = "Unknown"
RESTART_REASONS = frozenset({"LibRmVersionMismatch", UNKNOWN, STUCK})
# Reasons of a driver that is to be given up: it was, or it could not be.
RELEASED, HELD = "Released", "NotReleased"
# Errors of one sweep that say nothing of the GPUs: what was read before stands until it is stale.
PASSING = frozenset({"NoCount"})


class NvmlSource:
    """The node's GPUs through NVML.

    ``wake`` is set when a GPU reports something that makes an early read worth while.
    ``restart_reason`` says why only a restart of this process can help, or is None.
    """

    def __init__(self, options: NvmlOptions | None = None, wake: asyncio.Event | None = None) -> None:
        self.restart_reason: str | None = None
        self._options = options or NvmlOptions()
        self._latest: HardwareReading | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = wake
        self._sweeper = Sweeper(self._options, self._call)
        self._worker = ReplaceableWorker("nvml", self._options.patience, self._sweeper.leave)

    @property
    def latest(self) -> HardwareReading | None:
        """The newest reading of every GPU, each with its own time, and all events until now."""
        if self._latest is None:
            return None
        # Events come between sweeps too, and while a sweep hangs.
        watched, events, recent = self._sweeper.events.log.snapshot()
        return replace(self._latest, watched=watched, events=events, recent=recent)

    async def read(self) -> HardwareReading:
        """Sweep once, in the worker thread; raises DriverError when the driver does not answer.

        While the driver is to be given up it is shut down instead, which is an error named ``Released``.
        """
        self._loop = asyncio.get_running_loop()
        return await self._worker.run(self._read)

    async def close(self) -> None:
        """Shut the driver down, once; waits for a sweep that is still under way."""
        await self._worker.finish(self._sweeper.close)

    def _call(self) -> None:
        """Call for an early read; from the thread that waits for events."""
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
        raise DriverError(HELD, f"{released}, but a call into the driver does not return: it stays open")

    def _sweep(self) -> HardwareReading:
        failures = self._sweeper.calls.errors.copy()
        found: dict[str, GpuReading] = {}
        error: DriverError | None = None
        try:
            for reading in self._sweeper.sweep():
                found[reading.identity.uuid] = reading
                self._publish((self._older() | found).values())
        except DriverError as failure:
            error = failure
        if _taken_away(found, self._sweeper.calls.errors - failures):
            error = DriverError(UNKNOWN, advice(UNKNOWN))
        self.restart_reason = str(error) if error is not None and error.reason in RESTART_REASONS else None
        if error is None:
            return self._publish(found.values())
        # A driver that hangs or fails to count may be well again in a moment; this one says that it is gone.
        if error.reason not in PASSING:
            self._publish_gone()
        elif self._latest is not None:
            self._latest = replace(self._latest, errors=dict(self._sweeper.calls.errors), costs=self._costs())
        raise error

    def _older(self) -> dict[str, GpuReading]:
        gpus = self._latest.gpus if self._latest is not None else ()
        return {reading.identity.uuid: reading for reading in gpus}

    def _publish_gone(self, released: str = "") -> None:
        """Publish what is still known while the driver tells nothing."""
        known = self._publish(self._sweeper.gone())
        self._latest = replace(known, driver=DriverInfo(), gpu_count=None, released=released)

    def _publish(self, gpus: Iterable[GpuReading]) -> HardwareReading:
        self._latest = HardwareReading(
            driver=self._sweeper.driver,
            gpus=tuple(gpus),
            gpu_count=self._sweeper.gpu_count,
            errors=dict(self._sweeper.calls.errors),
            costs=self._costs(),
        )
        return self._latest

    def _costs(self) -> dict[str, Cost]:
        calls = self._sweeper.calls
        return {
            group: Cost(
                calls=calls.asked[group],
                seconds=seconds,
                driver_microseconds=calls.driver_microseconds.get(group),
            )
            for group, seconds in sorted(calls.seconds.items())
        }


def _taken_away(found: dict[str, GpuReading], failures: dict[tuple[str, str, str], int]) -> bool:
    """Recognise a container whose device nodes were revoked: every GPU answers 'unknown error'."""
    names = {name for _, _, name in failures}
    return names == {UNKNOWN} and not any(reading.up for reading in found.values())
