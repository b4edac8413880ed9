"""MIG of a GPU: the readings of its MIG devices, their fixed facts, and the profiles of its model.

Fixed facts are kept by identity: ids, UUID and profile. Some drivers report the placement of GPU instances to
administrators only. It is asked until it is reported or denied.

Profiles are asked of the driver once for each GPU model: they do not change with the partitioning, and are
reported also while MIG mode is disabled. They are numbered over all boards, and each board has some of them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from exporter.model import DeviceProcess, GpuIdentity, Memory, MigReading
from exporter.model.bounds import BYTES, NUMBER, PARTS, Bound
from exporter.model.mig_profiles import MEBIBYTE, MigProfile, MigProfiles, listed_profiles
from exporter.nvml.driver.binding import text_field
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import CORE
from exporter.nvml.mig_layout import MOST_SLICES, GpuLayout, LayoutReader, MigIdentity
from exporter.nvml.readings.answers import (
    BAR1,
    MEMORY,
    ask_row,
    ask_until_refused,
    believed,
    is_skipped,
    keep_only,
    known,
    positive,
)
from exporter.nvml.readings.gpu_processes import InstanceIds, ProcessLists, without_doubles

PROFILE_MARK = " MIG "
GRAPHICS_MARK = "gfx"
# Memory slices of a GPU by its compute slices, if they differ.
MEMORY_SLICES = {7: 8}
# Permissions do not change while the exporter runs.
REFUSAL = "NoPermission"
ATTRIBUTES = "nvmlDeviceGetAttributes"
# Fields of ``nvmlDeviceAttributes_t`` by engine.
ENGINES: Mapping[str, str] = {
    "copy": "sharedCopyEngineCount",
    "decoder": "sharedDecoderCount",
    "encoder": "sharedEncoderCount",
    "jpeg": "sharedJpegCount",
    "ofa": "sharedOfaCount",
}
SLICES, MEBIBYTES = Bound(1, MOST_SLICES), Bound(1, BYTES.highest // MEBIBYTE)
INSTANCE_INFO = "nvmlGpuInstanceGetInfo"
REPORT = "nvmlDeviceGetGpuInstanceProfileInfo"
# The numbers go on where today's end, at 17.
MOST_PROFILES = 32
_NAME = re.compile(r"MIG (\d{1,2}g\.\d{1,4}gb(?:[+-][a-z.]{1,16})?)", re.ASCII)


class MigFacts(NamedTuple):
    """Facts that do not change while a MIG device exists."""

    reading: MigReading  # a reading with these facts only
    # Bytes of the GPU instance, to derive the memory slices, which NVML does not report; None if unknown.
    instance_memory: int | None = None


class MigReader:
    """Reads the MIG devices of every GPU; keeps the fixed facts of those that exist.

    ``layouts`` receives the sizes of their memory. ``skip`` as for DeviceReader.
    """

    def __init__(self, layouts: LayoutReader, lists: ProcessLists, skip: Collection[str]) -> None:
        self._has_bar1 = not is_skipped(BAR1.into, skip)
        self._layouts = layouts
        self._facts: dict[MigIdentity, MigFacts] = {}
        self._lists = lists
        # Whether a device was found to have graphics processes although its profile has no graphics.
        self._unexpected_graphics = False

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
        # In an incomplete layout, there may be other GPU instances.
        instances = sharers if layout.complete else ()
        readings = []
        for identity, handle in layout.devices:
            graphics = slow or self._unexpected_graphics or may_have_graphics(identity)
            ids = InstanceIds(identity.gi, identity.ci, instances, graphics)
            with calls.about(identity.uuid):
                fixed, size = self._facts_of(calls, identity, handle, layout.gpu)
                memory = layout.memory.get(identity) or ask_row(calls, identity.uuid, handle, MEMORY)
                self._layouts.note(identity, memory)
                bar1 = ask_row(calls, identity.uuid, handle, BAR1) if self._has_bar1 else None
                processes = self._processes(calls, identity, handle, memory, ids)
            memory_slices = None
            if size is not None and memory_slice is not None:
                memory_slices = max(1, round(size / memory_slice))
            reading = replace(
                fixed,
                memory=memory,
                bar1=bar1,
                memory_slices=memory_slices,
                memory_shared=sharers[identity.gi] > 1,
                processes=processes,
            )
            readings.append(reading)
        return tuple(without_doubles(readings))

    def keep_only(self, existing: set[MigIdentity]) -> None:
        """Drop the facts of MIG devices that no longer exist."""
        keep_only(existing, self._facts)

    def _facts_of(self, calls: Calls, identity: MigIdentity, handle: Any, gpu: Any) -> MigFacts:
        facts = self._facts.get(identity)
        if facts is None:
            facts, complete = read_facts(calls, identity, handle, gpu)
            if complete:
                self._facts[identity] = facts
        return facts

    def _processes(
        self, calls: Calls, identity: MigIdentity, handle: Any, memory: Memory | None, ids: InstanceIds
    ) -> tuple[DeviceProcess, ...] | None:
        """Return the processes of a device as ``running`` does."""
        calls.group = "processes"
        processes = self._lists.read(calls, identity.uuid, handle, memory, ids)
        found = any("graphics" in process.kinds for process in processes or ())
        self._unexpected_graphics = self._unexpected_graphics or (found and not may_have_graphics(identity))
        return processes


def read_facts(calls: Calls, identity: MigIdentity, handle: Any, gpu: Any) -> tuple[MigFacts, bool]:
    """Return the facts of a MIG device, and whether they are complete; ``gpu`` is the handle of its GPU.

    Raises as ``Calls.ask`` does.
    """
    calls.group = CORE
    failures = calls.records.failures
    profile = identity.name.partition(PROFILE_MARK)[2] or None
    reading = MigReading(uuid=identity.uuid, gi=identity.gi, ci=identity.ci, profile=profile)
    attributes = calls.ask(identity.uuid, ATTRIBUTES, handle)
    if attributes is None:
        return MigFacts(reading), False
    reading = _with_placement(calls, reading, gpu)
    calls.group = CORE
    check = partial(believed, calls, identity.uuid, ATTRIBUTES)
    engines = {engine: check(known(getattr(attributes, field)), PARTS) for engine, field in ENGINES.items()}
    # Drivers answer 0 or all ones for unknown slices.
    reading = replace(
        reading,
        engines={engine: count for engine, count in engines.items() if count is not None},
        compute_slices=check(positive(attributes.computeInstanceSliceCount), SLICES),
        instance_slices=check(positive(attributes.gpuInstanceSliceCount), SLICES),
        multiprocessors=check(positive(attributes.multiprocessorCount), PARTS),
    )
    size = _bytes(check(positive(attributes.memorySizeMB), MEBIBYTES))
    return MigFacts(reading, size), calls.records.failures == failures


def _bytes(mebibytes: int | None) -> int | None:
    return None if mebibytes is None else mebibytes * MEBIBYTE


def may_have_graphics(identity: MigIdentity) -> bool:
    """Return whether a MIG device can run graphics: 1g.24gb+gfx can, 1g.24gb cannot."""
    profile = identity.name.partition(PROFILE_MARK)[2]
    return not profile or GRAPHICS_MARK in profile


def _with_placement(calls: Calls, reading: MigReading, gpu: Any) -> MigReading:
    """Return the reading with the placement of its GPU instance, and NVML's id of the instance's profile."""
    ask = partial(ask_until_refused, calls, REFUSAL, reading.uuid)
    instance = ask("nvmlDeviceGetGpuInstanceById", gpu, reading.gi)
    info = None if instance is None else ask(INSTANCE_INFO, instance)
    if info is None:
        return reading
    check = partial(believed, calls, reading.uuid, INSTANCE_INFO)
    return replace(
        reading,
        gi_profile=check(known(info.profileId), NUMBER),
        gi_start=check(known(info.placement.start), PARTS),
        gi_size=check(known(info.placement.size), PARTS),
    )


class ProfileReader:
    """Keeps the MIG profiles: those that a driver reports by model of GPU, those of the table by GPU."""

    def __init__(self) -> None:
        self._reported: dict[str, MigProfiles] = {}
        # By uuid of the GPUs that were asked.
        self._listed: dict[str, MigProfiles | None] = {}
        self._incomplete: set[str] = set()

    def read(
        self, calls: Calls, identity: GpuIdentity, handle: Any, memory: int | None, *, slow: bool
    ) -> MigProfiles | None:
        """Return the profiles of a GPU that has a MIG mode, with ``memory`` bytes; None if they are unknown.

        After an incomplete answer the driver is asked again with ``slow``. Raises as ``Calls.ask`` does.
        """
        model, uuid = identity.model, identity.uuid
        if not model:
            return None
        due = uuid not in self._listed or (slow and uuid in self._incomplete)
        if due and model not in self._reported:
            failures = calls.records.failures
            profiles = tuple(_profiles(calls, uuid, handle))
            complete = calls.records.failures == failures
            if profiles and complete:
                self._reported[model] = MigProfiles("driver", profiles)
            self._listed[uuid] = listed_profiles(model, memory)
            self._incomplete.discard(uuid)
            if not complete or memory is None:
                self._incomplete.add(uuid)
        return self._reported.get(model) or self._listed.get(uuid)

    def forget(self, identity: GpuIdentity | None = None) -> None:
        """Ask again about the model of a GPU, or about all: the driver or the MIG mode has changed."""
        if identity is None:
            self._reported.clear()
            self._listed.clear()
        else:
            self._reported.pop(identity.model, None)
            self._listed.pop(identity.uuid, None)
            self._incomplete.discard(identity.uuid)


def _profiles(calls: Calls, uuid: str, handle: Any) -> list[MigProfile]:
    calls.group = "modes"
    ask = (calls, REFUSAL, uuid, REPORT, handle)
    answers = (ask_until_refused(*ask, place) for place in range(MOST_PROFILES))
    return [
        profile for answer in answers if answer is not None and (profile := _profile(calls, uuid, answer))
    ]


def _profile(calls: Calls, uuid: str, answer: Any) -> MigProfile | None:
    match = _NAME.fullmatch(text_field(answer, "name"))
    if match is None:
        return None
    check = partial(believed, calls, uuid, REPORT)
    return MigProfile(
        name=match[1],
        memory=_bytes(check(positive(answer.memorySizeMB), MEBIBYTES)),
        multiprocessors=check(positive(answer.multiprocessorCount), PARTS),
        instances=check(positive(answer.instanceCount), SLICES),
    )
