"""How much of the physical GPU a device was used, and which meter says so."""

from collections.abc import Sequence
from typing import NamedTuple

from exporter.model import GpuReading, MigReading, Profile
from exporter.sums import total


class Metered(NamedTuple):
    """A used share of the whole physical GPU, None where nothing meters it, and the name of the meter."""

    share: float | None
    source: str


def of_gpu(gpu: GpuReading) -> Metered:
    """Return the time with a kernel running: as the driver tells it, else as a profiling meter does."""
    if gpu.utilization_percent is not None:
        return Metered(gpu.utilization_percent / 100, "device")
    return Metered(_busy(gpu.profiling), _source(gpu.profiling, "device"))


def of_mig(gpu: GpuReading, mig: MigReading) -> Metered:
    """Return what a MIG device makes of its part of the GPU.

    Rule 6: the time in which its engine worked, as a profiling meter tells it, is the twin of a GPU's
    utilization. How many of its multiprocessors worked is another quantity, and does not stand in for it.
    """
    own, part = own_of(mig), part_of(gpu, mig)
    share = None if own is None or part is None else own * part
    return Metered(share, _source(mig.profiling, "instance"))


def own_of(mig: MigReading) -> float | None:
    """Return the share of the time in which a MIG device or partition worked, of all that it could have."""
    own = _busy(mig.profiling)
    if own is None and mig.utilization_percent is not None:
        return mig.utilization_percent / 100
    return own


def part_of(gpu: GpuReading, mig: MigReading) -> float | None:
    """Return which part of the GPU's compute a MIG device is."""
    if mig.compute_slices is None or not gpu.mig_slices:
        return None
    return mig.compute_slices / gpu.mig_slices


def of_all(gpu: GpuReading, devices: Sequence[Metered]) -> float | None:
    """Return the used share of a cut GPU: that of its MIG devices, where every one is metered.

    A profiling meter of the whole GPU does not stand in for them: of a cut one, it is not told what its
    engine's time means.
    """
    parts = total([device.share for device in devices]) if devices and gpu.mig_complete else None
    if parts is None and gpu.utilization_percent is not None:
        return gpu.utilization_percent / 100
    return parts


def _busy(profile: Profile | None) -> float | None:
    return None if profile is None else profile.active.get("graphics_engine")


def _source(profile: Profile | None, driver: str) -> str:
    return "dcgm" if profile is not None and profile.source == "dcgm" else driver
