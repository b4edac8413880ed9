"""What each holder of one device uses, and where the number comes from.

The rules are numbered in ``docs/join.md``; each function names those that it carries out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.attribution.owners import Owned
from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DeviceSharing,
    GpuReading,
    Holding,
    Memory,
    Meter,
    MigReading,
    Profile,
)
from exporter.model.sums import total


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device and what it says itself. ``compute`` is its used share of the whole physical GPU.

    ``fresh``: it was read in this poll. An older list of processes proves nothing about a container that
    may have come since; ``holders_then`` held the device when it was read.

    ``lists_all``: its list of processes has all that use it. KFD's has only what computes with ROCm.
    ``processes`` and ``utilization`` (pid → percent of the physical GPU) are None where there is no view of
    processes.
    ``source`` is the name of the memory's figures when one holder takes them, ``device`` or ``instance``;
    ``compute_source`` names the meter behind ``compute``.
    """

    key: DeviceKey
    model: str
    sharing: DeviceSharing
    source: str
    fresh: bool
    holders_then: Collection[ContainerRef]
    memory: Memory | None
    compute: float | None
    compute_source: str
    lists_all: bool
    processes: tuple[DeviceProcess, ...] | None
    utilization: Mapping[int, float | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one owner uses of the device: bytes, share of the physical GPU, processes with a context."""

    memory: int | None = None
    compute: float | None = None
    processes: int | None = None
    memory_source: str = "none"
    compute_source: str = "none"


NOTHING_KNOWN = Use()
# Systems whose holders are clients of MPS. Others may serve them by MPS too, which their clients tell.
BY_MPS = frozenset({"mps", "nos"})


def use_without_processes(device: Device, holders: Iterable[ContainerRef]) -> dict[ContainerRef, Use]:
    """Rule 5: one holder of an exclusive device takes the device's numbers; several have none."""
    refs = list(holders)
    if len(refs) != 1 or not device.sharing.exclusive or refs[0] not in device.holders_then:
        return dict.fromkeys(refs, NOTHING_KNOWN)
    return {
        refs[0]: Use(
            memory=device.memory.used if device.memory is not None else None,
            compute=device.compute,
            memory_source=device.source if device.memory is not None else "none",
            compute_source=device.compute_source if device.compute is not None else "none",
        )
    }


def use_by_process(
    device: Device, holders: Iterable[ContainerRef], owned: Owned, absence_proven: bool
) -> dict[ContainerRef, Use]:
    """Rules 3, 4, 6 and 7: sums over processes; zero only where it is proven that a holder has none."""
    refs = list(holders)
    merged_pods = {(owner.namespace, owner.pod) for owner in owned.by_owner if not owner.container}
    using = {ContainerRef(owner.namespace, owner.pod, "") for owner in owned.by_owner}
    uses = {owner: _sum(device, processes) for owner, processes in owned.by_owner.items()}
    for ref in refs:
        if ref in uses:
            continue
        # A pod as a whole does not use nothing while one of its containers uses something.
        if (ref.namespace, ref.pod) in merged_pods or ref in using or not absence_proven:
            uses[ref] = NOTHING_KNOWN
        else:
            uses[ref] = _idle(device)
    if _booked_on_server(device):
        uses = {ref: _without_zero(use) for ref, use in uses.items()}
    return _with_device_compute(device, refs, owned, uses)


def compute_of(device: Device, processes: Iterable[DeviceProcess]) -> dict[int, float | None]:
    """Return by pid what each uses, as a share of the physical GPU; None where its container's is no zero."""
    booked = _booked_on_server(device)
    percents = {process.pid: _percent(device.utilization, [process]) for process in processes}
    return {
        pid: None if percent is None or (percent == 0 and booked) else percent / 100
        for pid, percent in percents.items()
    }


def _sum(device: Device, processes: list[DeviceProcess]) -> Use:
    memory = total([process.memory for process in processes])
    percent = _percent(device.utilization, processes)
    return Use(
        memory=memory,
        compute=None if percent is None else percent / 100,
        processes=len(processes),
        memory_source="none" if memory is None else "process",
        compute_source="none" if percent is None else "process",
    )


def _percent(utilization: Mapping[int, float | None] | None, processes: list[DeviceProcess]) -> float | None:
    """Add up; a process that is not in an answer did not run, one with an unknown figure spoils the sum."""
    if utilization is None:
        return None
    return total([utilization.get(process.pid, 0) for process in processes])


def _idle(device: Device) -> Use:
    measured = device.utilization is not None
    return Use(
        memory=0,
        compute=0.0 if measured else None,
        processes=0,
        memory_source="process",
        compute_source="process" if measured else "none",
    )


def _booked_on_server(device: Device) -> bool:
    """Whether clients of MPS may have computed in the name of the server: the context that is no client's."""
    processes = device.processes or ()
    servers = [process.pid for process in processes if "mps" not in process.kinds]
    served = device.sharing.sharing in BY_MPS or len(servers) < len(processes)
    if not served or device.utilization is None:
        return False
    return any(device.utilization.get(pid, 0) != 0 for pid in servers)


def _without_zero(use: Use) -> Use:
    return replace(use, compute=None, compute_source="none") if use.compute == 0 else use


def _with_device_compute(
    device: Device, holders: list[ContainerRef], owned: Owned, uses: dict[ContainerRef, Use]
) -> dict[ContainerRef, Use]:
    """Rule 6: where processes have no figure, the only one on an exclusive device takes the device's."""
    alone = len(holders) == 1 and set(uses) == set(holders) and not (owned.unknown or owned.outside)
    alone = alone and holders[0] in device.holders_then
    figures = device.utilization is not None and (device.lists_all or bool(device.processes))
    if figures or device.compute is None or not device.sharing.exclusive or not alone:
        return uses
    use = uses[holders[0]]
    return {holders[0]: replace(use, compute=device.compute, compute_source=device.compute_source)}


def with_meters(
    uses: Mapping[ContainerRef, Use], held: Mapping[ContainerRef, Sequence[Holding]], used: int | None
) -> dict[ContainerRef, Use]:
    """Return uses with the figures of meters for metered holders, and those bytes for nobody else.

    ``used`` are the bytes that the device itself says are used.
    """
    room = None if used is None else used - sum(use.memory or 0 for use in uses.values())
    meters = {ref: meter for ref in held if (meter := _meter(held[ref])) is not None}
    pods = {(ref.namespace, ref.pod) for ref in meters}
    result = dict(uses)
    for ref, use in uses.items():
        if ref in meters:
            result[ref] = use if _is_left_over(use, meters[ref], room) else _metered(use, meters[ref])
        elif not ref.container and (ref.namespace, ref.pod) in pods:
            # The processes of a pod that could not be told apart: some are those that were metered.
            result[ref] = Use(processes=use.processes)
    return result


def _meter(holdings: Sequence[Holding]) -> Meter | None:
    """Return the meter of a container: there is one on a device, by however many resources it is held."""
    return next((holding.meter for holding in holdings if holding.meter is not None), None)


def _is_left_over(use: Use, meter: Meter, room: int | None) -> bool:
    """Whether a meter still has what processes had that were killed: nobody is there, nor are the bytes."""
    nobody = use.processes == 0 and use.memory == 0
    return nobody and room is not None and (meter.memory or 0) > max(room, 0)


def _metered(use: Use, meter: Meter) -> Use:
    memory, compute = meter.memory, meter.compute
    # The meter reports no memory although the driver lists memory of the container's processes.
    if meter.memory == 0 and use.memory_source == "process" and use.memory:
        # Nor is a compute of 0 anything that was seen.
        memory, compute = None, compute or None
    use = replace(use, memory=memory, memory_source="none" if memory is None else meter.source)
    if meter.memory_only:
        return use
    return replace(use, compute=compute, compute_source="none" if compute is None else meter.source)


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
