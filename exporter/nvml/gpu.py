"""One physical GPU, read whole: who it is, how it is cut, what it and its parts say."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from exporter.model import GpuIdentity, GpuReading, MigReading, Profile, Topology
from exporter.model.lost_gpu import with_known_layout, without_values
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.mig import Fingerprint, Layout, MigReader
from exporter.nvml.readings.device import DeviceReader
from exporter.nvml.readings.gpm import GpmReader, counted
from exporter.nvml.readings.gpu_processes import Trust, UtilizationReader, running, without_others
from exporter.nvml.readings.identity import identify
from exporter.nvml.topology import TopologyReader, normalize_pci
from exporter.nvml.vgpu import VgpuReader

Ids = tuple[int, int]


class GpuReader:
    """Reads GPUs one after the other, and keeps of each what must outlive a sweep.

    ``trust`` says which of the driver's pids are ours.
    ``note_layout`` is told which MIG device has which ids of GPU instance and compute instance.
    """

    def __init__(
        self, calls: Calls, options: NvmlOptions, note_layout: Callable[[str, Mapping[Ids, str]], None]
    ) -> None:
        self.known: dict[str, GpuReading] = {}
        self.trust = Trust()
        self._calls = calls
        self._options = options
        self._tell_layout = note_layout
        self._device = DeviceReader(pcie_throughput=options.pcie_throughput)
        self._topology = TopologyReader()
        self._mig = MigReader()
        self._utilization = UtilizationReader(options.clock)
        self._gpm = GpmReader(options.clock)
        self._vgpu = VgpuReader(options.clock)
        self._complete: set[str] = set()
        self._layouts: dict[str, tuple[bool, tuple[Fingerprint, ...]]] = {}

    def read(self, handle: Any, uuid: str, index: int, sweep: int) -> GpuReading:
        """Read one GPU; what it does not say is None. Raises as ``Calls.ask`` does."""
        self._calls.begin(uuid)
        failures = self._calls.failures()
        # Before any process is listed: one that begins later may have the number of one that was in the list.
        boot_seconds = self._options.boot_clock()
        identity = self._identify(handle, uuid, index)
        layout = self._mig.layout(self._calls, uuid, handle)
        self._note_layout(uuid, layout)
        values, links = self._device.read(self._calls, uuid, handle)
        parts = self._parts(handle, uuid, layout, values)
        traffic = counted(self._calls, uuid, values.get("traffic_bytes", {}), parts["profiling"])
        reading = GpuReading(
            identity=identity,
            # One that supports nothing of that has answered all the same.
            up=bool(values) or self._calls.failures() == failures,
            mig_enabled=layout.enabled,
            mig_pending=layout.pending,
            mig_slices=layout.slices,
            mig_complete=layout.complete and layout.devices is not None,
            **values | {"traffic_bytes": traffic},
            topology=self._sits(handle, identity, links) if values else None,
            **parts,
            **self._vgpu.read(self._calls, uuid, handle),
            unsupported=self._calls.unsupported(uuid),
            withheld=self._calls.withheld(uuid),
            sweep=sweep,
            read_at=time.time(),
            read_monotonic=self._options.clock(),
            boot_seconds=boot_seconds,
        )
        reading = without_others(reading, self.trust)
        self.known[uuid] = with_known_layout(reading, self.known[uuid], _kept(layout))
        return self.known[uuid]

    def at(self, index: int) -> str:
        """Return the uuid of the GPU that was last seen at that place, "" where none was."""
        return next((uuid for uuid, gpu in self.known.items() if gpu.identity.index == index), "")

    def hand_over(self, calls: Calls) -> None:
        """Read by these calls from now on, in another thread: the one before hangs in the driver."""
        self._calls = calls
        self._gpm.hand_over()

    def gone(self, uuid: str) -> GpuReading:
        """Return what is still known of a GPU that does not answer."""
        self._topology.leave(uuid)
        return without_values(self.known[uuid], self._options.clock())

    def closing(self) -> None:
        """Give back what the driver lent, before it is shut down."""
        self._gpm.free_all(self._calls)

    def reopened(self) -> None:
        """Ask everything anew that was kept: the driver was opened, and may be another one."""
        self._complete.clear()
        self._device.forget()
        self._topology.forget()

    def unplugged(self, addresses: Collection[str]) -> None:
        """Forget the GPUs at these PCI addresses, in the spelling of ``normalize_pci``: they are not lost."""
        self._drop(
            [uuid for uuid, gpu in self.known.items() if normalize_pci(gpu.identity.pci_bus_id) in addresses]
        )

    def replaced(self, seen: Collection[str], before: Collection[str]) -> None:
        """Forget GPUs in whose place another one answers, which was not known before: they are not lost.

        A virtual machine that moves to another host may find its GPU under another uuid.
        """
        places = {uuid: gpu.identity.pci_bus_id for uuid, gpu in self.known.items()}
        taken = {places[uuid] for uuid in seen if uuid not in before and places[uuid]}
        self._drop([uuid for uuid in before if uuid not in seen and places[uuid] in taken])

    def _drop(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            del self.known[uuid]
            self._layouts.pop(uuid, None)
            self._complete.discard(uuid)
            self._topology.leave(uuid)
            self._device.forget(uuid)
            self._calls.forget_unsupported(uuid)

    def forget_absent(self) -> None:
        """Drop what was kept of MIG devices that are gone."""
        marks = {mark for _, of_gpu in self._layouts.values() for mark in of_gpu}
        self._mig.forget(marks)
        self._utilization.forget(self.known)
        self._vgpu.forget(self.known)
        existing = {mark.uuid for mark in marks}
        self._gpm.forget(self._calls, self.known.keys() | existing)
        parents = self._calls.parents
        self._calls.parents = {mig: gpu for mig, gpu in parents.items() if mig in existing}

    def _parts(self, handle: Any, uuid: str, layout: Layout, values: Mapping[str, Any]) -> dict[str, Any]:
        """Read what stands on the layout: MIG devices, or the processes of a whole GPU."""
        total = values["memory"].total if "memory" in values else None
        devices = self._mig.read(self._calls, layout, total)
        profiles = self._gpm.read_migs(self._calls, uuid, handle, layout, devices)
        parts: dict[str, Any] = {
            "mig": _with_profiles(devices, profiles),
            "profiling": self._gpm.read_gpu(self._calls, uuid, handle),
        }
        if layout.enabled:
            return parts
        self._calls.group = "processes"
        parts["processes"] = running(self._calls, uuid, handle, total)
        self._calls.group = "utilization"
        parts["process_utilization"] = self._utilization.read(self._calls, uuid, handle, parts["processes"])
        return parts

    def _sits(self, handle: Any, identity: GpuIdentity, links: frozenset[int] | None) -> Topology | None:
        return self._topology.read(self._calls, identity.uuid, handle, identity.pci_bus_id, links)

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

    def _note_layout(self, uuid: str, layout: Layout) -> None:
        """Ask everything anew of a GPU that was cut differently."""
        if layout.devices is None:
            return
        marks = layout.marks()
        self._tell_layout(uuid, {(mark.gi, mark.ci): mark.uuid for mark in marks})
        now = bool(layout.enabled), marks
        before = self._layouts.get(uuid, now)
        if before != now:
            self._device.forget(uuid)
            for device in (uuid, *(mark.uuid for mark in before[1])):
                self._calls.forget_unsupported(device)
        self._layouts[uuid] = now


def _kept(layout: Layout) -> frozenset[str] | None:
    """Name the MIG devices that may be there beside those that were told; None: any that were."""
    return None if layout.devices is None else frozenset(mark.uuid for mark in layout.untold)


def _with_profiles(
    devices: tuple[MigReading, ...] | None, profiles: Mapping[str, Profile]
) -> tuple[MigReading, ...] | None:
    if devices is None:
        return None
    return tuple(replace(device, profiling=profiles.get(device.uuid)) for device in devices)
