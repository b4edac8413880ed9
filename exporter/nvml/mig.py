"""The readings of the MIG devices of a GPU. Fixed facts are kept by identity: ids, UUID and profile."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from exporter.model import DeviceProcess, Memory, MigReading
from exporter.nvml.driver.calls import Calls
from exporter.nvml.mig_facts import MigFacts, MigIdentity, may_have_graphics, read_facts
from exporter.nvml.mig_layout import GpuLayout, LayoutReader
from exporter.nvml.readings.answers import BAR1, MEMORY, ask_row, is_skipped
from exporter.nvml.readings.gpu_processes import InstanceIds, running, without_doubles

# Memory slices of a GPU by its compute slices, if they differ.
MEMORY_SLICES = {7: 8}


class MigReader:
    """Reads the MIG devices of every GPU; keeps the fixed facts of those that exist.

    ``skip`` as for DeviceReader.
    """

    def __init__(self, skip: Collection[str] = ()) -> None:
        self._has_bar1 = not is_skipped(BAR1.into, skip)
        self._layouts = LayoutReader()
        self._facts: dict[MigIdentity, MigFacts] = {}
        # Whether a device was found to have graphics processes although its profile has no graphics.
        self._unexpected_graphics = False

    def enumerate_again(self, uuid: str | None = None) -> None:
        """Do not rely on the known devices of a GPU, or of all."""
        self._layouts.enumerate_again(uuid)

    def layout(
        self, calls: Calls, uuid: str, handle: Any, *, reported: bool = False, slow: bool = True
    ) -> GpuLayout:
        """Return the MIG devices of a GPU, as ``LayoutReader.read`` does."""
        return self._layouts.read(calls, uuid, handle, reported=reported, slow=slow)

    def read(
        self, calls: Calls, layout: GpuLayout, gpu_memory: int | None, *, slow: bool = True
    ) -> tuple[MigReading, ...] | None:
        """Return the readings of all MIG devices of a GPU with ``gpu_memory`` bytes; None if unknown.

        Graphics processes of devices that cannot have any are looked for with ``slow``, and in every sweep
        once there has been one. Raises as ``Calls.ask`` does.
        """
        if layout.devices is None:
            return None
        sharers = layout.sharers()
        memory_slice = None
        if layout.slices and gpu_memory is not None:
            memory_slice = gpu_memory / MEMORY_SLICES.get(layout.slices, layout.slices)
        readings = []
        for identity, handle in layout.devices:
            # In an incomplete layout, there may be other GPU instances.
            instances = sharers if layout.complete else ()
            graphics = slow or self._unexpected_graphics or may_have_graphics(identity)
            ids = InstanceIds(identity.gi, identity.ci, instances, graphics)
            with calls.about(identity.uuid):
                reading = self._read(calls, layout, (identity, handle), ids, memory_slice)
            readings.append(replace(reading, memory_shared=sharers[identity.gi] > 1))
        return tuple(without_doubles(readings))

    def forget(self, existing: set[MigIdentity]) -> None:
        """Drop the facts of MIG devices that no longer exist."""
        self._facts = {identity: facts for identity, facts in self._facts.items() if identity in existing}
        self._layouts.forget(existing)

    def _read(
        self,
        calls: Calls,
        layout: GpuLayout,
        device: tuple[MigIdentity, Any],
        ids: InstanceIds,
        memory_slice: float | None,
    ) -> MigReading:
        identity, handle = device
        facts = self._facts.get(identity)
        if facts is None:
            facts, complete = read_facts(calls, identity, handle, layout.gpu)
            if complete:
                self._facts[identity] = facts
        memory = layout.memory.get(identity) or ask_row(calls, identity.uuid, handle, MEMORY)
        self._layouts.note(identity, memory)
        bar1 = ask_row(calls, identity.uuid, handle, BAR1) if self._has_bar1 else None
        memory_slices = None
        if facts.instance_memory is not None and memory_slice is not None:
            memory_slices = max(1, round(facts.instance_memory / memory_slice))
        return MigReading(
            uuid=identity.uuid,
            gi=identity.gi,
            ci=identity.ci,
            profile=facts.profile,
            memory=memory,
            bar1=bar1,
            compute_slices=facts.compute_slices,
            instance_slices=facts.instance_slices,
            memory_slices=memory_slices,
            multiprocessors=facts.multiprocessors,
            engines=facts.engines,
            gi_profile=facts.placement.profile,
            gi_start=facts.placement.start,
            gi_size=facts.placement.size,
            processes=self._processes(calls, identity, handle, memory, ids),
        )

    def _processes(
        self, calls: Calls, identity: MigIdentity, handle: Any, memory: Memory | None, ids: InstanceIds
    ) -> tuple[DeviceProcess, ...] | None:
        """Return the processes of a device as ``running`` does."""
        calls.group = "processes"
        processes = running(calls, identity.uuid, handle, None if memory is None else memory.total, ids)
        found = any("graphics" in process.kinds for process in processes or ())
        self._unexpected_graphics = self._unexpected_graphics or (found and not may_have_graphics(identity))
        return processes
