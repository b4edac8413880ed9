"""Readings of GPUs that do not answer, or not completely: identity and last known partitioning."""

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from exporter.model.hardware import GpuReading, MigReading


def without_values(reading: GpuReading, read_monotonic: float | None = None) -> GpuReading:
    """Return a reading with ``up`` False that keeps identity, compute mode and partitioning.

    Allocations on the GPU then keep their device and sharing mode. ``read_monotonic`` is the time at which it
    did not answer (monotonic clock), by default the time of ``reading``.
    """
    return GpuReading(
        identity=reading.identity,
        up=False,
        compute_mode=reading.compute_mode,
        read_at=time.time(),
        read_monotonic=reading.read_monotonic if read_monotonic is None else read_monotonic,
        mig_enabled=reading.mig_enabled,
        mig_slices=reading.mig_slices,
        mig_profiles=reading.mig_profiles,
        mig=None if reading.mig is None else tuple(map(_bare, reading.mig)),
    )


def with_known_layout(
    reading: GpuReading, last: GpuReading, unread: Collection[str] | None = None
) -> GpuReading:
    """Return an incomplete reading with MIG devices of the last sweep added, without their values.

    ``unread`` are the uuids of those that may still exist; None: any of them. A complete reading is returned
    unchanged.
    """
    if reading.mig_complete or not last.mig_enabled:
        return reading
    earlier = last.mig
    if unread is not None and earlier is not None:
        earlier = tuple(device for device in earlier if device.uuid in unread)
    return replace(
        reading,
        mig_enabled=True,
        mig_slices=last.mig_slices,
        mig=_merged(reading.mig, earlier),
        processes=None,
        process_utilization=None,
    )


def _merged(
    current: tuple[MigReading, ...] | None, earlier: tuple[MigReading, ...] | None
) -> tuple[MigReading, ...] | None:
    """Return the current devices, and bare those of the earlier ones that no current device replaces."""
    if earlier is None:
        return current
    places = {(device.gi, device.ci) for device in current or ()}
    uuids = {device.uuid for device in current or ()}
    missing = (
        device for device in earlier if (device.gi, device.ci) not in places and device.uuid not in uuids
    )
    devices = sorted((*(current or ()), *map(_bare, missing)), key=lambda device: (device.gi, device.ci))
    sharers = Counter(device.gi for device in devices)
    return tuple(replace(device, memory_shared=sharers[device.gi] > 1) for device in devices)


def _bare(device: MigReading) -> MigReading:
    return replace(
        device,
        memory=None,
        bar1=None,
        processes=None,
        process_utilization=None,
        utilization_percent=None,
        profiling=None,
    )
