"""The rows of every GPU: its devices, its containers, and the unattributed rest."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.attribution import use
from exporter.attribution.audit import Audit
from exporter.attribution.charges import CgroupIndex
from exporter.attribution.container_rows import DeviceJoin
from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.owners import ambiguous, lists_users, lists_users_of, processes_in_pods
from exporter.attribution.use import DeviceReading
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    GpuRow,
    MigReading,
    MigRow,
    ProcessRow,
    SliceCount,
    Workloads,
    total,
)
from exporter.model.mig_geometry import compute_part, free_compute, memory_slices

NVIDIA, AMD = "nvidia", "amd"
WHOLE_GPU = 1.0
# Shares come from percents: differences below this are rounding of sums.
DIGITS = 9
ROUNDING = 1e-6
UNKNOWN_SHARING = DeviceSharing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The rows of one poll."""

    gpus: tuple[GpuRow, ...]
    migs: tuple[MigRow, ...]
    containers: tuple[ContainerRow, ...]
    inconsistent: tuple[tuple[str, str, str], ...]  # (uuid, mig_uuid, quantity): the parts exceed the whole
    processes: tuple[ProcessRow, ...] = ()  # unordered
    audits: Mapping[str, Audit] = field(default_factory=dict)  # by uuid of the GPUs with accounting
    proven: frozenset[DeviceKey] = frozenset()  # devices on which a container without a row has no process


def attribute(  # noqa: PLR0913 - one poll's input
    gpus: Iterable[GpuReading],
    held: HoldingsIndex,
    workloads: Workloads,
    stale: Mapping[str, HoldingsIndex],
    *,
    cgroups: CgroupIndex | None = None,
    confirmed: bool = True,
) -> Attribution:
    """Return the rows that follow from one poll's input; the order of the input does not matter.

    ``stale`` maps the uuid of a GPU that was read in an earlier poll to the holdings of that poll.
    ``cgroups`` are those of ``workloads`` and ``gpus``, made here by default. If ``held`` is not
    ``confirmed`` in this poll, other containers may hold the devices by now.
    """
    ordered = sorted(gpus, key=lambda gpu: (gpu.identity.index, gpu.identity.uuid))
    cgroups = cgroups or CgroupIndex(workloads, ordered)
    in_pods = (*processes_in_pods(ordered, workloads), *cgroups.charged_pods(ordered))
    unnamed = ambiguous(in_pods, held, workloads.pods or {}) | workloads.superseded
    held_at_reading = stale if confirmed else {gpu.identity.uuid: NOT_KNOWN for gpu in ordered} | dict(stale)
    devices = DeviceJoin(held=held, workloads=workloads, unnamed=unnamed, confirmed=confirmed)
    join = _Join(held, devices, stale, held_at_reading, cgroups)
    gpu_rows = [join.gpu(gpu) for gpu in ordered]
    gpu_rows += [join.unread(identity) for identity in held.holdings.unread]
    return Attribution(
        gpus=tuple(gpu_rows),
        migs=tuple(join.migs),
        containers=tuple(sorted(devices.containers, key=lambda row: (row.holder, row.device))),
        inconsistent=tuple(join.inconsistent),
        processes=tuple(devices.processes),
        proven=frozenset(devices.proven),
        audits=devices.audits,
    )


@dataclass(slots=True)
class _Join:
    """Collects the rows of one poll."""

    held: HoldingsIndex
    devices: DeviceJoin
    stale: Collection[str]
    held_at_reading: Mapping[str, HoldingsIndex]
    cgroups: CgroupIndex
    migs: list[MigRow] = field(default_factory=list)
    inconsistent: list[tuple[str, str, str]] = field(default_factory=list)

    def gpu(self, gpu: GpuReading) -> GpuRow:
        if not gpu.mig_enabled:
            return self._whole(gpu)
        if gpu.mig is None:
            return GpuRow(identity=gpu.identity, reading=gpu, sharing=_partition_mode(gpu, ()))
        rows = [row for mig in gpu.mig for row in self._mig(gpu, mig)]
        keys = [DeviceKey(gpu.identity.uuid, mig.uuid) for mig in gpu.mig]
        modes = [self._sharing(key).sharing for key in keys]
        used = use.of_all(gpu, [use.of_mig(gpu, mig) for mig in gpu.mig])
        return self._gpu_row(gpu, _partition_mode(gpu, modes), keys, rows, used)

    def unread(self, identity: GpuIdentity) -> GpuRow:
        """Return the row of a held device that no driver reads: only its holders are known."""
        return replace(self._whole(GpuReading(identity=identity)), reading=None)

    def _whole(self, gpu: GpuReading) -> GpuRow:
        device = self._device(gpu)
        rows = self.devices.rows(device)
        return self._gpu_row(gpu, device.sharing.sharing, [device.key], rows, device.compute)

    def _device(self, gpu: GpuReading, mig: MigReading | None = None) -> DeviceReading:
        """Return one of the GPU's MIG devices, or the GPU as a whole."""
        key = DeviceKey(gpu.identity.uuid, "" if mig is None else mig.uuid)
        reading = gpu if mig is None else mig
        metered = use.of_gpu(gpu) if mig is None else use.of_mig(gpu, mig)
        if mig is None:
            listed = gpu.identity.vendor != AMD and lists_users(gpu.processes, gpu.memory)
        else:
            # GPUs with partitions have no graphics processes, which the driver might not list.
            listed = lists_users_of(gpu, mig)
        own = metered.share if mig is None else use.own_of(mig)
        device = DeviceReading(
            key=key,
            model=gpu.identity.model,
            sharing=self._sharing(key),
            source="device" if mig is None else "instance",
            fresh=gpu.identity.uuid not in self.stale,
            # The known holders at the time it was read.
            holders_then=self.held_at_reading.get(key.uuid, self.held).on(key),
            memory=None if mig is not None and mig.memory_shared else reading.memory,
            compute=metered.share,
            compute_source=metered.source,
            lists_all=listed,
            processes=reading.processes,
            utilization=use.plausible_utilization(reading.process_utilization, own),
            accounts=gpu.process_accounts if mig is None else None,
            charges={} if mig else self.cgroups.charges(gpu, self.held.on(key), self.devices.unnamed),
            most=self.cgroups.capacity(gpu),
        )
        return replace(device, accounts=None) if device.accounts and use.by_mps(device) else device

    def _mig(self, gpu: GpuReading, mig: MigReading) -> list[ContainerRow]:
        device = self._device(gpu, mig)
        key, memory = device.key, device.memory
        rows = self.devices.rows(device)
        row = MigRow(
            device=key,
            reading=mig,
            slices=device.sharing.slices,
            holders=self._holder_count([key]),
            unattributed_memory=self._memory_rest(key, memory.used if memory is not None else None, rows),
            compute_used=device.compute,
            unattributed_utilization=_utilization_rest(device.compute, rows),
        )
        self.migs.append(row)
        part = compute_part(gpu, mig)
        if part is not None:
            self._check_compute(key, rows, part)
        return rows

    def _gpu_row(
        self,
        gpu: GpuReading,
        mode: str,
        keys: Sequence[DeviceKey],
        rows: Sequence[ContainerRow],
        used: float | None,
    ) -> GpuRow:
        whole = DeviceKey(gpu.identity.uuid)
        listed = _lists_held_devices(gpu, self.held.holdings.unresolved_holders)
        used_slices = _slices_used(gpu)
        memory = memory_slices(gpu)
        row = GpuRow(
            identity=gpu.identity,
            reading=gpu,
            sharing=mode,
            slices=self._slices(keys) if listed else (),
            holders=self._holder_count(keys) if listed else None,
            memory_entitled=self._memory_entitled(keys, rows) if listed else None,
            unattributed_memory=self._memory_rest(whole, gpu.memory.used if gpu.memory else None, rows),
            unattributed_utilization=_utilization_rest(used, rows),
            mig_slices_used=used_slices,
            mig_slices_free=free_compute(gpu, used_slices),
            mig_memory_used=memory.used,
            mig_memory_free=memory.free,
            mig_memory_adjacent=memory.adjacent,
        )
        self._check_compute(whole, rows, WHOLE_GPU)
        return row

    def _sharing(self, key: DeviceKey) -> DeviceSharing:
        return self.held.holdings.devices.get(key, UNKNOWN_SHARING)

    def _slices(self, keys: Collection[DeviceKey]) -> tuple[SliceCount, ...]:
        """Return the slices of the devices of a GPU; those on a device without any known may be more."""
        counts = _add_up([self._sharing(key).slices for key in keys])
        unknown = {resource for key, resource in self.held.holdings.uncounted if key in keys}
        return tuple(
            count._replace(allocated=None) if count.resource in unknown else count for count in counts
        )

    def _are_known(self, keys: Iterable[DeviceKey]) -> bool:
        """Return True if all holders of these devices are known."""
        known = self.held.holdings.known and self.held.holdings.all_listed
        return known and self.held.holdings.unplaced.isdisjoint(keys)

    def _holder_count(self, keys: Collection[DeviceKey]) -> int | None:
        if not self._are_known(keys):
            return None
        return len({holder for key in keys for holder in self.held.on(key)})

    def _memory_entitled(self, keys: Collection[DeviceKey], rows: Iterable[ContainerRow]) -> int | None:
        if not self._are_known(keys):
            return None
        return total([row.memory_entitled for row in rows if row.holder in self.held.on(row.device)])

    def _memory_rest(self, key: DeviceKey, used: int | None, rows: Iterable[ContainerRow]) -> int | None:
        """Return the memory in use that is not attributed to a container, in bytes (rule 8)."""
        if used is None:
            return None
        rest = used - sum(row.memory_used for row in rows if row.memory_used is not None)
        if rest < 0:
            self.inconsistent.append((*key, "memory"))
        return max(rest, 0)

    def _check_compute(self, key: DeviceKey, rows: Iterable[ContainerRow], most: float) -> None:
        """Note containers that together compute more than ``most``, the share that the device has (rule 8).

        Other differences mean nothing: the driver averages a device and its processes over different periods.
        """
        if _computed(rows) > most + ROUNDING:
            self.inconsistent.append((*key, "compute"))


def _lists_held_devices(gpu: GpuReading, unresolved: Collection[ContainerRef]) -> bool:
    """Return True if the reading lists every device of a GPU that a container may hold.

    KFD permanently hides partitions from readers without access. MIG devices are known from earlier readings,
    except one made while the driver did not list them: its holder is in ``unresolved``, the containers with
    ids of no known device.
    """
    if gpu.identity.vendor == AMD:
        return gpu.mig_complete
    complete = gpu.mig_complete and (gpu.mig_enabled is not None or gpu.identity.vendor != NVIDIA)
    return complete or not unresolved


def _utilization_rest(used: float | None, rows: Iterable[ContainerRow]) -> float | None:
    """Return the used share of the GPU that is not attributed to a container (rule 8)."""
    return None if used is None else max(0.0, round(used - _computed(rows), DIGITS))


def _computed(rows: Iterable[ContainerRow]) -> float:
    return sum(row.compute_used for row in rows if row.compute_used is not None)


def _partition_mode(gpu: GpuReading, modes: Iterable[str]) -> str:
    """Return the mode of a partitioned GPU, given the ``modes`` of its devices."""
    if gpu.identity.vendor == AMD:
        return "amd-partition"
    return "mig-time-slicing" if "mig-time-slicing" in modes else "mig"


def _slices_used(gpu: GpuReading) -> int | None:
    """Return the compute slices of all GPU instances; None without MIG or if they are not all known."""
    if not gpu.mig_enabled or gpu.mig is None or not gpu.mig_complete or not gpu.up:
        return None
    return total(list({mig.gi: mig.instance_slices for mig in gpu.mig}.values()))


def _add_up(counts: Iterable[tuple[SliceCount, ...]]) -> tuple[SliceCount, ...]:
    """Return the sum of the slices of several devices of one GPU, by resource."""
    by_resource: dict[str, list[SliceCount]] = {}
    for of_device in counts:
        for count in of_device:
            by_resource.setdefault(count.resource, []).append(count)
    return tuple(
        SliceCount(
            resource,
            total([count.offered for count in group]),
            total([count.allocated for count in group]),
            total([count.unhealthy for count in group]),
            total([count.lost for count in group]),
            total([count.cordoned for count in group]),
        )
        for resource, group in sorted(by_resource.items())
    )
