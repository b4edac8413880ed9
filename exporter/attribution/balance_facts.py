"""The facts behind the balances of a GPU, from the rows of one poll."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from exporter.attribution.balance import WHOLE_GPU, DeviceFacts, GpuFacts, UseFacts
from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.join import Attribution
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuRow,
    Holdings,
    MigRow,
    ProcessRow,
    SliceCount,
    total,
)
from exporter.model.mig_geometry import compute_part


class Holder(NamedTuple):
    """A container that holds a device. A new pod of the same name is another holder."""

    ref: ContainerRef
    device: DeviceKey
    pod_uid: str  # "" if unknown


# Shares of holders, as parts of the physical GPU; None if unknown.
Shares: TypeAlias = Mapping[Holder, float | None]


class GpuRows(NamedTuple):
    """The rows of one GPU in one poll."""

    gpu: GpuRow
    migs: Sequence[MigRow]
    containers: Sequence[ContainerRow]
    unplaced: Sequence[ProcessRow]  # processes of which the container is unknown, and that may be in a pod

    @property
    def down(self) -> bool:
        """Whether the GPU is lost, or its driver released: one of these conditions is then raised."""
        return self.gpu.reading is not None and not self.gpu.reading.up


class _Device(NamedTuple):
    """One device of a GPU: the GPU as a whole, or a MIG device."""

    key: DeviceKey
    weight: float | None  # the part of the GPU's compute that it is
    memory: int | None  # bytes
    holders_known: bool
    slices: Sequence[SliceCount]


def rows_of_gpus(attribution: Attribution) -> Iterator[GpuRows]:
    """Yield the rows of each GPU."""
    migs: dict[str, list[MigRow]] = defaultdict(list)
    containers: dict[str, list[ContainerRow]] = defaultdict(list)
    unplaced: dict[str, list[ProcessRow]] = defaultdict(list)
    for mig in attribution.migs:
        migs[mig.device.uuid].append(mig)
    for container in attribution.containers:
        containers[container.device.uuid].append(container)
    for process in attribution.processes:
        if process.holder is None and process.place != "host":
            unplaced[process.device.uuid].append(process)
    for gpu in attribution.gpus:
        uuid = gpu.identity.uuid
        yield GpuRows(gpu, migs.get(uuid, ()), containers.get(uuid, ()), unplaced.get(uuid, ()))


def shares_of(rows: GpuRows, held: HoldingsIndex) -> Shares:
    """Return the share of each holder in its device: of the compute if that is stated, else of the memory."""
    devices = {device.key: device for device in _devices(rows)}
    return {
        _holder(row): _share(row, devices[row.device])
        for row in rows.containers
        if row.device in devices and row.holder in held.on(row.device)
    }


def _holder(row: ContainerRow) -> Holder:
    return Holder(row.holder, row.device, row.pod_uid)


def _share(row: ContainerRow, device: _Device) -> float | None:
    if row.compute_entitled is not None:
        return max(row.compute_entitled, 0.0)
    if row.memory_entitled is None or not device.memory or device.weight is None:
        return None
    return device.weight * max(row.memory_entitled, 0) / device.memory


def facts_of(
    rows: GpuRows, holdings: Holdings, shares: Shares, *, confirmed: bool, fresh: Collection[str]
) -> GpuFacts:
    """Return the facts about one GPU.

    ``confirmed``: whether the kubelet has reported the allocations in this poll; if not, containers without a
    holding may hold a device by now. ``fresh``: UUIDs of the GPUs with a new reading.
    """
    reading, devices = rows.gpu.reading, list(_devices(rows))
    layout_known = reading is not None and all(device.weight is not None for device in devices)
    if reading is not None and reading.mig_enabled:
        layout_known = layout_known and reading.mig is not None and reading.mig_complete
    measured = reading is not None and reading.up and reading.identity.uuid in fresh
    return GpuFacts(
        devices=tuple(
            _device_facts(device, device.weight, holdings, shares, confirmed=confirmed)
            for device in devices
            if device.weight is not None
        ),
        read=reading is not None,
        down=rows.down,
        layout_known=layout_known,
        use=_use_facts(rows, shares, confirmed=confirmed) if measured else None,
    )


def _devices(rows: GpuRows) -> Iterator[_Device]:
    gpu, reading = rows.gpu, rows.gpu.reading
    if reading is None or not reading.mig_enabled:
        memory = reading.memory.total if reading is not None and reading.memory is not None else None
        yield _Device(DeviceKey(gpu.identity.uuid), WHOLE_GPU, memory, gpu.holders is not None, gpu.slices)
        return
    for row in rows.migs:
        mig = row.reading
        memory = mig.memory.total if mig.memory is not None and not mig.memory_shared else None
        yield _Device(row.device, compute_part(reading, mig), memory, row.holders is not None, row.slices)


def _device_facts(
    device: _Device, weight: float, holdings: Holdings, shares: Shares, *, confirmed: bool
) -> DeviceFacts:
    return DeviceFacts(
        weight=weight,
        shares=tuple(share for holder, share in shares.items() if holder.device == device.key),
        holders_known=confirmed and device.holders_known,
        offered=_offered(device.key, holdings),
        withdrawn=device.key in holdings.withdrawn,
        # What one resource withholds, another one may still offer.
        withheld=min(map(_withheld, device.slices), default=0.0),
    )


def _offered(key: DeviceKey, holdings: Holdings) -> bool | None:
    """Return whether new pods may get a device; None if it is unknown."""
    if holdings.offered is None or (key in holdings.may_be_offered and key not in holdings.offered):
        return None
    return key in holdings.offered


def _withheld(count: SliceCount) -> float:
    """Return the part of a resource's slices without a holder that new pods do not get."""
    if count.offered is None or count.allocated is None or count.offered <= count.allocated:
        return 0.0
    return min(count.withheld / (count.offered - count.allocated), 1.0)


def _use_facts(rows: GpuRows, shares: Shares, *, confirmed: bool) -> UseFacts:
    holders = others = unclear = 0.0
    holders_known = confirmed and rows.gpu.holders is not None
    for row in rows.containers:
        holds = _holder(row) in shares
        if row.compute_used is None:
            # Containers that hold nothing have a part of the rest, whatever it is.
            holders_known = holders_known and not holds and row.slices == 0
        elif holds:
            holders += row.compute_used
        elif row.slices == 0:
            others += row.compute_used
        else:
            unclear += row.compute_used
    rest = rows.gpu.unattributed_utilization
    doubted = total([process.compute for process in rows.unplaced])
    if doubted is None:
        holders_known = False
    elif rest is not None:
        moved = min(doubted, rest)
        unclear, rest = unclear + moved, rest - moved
    else:
        unclear += doubted
    return UseFacts(
        holders=holders, others=others, unclear=unclear, unattributed=rest, holders_known=holders_known
    )
