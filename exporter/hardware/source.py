"""NVML as a source of the poller: one worker thread, one hop per sweep.

A call into a sick driver can hang for ever, in a thread that nothing can end. So there is exactly one
thread, it is a daemon (the program can still exit), and what it has read of the other GPUs before it got
stuck is already published.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.hardware.library import DriverError, advice
from exporter.hardware.sweep import Sweeper
from exporter.model import GpuReading, HardwareReading
from exporter.worker import Worker

RESTART_REASONS = frozenset({"LibRmVersionMismatch", "Unknown"})


class NvmlSource:
    """The node's GPUs through NVML.

    ``path`` names another library file, ``library`` is an object with the library's functions,
    ``boot_clock`` the clock of process start times (seconds).
    ``latest`` is the newest reading of every GPU, each with its own time; ``restart_reason`` says why only
    a restart of this process can help, or is None.
    """

    def __init__(
        self,
        path: Path | None = None,
        library: Any = None,
        boot_clock: Callable[[], float | None] | None = None,
    ) -> None:
        self.latest: HardwareReading | None = None
        self.restart_reason: str | None = None
        self._sweeper = Sweeper(path, library, boot_clock)
        self._worker = Worker("nvml")

    async def read(self) -> HardwareReading:
        """Sweep once, in the worker thread; raises DriverError when the driver does not answer."""
        return await self._worker.run(self._sweep)

    async def close(self) -> None:
        """Shut the driver down, once; waits for a sweep that is still under way."""
        await self._worker.run(self._sweeper.close)
        self._worker.stop()

    def _sweep(self) -> HardwareReading:
        failures = self._sweeper.calls.errors.copy()
        found: dict[str, GpuReading] = {}
        try:
            for reading in self._sweeper.sweep():
                found[reading.identity.uuid] = reading
                self._publish(self._older() | found)
        except DriverError as error:
            taken_away = _taken_away(found, self._sweeper.calls.errors - failures)
            self.restart_reason = str(error) if error.reason in RESTART_REASONS else taken_away
            raise
        self.restart_reason = _taken_away(found, self._sweeper.calls.errors - failures)
        return self._publish(found)

    def _older(self) -> dict[str, GpuReading]:
        gpus = self.latest.gpus if self.latest is not None else ()
        return {reading.identity.uuid: reading for reading in gpus}

    def _publish(self, gpus: dict[str, GpuReading]) -> HardwareReading:
        self.latest = HardwareReading(
            driver=self._sweeper.driver,
            gpus=tuple(gpus.values()),
            gpu_count=self._sweeper.gpu_count,
            errors=dict(self._sweeper.calls.errors),
        )
        return self.latest


def _taken_away(found: dict[str, GpuReading], failures: dict[tuple[str, str, str], int]) -> str | None:
    """Recognise a container whose device nodes were revoked: every GPU answers 'unknown error'."""
    names = {name for _, _, name in failures}
    if names == {"Unknown"} and not any(reading.up for reading in found.values()):
        return advice("Unknown")
    return None
