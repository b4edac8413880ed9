"""What is still known of a GPU that does not answer: its identity, and how it was partitioned."""

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from exporter.model.hardware import GpuReading, MigReading


def without_values(reading: GpuReading, read_monotonic: float | None = None) -> GpuReading:
    """Keep who a GPU is and how it is shared, so that what is held on it keeps its place and its mode.

    ``read_monotonic`` is when it was found not to answer, by default when it was read.
    """
    return GpuReading(
        identity=reading.identity,
        up=False,
        compute_mode=reading.compute_mode,
        read_at=time.time(),
        read_monotonic=reading.read_monotonic if read_monotonic is None else read_monotonic,
        mig_enabled=reading.mig_enabled,
        mig_slices=reading.mig_slices,
        mig=None if reading.mig is None else tuple(map(_bare, reading.mig)),
    )


def with_known_layout(
    reading: GpuReading, before: GpuReading, untold: Collection[str] | None = None
) -> GpuReading:
    """Add MIG devices of the last sweep to those of a reading that could not tell of all.

    ``untold`` are the uuids of those that may still be there; None: any of them.
    """
    if reading.mig_complete or not before.mig_enabled:
        return reading
    earlier = before.mig
    if untold is not None and earlier is not None:
        earlier = tuple(device for device in earlier if device.uuid in untold)
    return replace(
        reading,
        mig_enabled=True,
        mig_slices=before.mig_slices,
        mig=_with_untold(reading.mig, earlier),
        processes=None,
        process_utilization=None,
    )


def _with_untold(
    told: tuple[MigReading, ...] | None, before: tuple[MigReading, ...] | None
) -> tuple[MigReading, ...] | None:
    """Add to the MIG devices that were told those of the last sweep, bare, whose place was not."""
    if before is None:
        return told
    found = told or ()
    places = {(device.gi, device.ci) for device in found}
    uuids = {device.uuid for device in found}
    rest = [each for each in before if (each.gi, each.ci) not in places and each.uuid not in uuids]
    devices = sorted((*found, *map(_bare, rest)), key=lambda device: (device.gi, device.ci))
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
