"""One GPU after the other: its devices, its holders, its users, and the rest that is nobody's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.attribution import use
from exporter.attribution.device_rows import DeviceJoin
from exporter.attribution.holdings_index import (
    AMD,
    NOT_KNOWN,
    HoldingsIndex,
    are_all_told,
    cut_mode,
    slices_used,
)
from exporter.attribution.plausibility import ambiguous, believed, lists_users, lists_users_of
from exporter.attribution.use import Device
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
)
from exporter.model.mig_geometry import memory_slices
from exporter.model.sums import total

ALL_THE_TIME = 1.0
# Of shares that are told in percent; what is apart by less than this is the rounding of sums.
DIGITS = 9
ROUNDING = 1e-6
UNKNOWN_SHARING = DeviceSharing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The rows of one poll; ``inconsistent``: (uuid, mig_uuid, quantity) whose parts exceed the whole.

    ``processes`` stand in no order. On ``proven`` devices, who has no row has no process.
    """

    gpus: tuple[GpuRow, ...]
    migs: tuple[MigRow, ...]
    containers: tuple[ContainerRow, ...]
    inconsistent: tuple[tuple[str, str, str], ...]
    processes: tuple[ProcessRow, ...] = ()
    proven: frozenset[DeviceKey] = frozenset()


def attribute(
    gpus: Iterable[GpuReading],
    held: HoldingsIndex,
    workloads: Workloads,
    stale: Mapping[str, HoldingsIndex],
    *,
    confirmed: bool = True,
) -> Attribution:
    """Join everything known at one moment. Rows are sorted; the order of the inputs does not matter.

    ``stale`` has the uuids of GPUs whose reading is from an earlier poll than the holdings, and the holdings
    of that poll. Holdings that are not ``confirmed`` are those of an earlier poll: by now others may hold the
    devices.
    """
    ordered = sorted(gpus, key=lambda gpu: (gpu.identity.index, gpu.identity.uuid))
    unnamed = ambiguous(ordered, held, workloads) | workloads.superseded
    then = stale if confirmed else {gpu.identity.uuid: NOT_KNOWN for gpu in ordered} | dict(stale)
    join = _Join(held, DeviceJoin(held, workloads, unnamed, confirmed=confirmed), stale, then)
    gpu_rows = [join.gpu(gpu) for gpu in ordered]
    gpu_rows += [join.unread(identity) for identity in held.holdings.unread]
    return Attribution(
        gpus=tuple(gpu_rows),
        migs=tuple(join.migs),
        containers=tuple(sorted(join.containers, key=lambda row: (row.holder, row.device))),
        inconsistent=tuple(join.inconsistent),
        processes=tuple(join.processes),
        proven=join.proven,
    )


class _Join:
    """Collects the rows of one poll."""

    def __init__(
        self,
        held: HoldingsIndex,
        devices: DeviceJoin,
        stale: Collection[str],
        then: Mapping[str, HoldingsIndex],
    ) -> None:
        self._stale = stale
        self._then = then
        self.migs: list[MigRow] = []
        self.containers: list[ContainerRow] = []
        self.inconsistent: list[tuple[str, str, str]] = []
        self._held = held
        self._holdings = held.holdings
        self._devices = devices

    @property
    def processes(self) -> list[ProcessRow]:
        return self._devices.processes

    @property
    def proven(self) -> frozenset[DeviceKey]:
        return frozenset(self._devices.proven)

    def gpu(self, gpu: GpuReading) -> GpuRow:
        if not gpu.mig_enabled:
            return self._whole(gpu)
        if gpu.mig is None:
            return GpuRow(identity=gpu.identity, reading=gpu, sharing=cut_mode(gpu, ()))
        rows = [row for mig in gpu.mig for row in self._mig(gpu, mig)]
        keys = [DeviceKey(gpu.identity.uuid, mig.uuid) for mig in gpu.mig]
        modes = [self._sharing(key).sharing for key in keys]
        used = use.of_all(gpu, [use.of_mig(gpu, mig) for mig in gpu.mig])
        return self._gpu_row(gpu, cut_mode(gpu, modes), keys, rows, used)

    def unread(self, identity: GpuIdentity) -> GpuRow:
        """Show what is held of a device that no driver of ours reads: who holds it is all that is known."""
        return replace(self._whole(GpuReading(identity=identity)), reading=None)

    def _whole(self, gpu: GpuReading) -> GpuRow:
        key = DeviceKey(gpu.identity.uuid)
        sharing = self._sharing(key)
        metered = use.of_gpu(gpu)
        device = Device(
            key=key,
            model=gpu.identity.model,
            sharing=sharing,
            source="device",
            fresh=gpu.identity.uuid not in self._stale,
            holders_then=self._holders_then(key),
            memory=gpu.memory,
            compute=metered.share,
            compute_source=metered.source,
            lists_all=gpu.identity.vendor != AMD and lists_users(gpu.processes, gpu.memory),
            processes=gpu.processes,
            utilization=believed(gpu.process_utilization, metered.share),
        )
        rows = self._devices.rows(device)
        self.containers += rows
        return self._gpu_row(gpu, sharing.sharing, [key], rows, metered.share)

    def _mig(self, gpu: GpuReading, mig: MigReading) -> list[ContainerRow]:
        key = DeviceKey(gpu.identity.uuid, mig.uuid)
        sharing = self._sharing(key)
        memory = None if mig.memory_shared else mig.memory
        metered = use.of_mig(gpu, mig)
        device = Device(
            key=key,
            model=gpu.identity.model,
            sharing=sharing,
            source="instance",
            fresh=gpu.identity.uuid not in self._stale,
            holders_then=self._holders_then(key),
            memory=memory,
            compute=metered.share,
            compute_source=metered.source,
            # GPUs that can be cut do nothing but compute.
            lists_all=lists_users_of(gpu, mig),
            processes=mig.processes,
            utilization=believed(mig.process_utilization, use.own_of(mig)),
        )
        rows = self._devices.rows(device)
        self.containers += rows
        row = MigRow(
            device=key,
            reading=mig,
            slices=sharing.slices,
            holders=self._holder_count([key]),
            unattributed_memory=self._memory_rest(key, memory.used if memory is not None else None, rows),
            compute_used=metered.share,
            unattributed_utilization=_utilization_rest(metered.share, rows),
        )
        self.migs.append(row)
        part = use.part_of(gpu, mig)
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
        listed = are_all_told(gpu, self._holdings.unresolved_holders)
        used_slices = slices_used(gpu)
        free_slices = None if used_slices is None or gpu.mig_slices is None else gpu.mig_slices - used_slices
        memory = memory_slices(gpu)
        row = GpuRow(
            identity=gpu.identity,
            reading=gpu,
            sharing=mode,
            slices=_add_up([self._sharing(key).slices for key in keys]) if listed else (),
            holders=self._holder_count(keys) if listed else None,
            memory_entitled=self._memory_entitled(keys) if listed else None,
            unattributed_memory=self._memory_rest(whole, gpu.memory.used if gpu.memory else None, rows),
            unattributed_utilization=_utilization_rest(used, rows),
            mig_slices_used=used_slices,
            mig_slices_free=free_slices,
            mig_memory_used=memory.used,
            mig_memory_free=memory.free,
            mig_memory_adjacent=memory.adjacent,
        )
        self._check_compute(whole, rows, ALL_THE_TIME)
        return row

    def _holders_then(self, key: DeviceKey) -> Collection[ContainerRef]:
        """Return who held a device when it was read, as far as that was told in that poll."""
        return self._then.get(key.uuid, self._held).on(key)

    def _sharing(self, key: DeviceKey) -> DeviceSharing:
        return self._holdings.devices.get(key, UNKNOWN_SHARING)

    def _are_known(self, keys: Iterable[DeviceKey]) -> bool:
        """Whether everyone who holds these devices is known."""
        known = self._holdings.known and self._holdings.all_listed
        return known and self._holdings.unplaced.isdisjoint(keys)

    def _holder_count(self, keys: Collection[DeviceKey]) -> int | None:
        if not self._are_known(keys):
            return None
        return len({holder for key in keys for holder in self._held.on(key)})

    def _memory_entitled(self, keys: Collection[DeviceKey]) -> int | None:
        if not self._are_known(keys):
            return None
        held = [holding for key in keys for part in self._held.on(key).values() for holding in part]
        return total([holding.memory_entitled for holding in held])

    def _memory_rest(self, key: DeviceKey, used: int | None, rows: Iterable[ContainerRow]) -> int | None:
        """Rule 8: what the device uses beyond the containers that are known to use it."""
        if used is None:
            return None
        rest = used - sum(row.memory_used for row in rows if row.memory_used is not None)
        if rest < 0:
            self.inconsistent.append((*key, "memory"))
        return max(rest, 0)

    def _check_compute(self, key: DeviceKey, rows: Iterable[ContainerRow], most: float) -> None:
        """Rule 8: the driver averages a device over another stretch of time than its processes.

        That they differ says nothing, unless the parts have more than all the time there is.
        """
        if _computed(rows) > most + ROUNDING:
            self.inconsistent.append((*key, "compute"))


def _utilization_rest(used: float | None, rows: Iterable[ContainerRow]) -> float | None:
    """Rule 8: the share of the GPU that is used beyond the containers that are known to use it."""
    return None if used is None else max(0.0, round(used - _computed(rows), DIGITS))


def _computed(rows: Iterable[ContainerRow]) -> float:
    return sum(row.compute_used for row in rows if row.compute_used is not None)


def _add_up(counts: Iterable[tuple[SliceCount, ...]]) -> tuple[SliceCount, ...]:
    """Add the slices of several devices of one GPU, by resource."""
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
        )
        for resource, group in sorted(by_resource.items())
    )
