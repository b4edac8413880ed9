"""The windows of a node's holders since they were first seen, from what is kept; a pod is a workload."""

from collections.abc import Iterable, Mapping, Sequence

from exporter.advice import advise
from exporter.advice.kept import Book, Keeper, KeptDevice, KeptHolder, measured_share
from exporter.advice.model import Advice, DeviceFacts, Use, Window
from exporter.model import ADVICE_LABEL, ContainerRef, ContainerRow, DeviceKey, GpuRow, Snapshot, Totals
from exporter.model.mig_geometry import free_beside

TIME_SLICING = "time-slicing"
GroupKey = tuple[ContainerRef | None, str, str, str]
_NOTHING = Totals(first_seen=0.0)


def advice_of_node(
    snapshot: Snapshot, keeper: Keeper, only: ContainerRef | None = None
) -> tuple[Advice, ...]:
    """Return the advice on each container of the node, or on a GPU whose holders take turns.

    With ``only``, that on this container, which has several if it holds devices of several models.
    """
    book, yesterday = keeper.books()
    groups = _groups(snapshot.containers)
    facts = _Facts(snapshot)
    return tuple(
        advise(window, facts.window(rows, yesterday) if yesterday is not None else None)
        for rows in groups.values()
        if only is None or any(row.holder == only for row in rows)
        if (window := facts.window(rows, book)) is not None
    )


def _groups(rows: Iterable[ContainerRow]) -> Mapping[GroupKey, list[ContainerRow]]:
    """Return the rows of each container on devices of one kind, and those of each GPU with replicas."""
    groups: dict[GroupKey, list[ContainerRow]] = {}
    for row in rows:
        if row.slices:
            together = row.sharing == TIME_SLICING
            holder, device = (None, row.device.uuid) if together else (row.holder, "")
            groups.setdefault((holder, device, row.model, row.sharing), []).append(row)
    return groups


class _Facts:
    """The devices of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._gpus = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
        self._migs = {mig.device: mig for mig in snapshot.migs}
        self._opted_out = {
            (pod.namespace, pod.name) for pod in snapshot.pods if (ADVICE_LABEL, "off") in pod.labels
        }

    def window(self, rows: Sequence[ContainerRow], book: Book) -> Window | None:
        """Return the window of a group of rows; None if the book has none of them."""
        # A row that came after the book belongs to a later window.
        known = [
            (row, kept)
            for row in rows
            if (kept := book.holders.get((row.holder, row.device)))
            and row.totals
            and kept.totals.first_seen == row.totals.first_seen
        ]
        if not known:
            return None
        first = known[0][0]
        together = first.sharing == TIME_SLICING
        return Window(
            namespace="" if together else first.holder.namespace,
            workload="" if together else first.holder.pod,
            container="" if together else first.holder.container,
            start=min(kept.totals.first_seen for _, kept in known),
            end=book.at,
            device=self._device([row for row, _ in known], book),
            uses=tuple(_use(row, kept) for row, kept in known),
            engine="" if together else next((kept.engine for _, kept in known if kept.engine), ""),
            opted_out=any(row.holder[:2] in self._opted_out for row, _ in known),
        )

    def _device(self, rows: Sequence[ContainerRow], book: Book) -> DeviceFacts:
        row = rows[0]
        kept = [book.devices.get(each.device, KeptDevice()) for each in rows]
        of_gpus = [book.devices.get(DeviceKey(each.device.uuid), KeptDevice()) for each in rows]
        gpu, mig = self._gpus.get(row.device.uuid), self._migs.get(row.device)
        profiles = self._snapshot.node.mig_profiles.get(row.model)
        held = gpu if mig is None else mig
        memory = held.reading.memory if held is not None and held.reading is not None else None
        return DeviceFacts(
            model=row.model,
            memory=memory.total if memory is not None else None,
            sharing=row.sharing,
            isolation=row.isolation,
            profile=(mig.reading.profile or "") if mig is not None else "",
            profiles=profiles.profiles if profiles is not None else _without_mig(gpu),
            nvlink_traffic=_either([each.nvlink for each in of_gpus]),
            media_used=_either([each.media for each in of_gpus]),
            unattributed=_largest([each.mean_unattributed for each in kept]),
            replicas=_replicas(gpu, row),
            sum_p95=kept[0].sum_p95,
            sum_peak=kept[0].peak or None,
            adjacent=free_beside(gpu.reading, mig.reading) if gpu and gpu.reading and mig else None,
        )


def _without_mig(gpu: GpuRow | None) -> tuple[()] | None:
    """Return an empty list of profiles for a GPU without MIG mode; None if its profiles are unknown."""
    reading = gpu.reading if gpu is not None else None
    if reading is None or reading.mig_enabled is not False or reading.mig_pending is not None:
        return None
    return ()


def _either(answers: Iterable[bool | None]) -> bool | None:
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _largest(shares: Sequence[float | None]) -> float | None:
    """Return the largest share; None if one is unknown."""
    known = [share for share in shares if share is not None]
    return max(known) if len(known) == len(shares) else None


def _replicas(gpu: GpuRow | None, row: ContainerRow) -> int | None:
    counts = gpu.slices if gpu is not None else ()
    return next((count.offered for count in counts if count.resource == row.resource), None)


def _use(row: ContainerRow, kept: KeptHolder) -> Use:
    totals = kept.totals
    held = totals.held_seconds or 0.0
    used, share = totals.used_gpu_seconds, measured_share(_NOTHING, totals) or 0.0
    return Use(
        holder=row.holder,
        device=row.device,
        held=held,
        memory_coverage=min((totals.memory_measured_seconds or 0.0) / held, 1.0) if held else 0.0,
        compute_coverage=share,
        computing=kept.computing,
        memory_peak=totals.memory_peak,
        memory_flat=kept.memory_flat,
        compute_p95=kept.compute.p95(),
        compute_mean=used / (held * share) if used is not None and held and share else None,
        sm_p95=kept.sm.p95(),
        memory_entitled=row.memory_entitled,
        compute_entitled=row.compute_entitled,
    )
