"""A snapshot as a table for a terminal: the holders of each GPU's slices, and their use."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from exporter import wording
from exporter.formats.labels import short_labels
from exporter.metrics import scaled
from exporter.model import ContainerRow, DeviceKey, GpuRow, MigRow, SliceCount, Snapshot
from exporter.model.conditions import TABLE
from exporter.model.pod_labels import PodLabels
from exporter.model.states import STATE_WORDS, Judgement, judge_row
from exporter.wording import TIMES, UNKNOWN, decimal, duration, gibibytes, plural, printable, total_text

# Conditions that the line of a GPU shows in place of its readings.
_ELSEWHERE = frozenset({"lost", "driver_released"})


def gpu_line(gpu: GpuRow, released: str = "") -> str:
    """Return the line of a GPU; ``released`` is why the driver is released, "" if it is not."""
    reading = gpu.reading
    wrong = [TABLE[name].title for name in gpu.raised if name not in _ELSEWHERE]
    parts = [
        f"GPU {gpu.identity.index}",
        printable(gpu.identity.model or gpu.identity.uuid),
        printable(wording.mode_label(gpu.sharing)),
    ]
    if gpu.unread:
        number = str(gpu.identity.index) if gpu.identity.index >= 0 else gpu.identity.uuid
        parts[0] = f"{printable(gpu.identity.vendor)} {printable(number)}"
        held = (_slices_of(gpu), plural(gpu.holders, "holder"))
        return " · ".join([*parts, "not read by this exporter", *held])
    if reading is None or not reading.up:
        not_read = released and gpu.identity.vendor == "nvidia"
        return " · ".join([*parts, "not read" if not_read else "not answering", *wrong])
    memory = reading.memory
    used, whole = (memory.used, memory.total) if memory else (None, None)
    return " · ".join(
        (
            *parts,
            f"memory {_used_of(gibibytes(used), gibibytes(whole), 'GiB')}",
            f"utilization {wording.measure(reading.utilization_percent, '%')}",
            wording.measure(scaled(reading.power_milliwatts, 1000), "W"),
            wording.measure(reading.temperature_celsius, "°C"),
            _slices_of(gpu),
            plural(gpu.holders, "holder"),
            *wrong,
        )
    )


def mig_line(key: DeviceKey, mig: MigRow | None) -> str:
    """Return the line of a MIG device (GPU instance/compute instance), or of an AMD partition."""
    of_mig = key.mig_uuid.startswith("MIG-")
    part = "MIG" if of_mig else "partition"
    if mig is None:
        return f"  {part} {printable(key.mig_uuid)} · not listed by the driver"
    memory = mig.reading.memory
    used, whole = (memory.used, memory.total) if memory else (None, None)
    shared = " shared with its neighbours" if mig.reading.memory_shared else ""
    number = f"{mig.reading.gi}/{mig.reading.ci}" if of_mig else mig.reading.gi
    return " · ".join(
        (
            f"  {part} {printable(mig.reading.profile or UNKNOWN)} {number}",
            f"memory {_used_of(gibibytes(used), gibibytes(whole), 'GiB')}{shared}",
            f"unattributed {gibibytes(mig.unattributed_memory)} GiB",
            _slices(mig.slices, cut=False),
            plural(mig.holders, "holder"),
        )
    )


def unattributed_line(gpu: GpuRow) -> str:
    """Return the line of a GPU's use by no known container."""
    ratio = gpu.unattributed_utilization
    compute = wording.measure(None if ratio is None else ratio * 100, "%")
    return f"    unattributed: {gibibytes(gpu.unattributed_memory)} GiB · {compute} utilization"


def _slices_of(gpu: GpuRow) -> str:
    return _slices(gpu.slices, cut=gpu.sharing in wording.CUT)


def _slices(counts: tuple[SliceCount, ...], *, cut: bool) -> str:
    """Return the held slices of a device as text; resources are summed only if they are parts of it."""
    if not counts:
        return f"slices {UNKNOWN}"
    if len(counts) > 1 and not cut:
        return f"{printable(wording.held_of_each(counts))} held"
    held = total_text((count.allocated for count in counts), str)
    held_of = f"slices {held} held of {total_text((count.offered for count in counts), str)}"
    return ", ".join((held_of, *wording.unavailable(counts)))


def _used_of(used: str, whole: str, unit: str) -> str:
    """Return ``used / whole`` with the unit."""
    return f"{used} / {whole} {unit}"


def slices_held(row: ContainerRow) -> str:
    """Return the slices and the resource that a container holds, as text."""
    if row.slices is None:
        return UNKNOWN
    return f"{row.slices} {TIMES} {printable(row.resource or 'slice')}" if row.slices else "none"


def holder_name(row: ContainerRow) -> str:
    """Return namespace, pod and container as text; a container that is not known is a question mark."""
    namespace, pod, container = row.holder
    return printable(f"{namespace}/{pod}/{container or '?'}")


def total_line(snapshot: Snapshot) -> str:
    """Return the totals of the GPUs that are read. An unknown value makes a sum a lower bound."""
    gpus = [gpu for gpu in snapshot.gpus if not gpu.unread]
    unread = {gpu.identity.uuid for gpu in snapshot.gpus if gpu.unread}
    rows = [row for row in snapshot.containers if row.device.uuid not in unread]
    memories = [gpu.reading.memory if gpu.reading else None for gpu in gpus]
    taken = [memory.used if memory else None for memory in memories]
    whole = [memory.total if memory else None for memory in memories]
    unseen = [None for gpu in gpus if gpu.holders is None]
    entitled = chain((row.compute_entitled for row in rows if row.slices != 0), unseen)
    used = chain((row.compute_used for row in rows), (gpu.unattributed_utilization for gpu in gpus))
    return " · ".join(
        (
            f"Total: {_held(snapshot)}",
            f"memory {total_text((gpu.memory_entitled for gpu in gpus), gibibytes)} GiB held",
            f"{total_text(taken, gibibytes)} GiB used of {total_text(whole, gibibytes)} GiB",
            f"compute {total_text(entitled, wording.hundredths)} GPUs held",
            f"{total_text(used, wording.hundredths)} GPUs used of {decimal(snapshot.node.gpu_count, 0)}",
        )
    )


def _held(snapshot: Snapshot) -> str:
    """Return the held slices of the node as text, or its held GPUs if the units differ."""
    if all(gpu.holders is None for gpu in snapshot.gpus):
        return f"slices {UNKNOWN}"
    summary = wording.held_of_node(snapshot.gpus)
    held = total_text([summary.held, None] if summary.least else [summary.held], str)
    offered = UNKNOWN if summary.offered is None else str(summary.offered)
    words = ("" if summary.unit else "slices", held, "held of", offered, summary.unit)
    return printable(", ".join((" ".join(filter(None, words)), *summary.besides)))


def state_words(judged: Judgement) -> str:
    """Return the states of a holder, with its duration if the holder does not compute."""
    since = "" if judged.quiet_for is None else f" ({duration(judged.quiet_for)})"
    resting = ("quiet", "idle", "idle-memory")
    return ", ".join(STATE_WORDS[state] + (since if state in resting else "") for state in judged.states)


_Line: TypeAlias = str | tuple[str, ...]
_HEADINGS = (
    "    HOLDER",
    "SLICES",
    "ISOLATION",
    "MEMORY USED / ENTITLED",
    "COMPUTE USED / ENTITLED",
    "STATE",
)


def snapshot_text(
    snapshot: Snapshot, *, now: float | None = None, idle_after: float = 600.0, width: int | None = None
) -> str:
    """Return the snapshot as text, as read at Unix time ``now`` (default: the clock).

    Rows of holders that are wider than ``width`` characters are wrapped.
    """
    return _SnapshotLines(snapshot, time.time() if now is None else now, idle_after).text(width)


class _SnapshotLines:
    """The lines of one snapshot: headings are text, holders are rows of cells to align."""

    def __init__(self, snapshot: Snapshot, now: float, idle_after: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self._idle_after = idle_after
        self._labels = PodLabels(snapshot.pods)
        self._labelled = any(map(self._labels.of, snapshot.containers))
        self._migs: dict[DeviceKey, MigRow] = {mig.device: mig for mig in snapshot.migs}
        self._rows: dict[DeviceKey, list[ContainerRow]] = defaultdict(list)
        for row in snapshot.containers:
            self._rows[row.device].append(row)

    def text(self, width: int | None) -> str:
        read = not all(gpu.unread for gpu in self._snapshot.gpus)
        total = (total_line(self._snapshot),) if read else ()
        lines = list(chain(self._head(), self._devices(), total, self._failures()))
        rows = wording.aligned([line for line in lines if not isinstance(line, str)], width)
        return "".join(f"{line if isinstance(line, str) else next(rows)}\n" for line in lines)

    def _head(self) -> Iterator[_Line]:
        node, driver = self._snapshot.node, self._snapshot.node.driver
        named = self._models(unread=False)
        others = self._models(unread=True)
        vendors = {gpu.identity.vendor for gpu in self._snapshot.gpus}
        version, cuda = (driver.driver_version, driver.cuda_version) if driver is not None else (None, None)
        yield " · ".join(
            (
                printable(node.name),
                plural(node.gpu_count, "GPU") + (f" ({named})" if named else ""),
                *((others,) if others else ()),
                f"driver {printable(version or UNKNOWN)}",
                *(() if vendors == {"amd"} else (f"CUDA {printable(cuda or UNKNOWN)}",)),
                f"read {duration(self._now - self._snapshot.timestamp)} ago",
                f"process attribution {'available' if node.process_view else 'missing'}",
            )
        )
        if self._snapshot.demo:
            yield "DEMO: simulated node; no value here was measured."
        if not node.process_view:
            reason = node.process_view_reason or "host processes are not visible"
            yield f"No per-process usage: {printable(reason)}"
        yield ""

    def _models(self, *, unread: bool) -> str:
        """Return the counts of GPU models, either those that are read or those of other vendors."""
        gpus = [gpu for gpu in self._snapshot.gpus if gpu.unread == unread]
        models = Counter(gpu.identity.model or "unknown model" for gpu in gpus)
        return ", ".join(f"{count} {TIMES} {printable(model)}" for model, count in models.items())

    def _devices(self) -> Iterator[_Line]:
        if self._rows:
            yield (*_HEADINGS, "LABELS") if self._labelled else _HEADINGS
        for gpu in self._snapshot.gpus:
            yield gpu_line(gpu, self._snapshot.node.released)
            yield from self._holders(DeviceKey(gpu.identity.uuid))
            for key in self._keys_of(gpu.identity.uuid):
                yield mig_line(key, self._migs.get(key))
                yield from self._holders(key)
            if not gpu.unread:
                yield unattributed_line(gpu)
            yield ""
        yield from self._elsewhere()

    def _keys_of(self, uuid: str) -> list[DeviceKey]:
        """Return the MIG devices of a GPU, with those that containers hold but the driver does not list."""
        keys = dict.fromkeys(chain(self._migs, self._rows))
        return [key for key in keys if key.uuid == uuid and key.mig_uuid]

    def _elsewhere(self) -> Iterator[_Line]:
        listed = {gpu.identity.uuid for gpu in self._snapshot.gpus}
        for key in self._rows:
            if key.uuid not in listed:
                yield f"{printable(key.mig_uuid or key.uuid)} · not listed by the driver"
                yield from self._holders(key)
                yield ""

    def _holders(self, key: DeviceKey) -> Iterator[_Line]:
        for row in self._rows.get(key, ()):
            yield (
                f"    {holder_name(row)}",
                slices_held(row),
                printable(row.isolation),
                _used_of(gibibytes(row.memory_used), gibibytes(row.memory_entitled), "GiB"),
                _used_of(decimal(row.compute_used, 2), decimal(row.compute_entitled, 2), "GPU"),
                # The state at the time of the poll; later activity is unknown.
                state_words(judge_row(self._snapshot, row, self._idle_after)),
                *((printable(short_labels(self._labels.of(row))),) if self._labelled else ()),
            )

    def _failures(self) -> Iterator[_Line]:
        for health in self._snapshot.collectors:
            if health.name == "nvml" and self._snapshot.node.released:
                yield f"! {printable(health.message)}"
            elif not health.success:
                yield f"! {printable(health.name)} fails: {printable(health.message) or 'no reason reported'}"
