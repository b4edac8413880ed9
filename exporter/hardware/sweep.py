"""One sweep: every GPU of the node and every MIG device, enumerated and read from the beginning."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exporter.hardware.calls import Calls, DeviceLostError, DriverGoneError
from exporter.hardware.device import identify, readings
from exporter.hardware.library import DriverError, Library, advice
from exporter.hardware.mig import Fingerprint, Layout, MigReader
from exporter.hardware.processes import UtilizationReader, running
from exporter.model import DriverInfo, GpuIdentity, GpuReading

# A lost GPU may come back when the driver is opened anew, which takes seconds: not at every poll.
REOPEN_EVERY_SECONDS = 60.0


class Sweeper:
    """Reads the node's GPUs; one sweep at a time, always from the same thread.

    ``boot_clock`` gives the boot clock in seconds that process start times are counted in.
    """

    def __init__(
        self, path: Path | None, library: Any, boot_clock: Callable[[], float | None] | None = None
    ) -> None:
        self.calls = Calls()
        self.driver = DriverInfo()
        self.gpu_count = 0
        self._library = Library(path, library)
        self._boot_clock = boot_clock or _no_clock
        self._mig = MigReader()
        self._utilization = UtilizationReader()
        self._identities: dict[str, GpuIdentity] = {}
        self._layouts: dict[str, tuple[bool, tuple[Fingerprint, ...]]] = {}
        self._lost = False
        self._opened_at = 0.0

    def sweep(self) -> Iterator[GpuReading]:
        """Yield the reading of each GPU as soon as it is done, those that were lost at last.

        Raises DriverError when the driver as a whole does not answer.
        """
        try:
            self._open()
            yield from self._gpus()
        except DriverGoneError as error:
            self.close()
            raise DriverError(error.name, advice(error.name)) from None
        except DeviceLostError:
            self._lost = True
            raise DriverError("GpuIsLost", "the driver itself answers that a GPU is lost") from None

    def close(self) -> None:
        """Shut the driver down; the next sweep opens it again."""
        self._library.close()

    def _open(self) -> None:
        if self._lost and time.monotonic() - self._opened_at > REOPEN_EVERY_SECONDS:
            self.close()
        if self._library.is_open:
            return
        self._library.open()
        self._opened_at = time.monotonic()
        self.calls.forget_unsupported()
        self.driver = DriverInfo(
            driver_version=self.calls.ask("", "nvmlSystemGetDriverVersion"),
            nvml_version=self.calls.ask("", "nvmlSystemGetNVMLVersion"),
            cuda_version=_cuda(self.calls.ask("", "nvmlSystemGetCudaDriverVersion_v2")),
        )

    def _gpus(self) -> Iterator[GpuReading]:
        count = self.calls.ask("", "nvmlDeviceGetCount")
        if count is None:
            raise DriverError("NoCount", "the driver does not say how many GPUs it has")
        self.gpu_count = count
        seen: set[str] = set()
        self._lost = False
        for index in range(count):
            reading = self._gpu(index)
            if reading is not None and reading.identity.uuid not in seen:
                seen.add(reading.identity.uuid)
                yield reading
        missing = [identity for uuid, identity in self._identities.items() if uuid not in seen]
        yield from map(_lost, missing)
        self._lost = self._lost or bool(missing)
        self._forget()

    def _gpu(self, index: int) -> GpuReading | None:
        """Read one GPU; None where it is so far gone that it does not even tell its UUID."""
        identity = None
        try:
            handle = self.calls.ask("", "nvmlDeviceGetHandleByIndex", index)
            identity = None if handle is None else self._identify(handle, index)
            return None if identity is None else self._read(identity, handle)
        except DeviceLostError:
            self._lost = True
            return None if identity is None else _lost(identity)

    def _identify(self, handle: Any, index: int) -> GpuIdentity | None:
        """Ask the facts of a GPU once; its UUID at every sweep, since indices move."""
        uuid = self.calls.ask("", "nvmlDeviceGetUUID", handle)
        known = self._identities.get(uuid)
        if known is not None and known.index == index and known.model:
            return known
        if uuid:
            # It is known from now on, even if it is lost before it has told the rest.
            self._identities.setdefault(uuid, GpuIdentity(uuid=uuid, index=index))
            self._identities[uuid] = identify(self.calls, handle, uuid, index)
        return self._identities.get(uuid)

    def _read(self, identity: GpuIdentity, handle: Any) -> GpuReading:
        uuid = identity.uuid
        layout = self._mig.layout(self.calls, uuid, handle)
        self._note_layout(uuid, layout)
        values = readings(self.calls, uuid, handle)
        total = values["memory"].total if values["memory"] is not None else None
        whole = not layout.enabled
        return GpuReading(
            identity=identity,
            up=any(value not in (None, {}) for value in values.values()),
            mig_enabled=layout.enabled,
            mig_slices=layout.slices,
            mig=self._mig.read(self.calls, layout, total),
            processes=running(self.calls, uuid, handle, total) if whole else None,
            process_utilization=self._utilization.read(self.calls, uuid, handle) if whole else None,
            unsupported=self.calls.unsupported(uuid),
            read_at=time.time(),
            read_monotonic=time.monotonic(),
            boot_seconds=self._boot_clock(),
            **values,
        )

    def _note_layout(self, uuid: str, layout: Layout) -> None:
        """Ask everything anew of a GPU that was cut differently."""
        if layout.devices is None:
            return
        marks = tuple(mark for mark, _ in layout.devices)
        now = bool(layout.enabled), marks
        before = self._layouts.get(uuid, now)
        if before != now:
            for device in (uuid, *(mark.uuid for mark in before[1])):
                self.calls.forget_unsupported(device)
        self._layouts[uuid] = now

    def _forget(self) -> None:
        self._mig.forget({mark for _, marks in self._layouts.values() for mark in marks})
        self._utilization.forget(self._identities)


def _lost(identity: GpuIdentity) -> GpuReading:
    return GpuReading(identity=identity, up=False, read_at=time.time(), read_monotonic=time.monotonic())


def _cuda(number: int | None) -> str | None:
    """Spell the driver's 12040 as people do: 12.4."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _no_clock() -> None:
    return None
