"""Memory, compute and processes of each container on one device, with the source of each figure.

``use_by_process`` adds up a container's processes (or ``use_without_processes`` takes the device's figures).
``docs/join.md`` has the numbered rules.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.attribution.owners import Owned
from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DeviceSharing,
    GpuReading,
    Memory,
    MigReading,
    ProcessAccounts,
    Profile,
    only,
    total,
)
from exporter.model.memory_limits import Charge
from exporter.model.mig_geometry import compute_part

# Below this share, utilization of a device does not contradict idle processes: the periods differ.
BUSY = 0.1
# Systems that always serve holders through MPS; with others, MPS clients among the processes show it.
BY_MPS = frozenset({"mps", "nos"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One device and its readings."""

    key: DeviceKey
    model: str
    sharing: DeviceSharing
    source: str  # memory_source of a holder that takes the device's figure: device or instance
    fresh: bool  # read in this poll: an older process list proves nothing about containers that came since
    holders_then: Collection[ContainerRef]  # holders when the device was read
    memory: Memory | None
    compute: float | None  # used share of the whole physical GPU
    compute_source: str  # the meter behind ``compute``
    lists_all: bool  # the process list has all users of the device; KFD lists only ROCm compute processes
    processes: tuple[DeviceProcess, ...] | None  # None without a view of processes
    utilization: Mapping[int, float | None] | None  # pid → percent of the physical GPU
    # Processes that computed since the last poll and that no list has: they have no kind.
    unlisted: tuple[DeviceProcess, ...] = ()
    accounts: ProcessAccounts | None = None  # the driver's own accounts of processes; None without any
    # What cgroups meter of each container, and the memory that can be charged to all, in bytes.
    charges: Mapping[ContainerRef, Charge] = field(default_factory=dict)
    most: int | None = None

    @property
    def all_processes(self) -> tuple[DeviceProcess, ...]:
        """The processes in a list of the device, and those in none."""
        return (*(self.processes or ()), *self.unlisted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One container's or pod's use of the device; None is unknown."""

    memory: int | None = None  # bytes
    compute: float | None = None  # share of the physical GPU
    processes: int | None = None  # processes with a context
    memory_source: str = "none"
    compute_source: str = "none"


NOTHING_KNOWN = Use()


def use_without_processes(device: DeviceReading, holders: Iterable[ContainerRef]) -> dict[ContainerRef, Use]:
    """Return the device's figures for the only holder of an exclusive device, else unknown (rule 5)."""
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
    device: DeviceReading,
    percents: Mapping[int, float | None],
    holders: Iterable[ContainerRef],
    owned: Owned,
) -> dict[ContainerRef, Use]:
    """Return each owner's sum over its processes, and 0 for other holders, as if each process were placed.

    ``percents`` are those of ``percent_by_pid``. Rules 3, 6 and 7; ``Closure`` decides on the zeros.
    """
    refs = list(holders)
    merged_pods = {(owner.namespace, owner.pod) for owner in owned.by_owner if not owner.container}
    using = {ContainerRef(owner.namespace, owner.pod, "") for owner in owned.by_owner}
    uses = {owner: _sum(percents, processes) for owner, processes in owned.by_owner.items()}
    for ref in refs:
        if ref not in uses:
            # A pod as a whole is not idle while one of its containers uses the device.
            doubted = (ref.namespace, ref.pod) in merged_pods or ref in using
            uses[ref] = NOTHING_KNOWN if doubted else _idle(device)
    if _booked_on_server(device):
        uses = {
            ref: replace(use, compute=None, compute_source="none") if use.compute == 0 else use
            for ref, use in uses.items()
        }
    uses = _with_server_compute(device, refs, owned, uses)
    return _with_device_compute(device, refs, owned, uses)


def _sum(percents: Mapping[int, float | None], processes: list[DeviceProcess]) -> Use:
    memory = total([process.memory for process in processes])
    percent = total([percents[process.pid] for process in processes])
    return Use(
        memory=memory,
        compute=None if percent is None else percent / 100,
        processes=sum(bool(process.kinds) for process in processes),
        memory_source="none" if memory is None else "process",
        compute_source="none" if percent is None else "process",
    )


def percent_by_pid(device: DeviceReading) -> dict[int, float | None]:
    """Return the percent of the physical GPU that each process of a device uses.

    0 for a process without an entry, None if it is unknown or not proven to be 0.
    """
    pids = [process.pid for process in device.all_processes]
    if device.utilization is None:
        return dict.fromkeys(pids)
    percents = {pid: device.utilization.get(pid, 0) for pid in pids}
    if _booked_on_server(device):
        clients, _ = _mps_clients(device)
        for process in clients or device.processes or ():
            if percents[process.pid] == 0:
                percents[process.pid] = None
    return percents


def _idle(device: DeviceReading) -> Use:
    measured = device.utilization is not None
    return Use(
        memory=0,
        compute=0.0 if measured else None,
        processes=0,
        memory_source="process",
        compute_source="process" if measured else "none",
    )


def _booked_on_server(device: DeviceReading) -> bool:
    """Return True if the driver may book the compute of MPS clients on the MPS server."""
    clients, others = _mps_clients(device)
    if not (clients or device.sharing.sharing in BY_MPS) or device.utilization is None:
        return False
    return any(device.utilization.get(process.pid, 0) != 0 for process in others)


def by_mps(device: DeviceReading) -> bool:
    """Return True if MPS may serve a process of a device: a sample is then the server's, not the client's."""
    clients, _ = _mps_clients(device)
    return bool(clients) or device.sharing.sharing in BY_MPS


def _mps_clients(device: DeviceReading) -> tuple[list[DeviceProcess], list[DeviceProcess]]:
    """Return the MPS clients on a device, and its other processes; the MPS server is one of these."""
    clients = [process for process in device.all_processes if "mps" in process.kinds]
    return clients, [process for process in device.all_processes if "mps" not in process.kinds]


def _with_server_compute(
    device: DeviceReading, holders: list[ContainerRef], owned: Owned, uses: dict[ContainerRef, Use]
) -> dict[ContainerRef, Use]:
    """Move the MPS server's compute from the container it runs in to that of its clients, or to none.

    A server runs only the kernels of its clients. As one that has ended since the last poll may have been
    another holder's, only a single holder takes it. Rule 6.
    """
    clients, others = _mps_clients(device)
    if device.utilization is None or not clients or len(others) != 1 or "compute" not in others[0].kinds:
        return uses
    homes = {process.pid: ref for ref, processes in owned.by_owner.items() for process in processes}
    served, server = {homes.get(client.pid) for client in clients}, homes.get(others[0].pid)
    user = only(served)
    alone = holders == [user] and user in device.holders_then
    figures = [device.utilization.get(process.pid, 0) for process in (*clients, *others)]
    percent = total(figures) if alone or user == server else None
    moved = dict(uses)
    if server is not None and uses[server].compute != 0:
        moved[server] = _of_server(uses[server], None if percent is None else 0.0)
    if user is not None and (alone or user == server):
        moved[user] = _of_server(uses[user], None if percent is None else percent / 100)
    return moved


def _of_server(use: Use, compute: float | None) -> Use:
    return replace(use, compute=compute, compute_source="none" if compute is None else "server")


def _with_device_compute(
    device: DeviceReading, holders: list[ContainerRef], owned: Owned, uses: dict[ContainerRef, Use]
) -> dict[ContainerRef, Use]:
    """Use the device's compute for its only user, if the device is exclusive and no process has a figure.

    Rule 6.
    """
    alone = len(holders) == 1 and set(uses) == set(holders) and not (owned.unknown or owned.outside)
    alone = alone and holders[0] in device.holders_then
    figures = device.utilization is not None and (device.lists_all or bool(device.processes))
    if figures or device.compute is None or not device.sharing.exclusive or not alone:
        return uses
    use = uses[holders[0]]
    return {holders[0]: replace(use, compute=device.compute, compute_source=device.compute_source)}


def plausible_utilization(
    utilization: Mapping[int, float | None] | None, compute: float | None
) -> Mapping[int, float | None] | None:
    """Return ``utilization`` (pid → percent), or None if it is all zero on a device that was busy."""
    all_idle = utilization is not None and not any(utilization.values())
    return None if all_idle and compute is not None and compute >= BUSY else utilization


class UsedShare(NamedTuple):
    """The used share of the whole physical GPU."""

    share: float | None  # None if nothing meters it
    source: str  # name of the meter


def of_gpu(gpu: GpuReading) -> UsedShare:
    """Return the share of time with a kernel running, by the driver, else by a profiling metric."""
    if gpu.utilization_percent is not None:
        return UsedShare(gpu.utilization_percent / 100, "device")
    return UsedShare(_busy(gpu.profiling), _source(gpu.profiling, "device"))


def of_mig(gpu: GpuReading, mig: MigReading) -> UsedShare:
    """Return a MIG device's use as a share of the physical GPU (rule 6).

    The graphics engine's active time of a profiling metric corresponds to a GPU's utilization; SM activity is
    another quantity and is not used instead.
    """
    own, part = own_of(mig), compute_part(gpu, mig)
    share = None if own is None or part is None else own * part
    return UsedShare(share, _source(mig.profiling, "instance"))


def own_of(mig: MigReading) -> float | None:
    """Return the share of time in which a MIG device or partition was busy."""
    own = _busy(mig.profiling)
    if own is None and mig.utilization_percent is not None:
        return mig.utilization_percent / 100
    return own


def of_all(gpu: GpuReading, devices: Sequence[UsedShare]) -> float | None:
    """Return the used share of a partitioned GPU: the sum of its MIG devices if each is metered.

    A profiling metric of the whole GPU is not used: what its engine's time means under MIG is not documented.
    """
    parts = total([device.share for device in devices]) if devices and gpu.mig_complete else None
    if parts is None and gpu.utilization_percent is not None:
        return gpu.utilization_percent / 100
    return parts


def _busy(profile: Profile | None) -> float | None:
    return None if profile is None else profile.active.get("graphics_engine")


def _source(profile: Profile | None, driver: str) -> str:
    return "dcgm" if profile is not None and profile.source == "dcgm" else driver
