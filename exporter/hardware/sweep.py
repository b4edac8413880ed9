"""One sweep: every GPU of the node and every MIG device, enumerated and read from the beginning."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.hardware.calls import Calls, DeviceLostError, DeviceSlowError, DriverGoneError
from exporter.hardware.device import identify, readings
from exporter.hardware.library import DriverError, Library, advice
from exporter.hardware.lost import with_untold, without_values
from exporter.hardware.mig import Fingerprint, Layout, MigReader
from exporter.hardware.processes import UtilizationReader, running
from exporter.model import DriverInfo, GpuIdentity, GpuReading

# A lost GPU may come back when the driver is opened anew. That costs the healthy ones seconds, so it is
# tried at growing distances as long as the same GPUs are lost.
REOPEN_AFTER_SECONDS = 60.0
LONGEST_REOPEN_SECONDS = 3600.0
# Stands for the node as a whole among the uuids.
NODE = ""
# A healthy GPU answers in milliseconds, one that is being initialised in some seconds.
GPU_BUDGET_SECONDS = 5.0


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
        self._known: dict[str, GpuReading] = {}
        self._complete: set[str] = set()
        self._slow: set[int] = set()
        self._layouts: dict[str, tuple[bool, tuple[Fingerprint, ...]]] = {}
        self._lost: frozenset[str] = frozenset()
        self._reopen_after = REOPEN_AFTER_SECONDS
        self._opened_at = 0.0
        self._number = 0

    def sweep(self) -> Iterator[GpuReading]:
        """Yield the reading of each GPU as soon as it is done, those that were lost at last.

        Raises DriverError when the driver as a whole does not answer.
        """
        self._number += 1
        try:
            self._open()
            yield from self._gpus()
        except DriverGoneError as error:
            self.close()
            raise DriverError(error.name, advice(error.name)) from None
        except DeviceLostError:
            self._note_lost({NODE})
            raise DriverError("GpuIsLost", "the driver itself answers that a GPU is lost") from None

    def close(self) -> None:
        """Shut the driver down; the next sweep opens it again."""
        self._library.close()

    def _open(self) -> None:
        overdue = time.monotonic() - self._opened_at > self._reopen_after
        if self._lost and overdue and self._library.is_open:
            self._reopen_after = min(2 * self._reopen_after, LONGEST_REOPEN_SECONDS)
            self.close()
        if not self._library.is_open:
            self._library.open()
            self._opened_at = time.monotonic()
            self.calls.forget_unsupported()
            self._complete.clear()
        if NODE not in self._complete:
            self._ask_driver()

    def _ask_driver(self) -> None:
        failures = self.calls.failures()
        self.driver = DriverInfo(
            driver_version=self.calls.ask("", "nvmlSystemGetDriverVersion"),
            nvml_version=self.calls.ask("", "nvmlSystemGetNVMLVersion"),
            cuda_version=_cuda(self.calls.ask("", "nvmlSystemGetCudaDriverVersion_v2")),
        )
        if self.calls.failures() == failures:
            self._complete.add(NODE)

    def _gpus(self) -> Iterator[GpuReading]:
        self.gpu_count = self._count()
        seen: set[str] = set()
        lost: set[str] = set()
        hidden: set[int] = set()
        # One that kept the others waiting last time has its turn after them.
        for index in sorted(range(self.gpu_count), key=lambda index: (index in self._slow, index)):
            reading = self._gpu(index, lost)
            if reading is None:
                hidden.add(index)
            elif reading.identity.uuid not in seen:
                seen.add(reading.identity.uuid)
                yield reading
        missing = [known.identity for uuid, known in self._known.items() if uuid not in seen]
        yield from (self._gone(identity.uuid) for identity in missing)
        # What stands at its place and does not say who it is may be the missing one: no reason to reopen.
        self._note_lost(lost.union(identity.uuid for identity in missing if identity.index not in hidden))
        self._forget()

    def _count(self) -> int:
        count: int | None = self.calls.ask("", "nvmlDeviceGetCount")
        if count is None:
            raise DriverError("NoCount", "the driver does not say how many GPUs it has")
        return count

    def _gpu(self, index: int, lost: set[str]) -> GpuReading | None:
        """Read one GPU; None where it is so far gone that it does not even tell its UUID."""
        uuid = ""
        self._slow.discard(index)
        self.calls.deadline = time.monotonic() + GPU_BUDGET_SECONDS
        try:
            handle = self.calls.ask("", "nvmlDeviceGetHandleByIndex", index)
            uuid = self.calls.ask("", "nvmlDeviceGetUUID", handle) if handle is not None else ""
            if not uuid:
                return None
            return self._read(self._identify(handle, uuid, index), handle)
        except DeviceLostError:
            lost.add(uuid or f"{NODE}{index}")
        except DeviceSlowError:
            self._slow.add(index)
        except (DriverGoneError, DriverError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever one GPU answers, the others are read
            self.calls.count(uuid, "read", type(error).__name__)
        finally:
            self.calls.deadline = None
        return self._gone(uuid) if uuid else None

    def _gone(self, uuid: str) -> GpuReading:
        return without_values(self._known[uuid])

    def _note_lost(self, lost: set[str]) -> None:
        if lost != self._lost:
            self._reopen_after = REOPEN_AFTER_SECONDS
        self._lost = frozenset(lost)

    def _identify(self, handle: Any, uuid: str, index: int) -> GpuIdentity:
        """Ask the facts of a GPU until it has told them all."""
        known = self._known.get(uuid)
        if known is not None and uuid in self._complete and known.identity.index == index:
            return known.identity
        # It is known from now on, even if it is lost before it has told the rest.
        self._known.setdefault(uuid, GpuReading(identity=GpuIdentity(uuid=uuid, index=index)))
        failures = self.calls.failures()
        identity = identify(self.calls, handle, uuid, index)
        if self.calls.failures() == failures:
            self._complete.add(uuid)
        self._known[uuid] = replace(self._known[uuid], identity=identity)
        return identity

    def _read(self, identity: GpuIdentity, handle: Any) -> GpuReading:
        uuid = identity.uuid
        layout = self._mig.layout(self.calls, uuid, handle)
        self._note_layout(uuid, layout)
        values = readings(self.calls, uuid, handle)
        total = values["memory"].total if values["memory"] is not None else None
        whole = not layout.enabled
        reading = GpuReading(
            identity=identity,
            up=any(value not in (None, {}) for value in values.values()),
            mig_enabled=layout.enabled,
            mig_slices=layout.slices,
            mig=self._mig.read(self.calls, layout, total),
            mig_complete=layout.complete and layout.devices is not None,
            processes=running(self.calls, uuid, handle, total) if whole else None,
            process_utilization=self._utilization.read(self.calls, uuid, handle) if whole else None,
            unsupported=self.calls.unsupported(uuid),
            sweep=self._number,
            read_at=time.time(),
            read_monotonic=time.monotonic(),
            boot_seconds=self._boot_clock(),
            **values,
        )
        self._known[uuid] = self._with_known_layout(reading)
        return self._known[uuid]

    def _with_known_layout(self, reading: GpuReading) -> GpuReading:
        """Add the MIG devices of the last sweep to those of one that could not tell of all."""
        before = self._known[reading.identity.uuid]
        if reading.mig_complete or not before.mig_enabled:
            return reading
        return replace(
            reading,
            mig_enabled=True,
            mig_slices=before.mig_slices,
            mig=with_untold(reading.mig, before.mig),
            processes=None,
            process_utilization=None,
        )

    def _note_layout(self, uuid: str, layout: Layout) -> None:
        """Ask everything anew of a GPU that was cut differently."""
        if layout.devices is None or not layout.complete:
            return
        marks = tuple(mark for mark, _ in layout.devices)
        now = bool(layout.enabled), marks
        before = self._layouts.get(uuid, now)
        if before != now:
            for device in (uuid, *(mark.uuid for mark in before[1])):
                self.calls.forget_unsupported(device)
        self._layouts[uuid] = now

    def _forget(self) -> None:
        marks = {mark for _, of_gpu in self._layouts.values() for mark in of_gpu}
        self._mig.forget(marks)
        self._utilization.forget(self._known)
        existing = {mark.uuid for mark in marks}
        self.calls.parents = {mig: gpu for mig, gpu in self.calls.parents.items() if mig in existing}


def _cuda(number: int | None) -> str | None:
    """Spell the driver's 12040 as people do: 12.4."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _no_clock() -> None:
    return None
