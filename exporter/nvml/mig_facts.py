"""Fixed facts of MIG devices: slices, engines, and placement of their GPU instance.

Some drivers report the placement to administrators only. It is asked until it is reported or denied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.nvml.driver.calls import CORE, Calls
from exporter.nvml.readings.answers import ask_until_refused, number

PROFILE_MARK = " MIG "
GRAPHICS_MARK = "gfx"
# No GPU has more slices or more memory.
MOST_SLICES = 64
MOST_MEBIBYTES = 1 << 30
# Permissions do not change while the exporter runs.
REFUSAL = "NoPermission"
# Fields of ``nvmlDeviceAttributes_t`` by engine.
ENGINES = {
    "copy": "sharedCopyEngineCount",
    "decoder": "sharedDecoderCount",
    "encoder": "sharedEncoderCount",
    "jpeg": "sharedJpegCount",
    "ofa": "sharedOfaCount",
}


@dataclass(frozen=True, slots=True, order=True)
class MigIdentity:
    """Identity of a MIG device: equal to that of the last sweep only if it is the same device."""

    gi: int
    ci: int
    uuid: str
    # Contains the profile: a new device in the same place gets the same ids and UUID.
    name: str


class Placement(NamedTuple):
    """Placement of a GPU instance; None is unknown."""

    # NVML's id of the profile.
    profile: int | None = None
    # First memory slice, and number of memory slices.
    start: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class MigFacts:
    """Facts that do not change while a MIG device exists; None is unknown."""

    profile: str | None
    compute_slices: int | None
    instance_slices: int | None
    # Bytes, to derive the memory slices, which NVML does not report.
    instance_memory: int | None
    multiprocessors: int | None
    # Of the GPU instance.
    engines: Mapping[str, int] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)


def read_facts(calls: Calls, identity: MigIdentity, handle: Any, gpu: Any) -> tuple[MigFacts, bool]:
    """Return the facts of a MIG device, and whether they are complete; ``gpu`` is the handle of its GPU.

    Raises as ``Calls.ask`` does.
    """
    calls.group = CORE
    failures = calls.failures()
    attributes = calls.ask(identity.uuid, "nvmlDeviceGetAttributes", handle)
    facts = MigFacts(
        profile=identity.name.partition(PROFILE_MARK)[2] or None,
        compute_slices=_slices(getattr(attributes, "computeInstanceSliceCount", 0)),
        instance_slices=_slices(getattr(attributes, "gpuInstanceSliceCount", 0)),
        instance_memory=_bytes(getattr(attributes, "memorySizeMB", 0)),
        multiprocessors=number(getattr(attributes, "multiprocessorCount", 0)) or None,
        engines={} if attributes is None else _engines(attributes),
        placement=Placement() if attributes is None else _placement(calls, identity, gpu),
    )
    return facts, attributes is not None and calls.failures() == failures


def may_have_graphics(identity: MigIdentity) -> bool:
    """Return whether a MIG device can run graphics: 1g.24gb+gfx can, 1g.24gb cannot."""
    profile = identity.name.partition(PROFILE_MARK)[2]
    return not profile or GRAPHICS_MARK in profile


def _placement(calls: Calls, identity: MigIdentity, gpu: Any) -> Placement:
    ask = (calls, REFUSAL, identity.uuid)
    instance = ask_until_refused(*ask, "nvmlDeviceGetGpuInstanceById", gpu, identity.gi)
    info = None if instance is None else ask_until_refused(*ask, "nvmlGpuInstanceGetInfo", instance)
    if info is None:
        return Placement()
    return Placement(number(info.profileId), number(info.placement.start), number(info.placement.size))


def _engines(attributes: Any) -> dict[str, int]:
    counts = {engine: number(getattr(attributes, name)) for engine, name in ENGINES.items()}
    return {engine: count for engine, count in counts.items() if count is not None}


def _slices(count: int) -> int | None:
    """Return a plausible number of slices; drivers answer 0 or all ones if it is unknown."""
    return count if 0 < count <= MOST_SLICES else None


def _bytes(mebibytes: int) -> int | None:
    return mebibytes << 20 if 0 < mebibytes <= MOST_MEBIBYTES else None
