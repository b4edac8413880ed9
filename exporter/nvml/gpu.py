"""Reads one physical GPU completely: identity, partitioning, readings, MIG devices and processes."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from exporter.model import GpuIdentity, GpuReading
from exporter.model.exceeded_memory import without_exceeded_memory
from exporter.model.lost_gpu import with_known_layout, without_values
from exporter.nvml.bound_devices import normalize_pci
from exporter.nvml.cgroup_limits import CgroupLimitReader
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.driver.records import CORE
from exporter.nvml.facts import read_identity
from exporter.nvml.mig import MigReader, ProfileReader
from exporter.nvml.mig_layout import GpuLayout, LayoutReader, MigIdentity
from exporter.nvml.readings.accounting import AccountReader, accounts_processes
from exporter.nvml.readings.answers import forget, keep_only
from exporter.nvml.readings.device_reader import ENERGY_SECONDS, SLOW_SECONDS, DeviceReader, Schedule
from exporter.nvml.readings.gpm import GpmReader, counted
from exporter.nvml.readings.gpu_processes import ListTrust, ProcessLists, read_utilization, trusted
from exporter.nvml.readings.paths import GPU, name_of
from exporter.nvml.readings.samples import SampleReader
from exporter.nvml.topology import TopologyReader
from exporter.nvml.vgpu import VgpuReader

Ids = tuple[int, int]
# MIG mode and MIG devices.
Partitioning = tuple[bool, tuple[MigIdentity, ...]]


class GpuReader:
    """Reads GPUs one after the other, and keeps the state that outlives a sweep.

    ``note_layout`` receives a GPU's uuid, and the uuids of its MIG devices by their ids.
    """

    def __init__(
        self, calls: Calls, options: NvmlOptions, note_layout: Callable[[str, Mapping[Ids, str]], None]
    ) -> None:
        # The last reading of each GPU, by uuid.
        self.known: dict[str, GpuReading] = {}
        self.trust = ListTrust()
        self._calls = calls
        self._options = options
        self._report_layout = note_layout
        self._device = DeviceReader(pcie_throughput=options.pcie_throughput, skip=options.skip)
        self._slow_schedule = Schedule(SLOW_SECONDS, options.clock)
        self._energy_schedule = Schedule(ENERGY_SECONDS, options.clock)
        # Unix time of the slow readings that are kept, by GPU uuid.
        self._slow_read_at: dict[str, float] = {}
        self._topology = TopologyReader()
        self._layout = LayoutReader()
        self._lists = ProcessLists()
        self._mig = MigReader(self._layout, self._lists, options.skip)
        self._profiles = ProfileReader()
        self._samples = SampleReader(options.clock)
        self._accounts = AccountReader()
        self._gpm = GpmReader(options.clock, options.skip)
        self._vgpu = VgpuReader(options.clock)
        self._cgroups = CgroupLimitReader(options.limited_cgroups)
        self._telling: Collection[str] = ()
        # GPUs with a complete identity, and how often reading that of another one has failed.
        self._identified: set[str] = set()
        self._identity_failures: Counter[str] = Counter()
        self._layouts: dict[str, Partitioning] = {}

    def read(self, handle: Any, uuid: str, index: int, sweep: int) -> GpuReading:
        """Return the reading of a GPU. Raises as ``Calls.ask`` does."""
        slow = self._slow_schedule.due(uuid, index)
        self._calls.records.reasons.begin(uuid, slow=slow)
        failures = self._calls.records.failures
        # Before the processes are listed: a process that starts later may reuse the pid of a listed one.
        boot_seconds = self._options.boot_clock()
        booted = None if boot_seconds is None else time.time() - boot_seconds
        identity = self._identify(handle, uuid, index, slow=slow)
        layout = self._layout.read(self._calls, uuid, handle, reported=uuid in self._telling, slow=slow)
        self._note_layout(uuid, layout)
        # A change of the layout has made it due again.
        slow = self._slow_schedule.due(uuid, index) or slow
        if slow:
            self._slow_read_at[uuid] = time.time()
        # Out of step with the slow readings, which are calls enough for one sweep.
        energy = self._energy_schedule.due(uuid, index + 1)
        values, links = self._device.read(self._calls, uuid, handle, slow=slow, energy=energy)
        if not self._device.has_kept(uuid):
            self._forget_kept(uuid)
        parts = self._parts(handle, uuid, layout, values, slow=slow)
        traffic = counted(self._calls, uuid, values.get(name_of(GPU.traffic_bytes), {}), parts["profiling"])
        topology = None
        if values:
            topology = self._topology.read(self._calls, uuid, handle, identity.pci_bus_id, links)
        reading = GpuReading(
            identity=identity,
            # A GPU that supports none of these calls has answered, too.
            up=bool(values) or self._calls.records.failures == failures,
            mig_enabled=layout.enabled,
            mig_pending=layout.pending,
            mig_slices=layout.slices,
            mig_complete=layout.complete and layout.devices is not None,
            **values | {name_of(GPU.traffic_bytes): traffic},
            topology=topology,
            **parts,
            **self._vgpu.read(self._calls, uuid, handle, slow=slow),
            cgroup_memory={} if layout.enabled else self._cgroups.read(self._calls, uuid, handle, slow=slow),
            unsupported=self._calls.records.unsupported(uuid),
            skipped=self._options.skip,
            withheld=self._calls.records.withheld(uuid),
            sweep=sweep,
            read_at=time.time(),
            slow_read_at=self._slow_read_at.get(uuid),
            read_monotonic=self._options.clock(),
            boot_seconds=boot_seconds,
        )
        reading = without_exceeded_memory(trusted(reading, self.trust))
        if self.trust.accounts and booted is not None and accounts_processes(reading):
            accounts = self._accounts.read(self._calls, handle, reading, booted)
            if accounts is not None:
                accounts = replace(accounts, overlap=self._samples.overlap(uuid))
            reading = replace(reading, process_accounts=accounts)
        else:
            self._accounts.forget(self._calls, uuid)
        # MIG devices that may exist besides those that were read; None: any of the last sweep.
        unread = None if layout.devices is None else frozenset(device.uuid for device in layout.unread)
        self.known[uuid] = with_known_layout(reading, self.known[uuid], unread)
        return self.known[uuid]

    def at(self, index: int) -> str:
        """Return the uuid of the GPU that was last seen at an index, "" if there was none."""
        return next((uuid for uuid, gpu in self.known.items() if gpu.identity.index == index), "")

    def hand_over(self, calls: Calls) -> None:
        """Use these calls from now on, in another thread: the thread of the former ones hangs."""
        self._calls = calls
        self._gpm.hand_over()
        # The hanging call may have been one of them.
        self._forget_kept()

    def note_events(self, telling: Collection[str], changed: Collection[str]) -> None:
        """Read slow values, energy and MIG layout of the GPUs ``changed`` again, which had an event.

        ``telling`` are those with events for changes of their layout, to be called before every sweep.
        """
        self._telling = telling
        self._slow_schedule.at_once(changed)
        self._energy_schedule.at_once(changed)
        for uuid in changed:
            self._layout.enumerate_again(uuid)

    def gone(self, uuid: str) -> GpuReading:
        """Return the known facts of a GPU that does not answer."""
        self._topology.remove(uuid)
        self._forget_kept(uuid)
        return without_values(self.known[uuid], self._options.clock())

    def closing(self) -> None:
        """Free resources of the driver, before it is shut down."""
        self._gpm.free_all(self._calls)
        self._forget_kept()

    def reopened(self) -> None:
        """Read fixed values again, after the driver was opened."""
        self._identity_failures.clear()
        self._identified.clear()
        self._device.forget()
        self._forget_kept()
        self._topology.forget()
        self._profiles.forget()
        self._lists.keep_only(())

    def unplugged(self, addresses: Collection[str]) -> None:
        """Forget the GPUs at these normalized PCI addresses, which are unbound, not lost."""
        self._drop(
            [uuid for uuid, gpu in self.known.items() if normalize_pci(gpu.identity.pci_bus_id) in addresses]
        )

    def replaced(self, current: Collection[str], earlier: Collection[str]) -> None:
        """Forget GPUs that a GPU with another uuid has replaced at the same PCI address; they are not lost.

        After a migration, a virtual machine may find its GPU under another uuid. ``current`` are the uuids of
        this sweep, ``earlier`` those that were known before it.
        """
        addresses = {uuid: gpu.identity.pci_bus_id for uuid, gpu in self.known.items()}
        taken = {addresses[uuid] for uuid in current if uuid not in earlier and addresses[uuid]}
        self._drop([uuid for uuid in earlier if uuid not in current and addresses[uuid] in taken])

    def _drop(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._profiles.forget(self.known.pop(uuid).identity)
            self._layouts.pop(uuid, None)
            del self._identity_failures[uuid]
            self._identified.discard(uuid)
            self._topology.remove(uuid)
            self._device.forget(uuid)
            self._forget_kept(uuid)
            self._calls.records.forget_unsupported(uuid)

    def _forget_kept(self, uuid: str | None = None) -> None:
        """Drop the kept values of a GPU, or of all; the next read of it reads them as the first one does."""
        self._device.forget_kept(uuid)
        self._slow_schedule.forget(uuid)
        self._energy_schedule.forget(uuid)
        self._layout.enumerate_again(uuid)
        self._cgroups.forget(uuid)
        forget(uuid, self._slow_read_at)

    def forget_absent(self) -> None:
        """Drop the state of GPUs and MIG devices that no longer exist."""
        devices = {device for _, of_gpu in self._layouts.values() for device in of_gpu}
        self._layout.keep_only(devices)
        self._mig.keep_only(devices)
        self._samples.keep_only(self.known)
        self._accounts.keep_only(self.known)
        self._vgpu.keep_only(self.known)
        self._cgroups.keep_only(self.known)
        mig_uuids = {device.uuid for device in devices}
        self._lists.keep_only(self.known.keys() | mig_uuids)
        self._gpm.keep_only(self._calls, self.known.keys() | mig_uuids)
        keep_only(mig_uuids, self._calls.records.parents)

    def _parts(
        self, handle: Any, uuid: str, layout: GpuLayout, values: Mapping[str, Any], *, slow: bool
    ) -> dict[str, Any]:
        """Return the fields that depend on the layout: MIG devices, or processes of a whole GPU."""
        memory = values.get(name_of(GPU.memory))
        total = None if memory is None else memory.total
        devices = self._mig.read(self._calls, layout, total, slow=slow)
        profiles = self._gpm.read_migs(self._calls, uuid, handle, layout, devices)
        if devices is not None:
            devices = tuple(replace(device, profiling=profiles.get(device.uuid)) for device in devices)
        parts: dict[str, Any] = {"mig": devices, "profiling": self._gpm.read_gpu(self._calls, uuid, handle)}
        known = self.known[uuid]
        if layout.pending is not None:
            parts["mig_profiles"] = self._profiles.read(self._calls, known.identity, handle, total, slow=slow)
        elif layout.enabled is None:
            parts["mig_profiles"] = known.mig_profiles
        if layout.enabled:
            return parts
        self._calls.group = "processes"
        processes = self._lists.read(self._calls, uuid, handle, memory)
        self._calls.group = "utilization"
        utilization = read_utilization(self._samples, self._calls, uuid, handle, processes)
        return {**parts, "processes": processes, "process_utilization": utilization}

    def _identify(self, handle: Any, uuid: str, index: int, *, slow: bool) -> GpuIdentity:
        """Return the identity of a GPU; after a second failure, it is read with the slow readings."""
        known = self.known.get(uuid)
        settled = uuid in self._identified or (self._identity_failures[uuid] > 1 and not slow)
        if known is not None and settled and known.identity.index == index:
            return known.identity
        # Known from now on, even if it is lost before the rest of the identity has been read.
        self.known.setdefault(uuid, GpuReading(identity=GpuIdentity(uuid=uuid, index=index)))
        failures = self._calls.records.failures
        identity = read_identity(self._calls, handle, uuid, index)
        if self._calls.records.failures == failures:
            self._identified.add(uuid)
            del self._identity_failures[uuid]
        else:
            self._identity_failures[uuid] += 1
            self._calls.records.note_until_due(uuid, CORE)
        self.known[uuid] = replace(self.known[uuid], identity=identity)
        return identity

    def _note_layout(self, uuid: str, layout: GpuLayout) -> None:
        """Report the layout; after a change, read fixed values and unsupported calls of the GPU again."""
        if layout.devices is None:
            return
        devices = layout.identities()
        self._report_layout(uuid, {(device.gi, device.ci): device.uuid for device in devices})
        current = bool(layout.enabled), devices
        last = self._layouts.get(uuid, current)
        if last[0] != current[0]:
            self._profiles.forget(self.known[uuid].identity)
        if last != current:
            self._device.forget(uuid)
            self._forget_kept(uuid)
            for device in (uuid, *(device.uuid for device in last[1])):
                self._calls.records.forget_unsupported(device)
        self._layouts[uuid] = current
