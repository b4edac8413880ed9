"""What a dcgm-exporter says, put where the driver itself said nothing."""

from collections import Counter
from dataclasses import replace

from exporter.dcgm_scrape.page import DcgmReading
from exporter.model import GpuReading, MigReading, Profile

# The call that a GPU does not support whose driver has no profiling meter.
METER = "nvmlGpmQueryDeviceSupport"


def with_dcgm(gpus: tuple[GpuReading, ...], reading: DcgmReading) -> tuple[GpuReading, ...]:
    """Return the GPUs with the profiles of a dcgm-exporter, which never stand in for the driver's own values.

    A profile that the driver had begun keeps its source. What counts comes from one of the two for good,
    however it fails: the other has read the same counters at another time, and they would seem to fall.
    """
    rates = DcgmReading(
        profiles={
            device: replace(told, cycles={}, bytes_total={}) for device, told in reading.profiles.items()
        }
    )
    return tuple(_gpu(gpu, reading if METER in gpu.unsupported else rates) if gpu.up else gpu for gpu in gpus)


def _gpu(gpu: GpuReading, reading: DcgmReading) -> GpuReading:
    whole = reading.profiles.get((gpu.identity.uuid, None))
    tenants = Counter(mig.gi for mig in gpu.mig or ())
    mig = tuple(
        _mig(each, reading.profiles.get((gpu.identity.uuid, each.gi)))
        # Where not all were told, those that were not stand there bare: nobody knows that they still exist.
        if (gpu.mig_complete or each.memory is not None) and tenants[each.gi] == 1
        else each
        for each in gpu.mig or ()
    )
    return replace(gpu, profiling=_filled(gpu.profiling, whole), mig=None if gpu.mig is None else mig)


def _mig(mig: MigReading, found: Profile | None) -> MigReading:
    """Return a MIG device with the profile of its GPU instance, which it must fill."""
    # DCGM's shares on a GPU instance are shares of that instance, not of the whole GPU: a 1g instance that
    # is busy reads 1. So they need no conversion, but are those of a MIG device only where its compute
    # instance owns all of the GPU instance's slices.
    return replace(mig, profiling=_filled(mig.profiling, found)) if mig.fills_instance else mig


def _filled(known: Profile | None, found: Profile | None) -> Profile | None:
    if known is None or found is None:
        return known or found
    return replace(
        known,
        active={**found.active, **known.active},
        engines={**found.engines, **known.engines},
        rates={**found.rates, **known.rates},
        cycles={**found.cycles, **known.cycles},
        bytes_total={**found.bytes_total, **known.bytes_total},
    )
