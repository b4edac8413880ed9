"""One physical GPU, read whole: who it is, how it is cut, what it and its parts say."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from exporter.hardware.calls import Calls
from exporter.hardware.device import identify, readings
from exporter.hardware.lost import with_untold, without_values
from exporter.hardware.mig import Fingerprint, Layout, MigReader
from exporter.hardware.processes import UtilizationReader, running
from exporter.model import GpuIdentity, GpuReading


class GpuReader:
    """Reads GPUs one after the other, and keeps of each what must outlive a sweep.

    ``boot_clock`` gives the boot clock in seconds that process start times are counted in.
    """

    def __init__(self, calls: Calls, boot_clock: Callable[[], float | None]) -> None:
        self.known: dict[str, GpuReading] = {}
        self._calls = calls
        self._boot_clock = boot_clock
        self._mig = MigReader()
        self._utilization = UtilizationReader()
        self._complete: set[str] = set()
        self._layouts: dict[str, tuple[bool, tuple[Fingerprint, ...]]] = {}

    def read(self, handle: Any, uuid: str, index: int, sweep: int) -> GpuReading:
        """Read one GPU; what it does not say is None. Raises as ``Calls.ask`` does."""
        self._calls.begin(uuid)
        identity = self._identify(handle, uuid, index)
        layout = self._mig.layout(self._calls, uuid, handle)
        self._note_layout(uuid, layout)
        values = readings(self._calls, uuid, handle)
        reading = GpuReading(
            identity=identity,
            up=any(value not in (None, {}) for value in values.values()),
            mig_enabled=layout.enabled,
            mig_slices=layout.slices,
            mig_complete=layout.complete and layout.devices is not None,
            **values,
            **self._parts(handle, uuid, layout, values),
            unsupported=self._calls.unsupported(uuid),
            withheld=self._calls.withheld(uuid),
            sweep=sweep,
            read_at=time.time(),
            read_monotonic=time.monotonic(),
            boot_seconds=self._boot_clock(),
        )
        self.known[uuid] = self._with_known_layout(reading)
        return self.known[uuid]

    def gone(self, uuid: str) -> GpuReading:
        """Return what is still known of a GPU that does not answer."""
        return without_values(self.known[uuid])

    def reopened(self) -> None:
        """Ask everything anew that was kept: the driver was opened, and may be another one."""
        self._complete.clear()

    def forget_absent(self) -> None:
        """Drop what was kept of MIG devices that are gone."""
        marks = {mark for _, of_gpu in self._layouts.values() for mark in of_gpu}
        self._mig.forget(marks)
        self._utilization.forget(self.known)
        existing = {mark.uuid for mark in marks}
        parents = self._calls.parents
        self._calls.parents = {mig: gpu for mig, gpu in parents.items() if mig in existing}

    def _parts(self, handle: Any, uuid: str, layout: Layout, values: Mapping[str, Any]) -> dict[str, Any]:
        """Read what stands on the layout: MIG devices, or the processes of a whole GPU."""
        total = values["memory"].total if values["memory"] is not None else None
        whole = not layout.enabled
        return {
            "mig": self._mig.read(self._calls, layout, total),
            "processes": running(self._calls, uuid, handle, total) if whole else None,
            "process_utilization": self._utilization.read(self._calls, uuid, handle) if whole else None,
        }

    def _identify(self, handle: Any, uuid: str, index: int) -> GpuIdentity:
        """Ask the facts of a GPU until it has told them all."""
        known = self.known.get(uuid)
        if known is not None and uuid in self._complete and known.identity.index == index:
            return known.identity
        # It is known from now on, even if it is lost before it has told the rest.
        self.known.setdefault(uuid, GpuReading(identity=GpuIdentity(uuid=uuid, index=index)))
        failures = self._calls.failures()
        identity = identify(self._calls, handle, uuid, index)
        if self._calls.failures() == failures:
            self._complete.add(uuid)
        self.known[uuid] = replace(self.known[uuid], identity=identity)
        return identity

    def _with_known_layout(self, reading: GpuReading) -> GpuReading:
        """Add the MIG devices of the last sweep to those of one that could not tell of all."""
        before = self.known[reading.identity.uuid]
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
                self._calls.forget_unsupported(device)
        self._layouts[uuid] = now
