"""A snapshot as a table for a terminal: who holds which slice of which GPU, and what is used of it."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from exporter.formats_lines import (
    gpu_line,
    mig_line,
    slices_held,
    state_words,
    total_line,
    unattributed_line,
)
from exporter.formats_words import TIMES, UNKNOWN, decimal, duration, gibibytes, plural, printable, used_of
from exporter.model import ContainerRow, DeviceKey, MigRow, Snapshot
from exporter.states import judge

_Line: TypeAlias = str | tuple[str, ...]
_HEADINGS = (
    "    HOLDER",
    "SLICES",
    "ISOLATION",
    "MEMORY USED / ENTITLED",
    "COMPUTE USED / ENTITLED",
    "STATE",
)


def snapshot_text(snapshot: Snapshot, *, now: float | None = None, idle_after: float = 600.0) -> str:
    """Draw the snapshot as it is read at Unix time ``now`` (default: the clock)."""
    return _Drawing(snapshot, time.time() if now is None else now, idle_after).text()


class _Drawing:
    """One snapshot on its way to text: headings are lines, holders are cells that are aligned at the end."""

    def __init__(self, snapshot: Snapshot, now: float, idle_after: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self._idle_after = idle_after
        self._migs: dict[DeviceKey, MigRow] = {mig.device: mig for mig in snapshot.migs}
        self._rows: dict[DeviceKey, list[ContainerRow]] = defaultdict(list)
        for row in snapshot.containers:
            self._rows[row.device].append(row)

    def text(self) -> str:
        lines = list(chain(self._head(), self._devices(), self._total(), self._failures()))
        return "".join(f"{line}\n" for line in _aligned(lines))

    def _head(self) -> Iterator[_Line]:
        node, driver = self._snapshot.node, self._snapshot.node.driver
        named = self._models(foreign=False)
        others = self._models(foreign=True)
        vendors = {gpu.identity.vendor for gpu in self._snapshot.gpus}
        cuda = f"CUDA {printable((driver and driver.cuda_version) or UNKNOWN)}"
        yield " · ".join(
            (
                printable(node.name),
                plural(node.gpu_count, "GPU") + (f" ({named})" if named else ""),
                *((others,) if others else ()),
                f"driver {printable((driver and driver.driver_version) or UNKNOWN)}",
                *(() if vendors == {"amd"} else (cuda,)),
                f"read {duration(self._now - self._snapshot.timestamp)} ago",
                f"process view {'good' if node.process_view else 'missing'}",
            )
        )
        if self._snapshot.demo:
            yield "DEMO: a node in software; nothing here was measured."
        if not node.process_view:
            reason = node.process_view_reason or "the processes of the host cannot be seen"
            yield f"No numbers of single processes: {printable(reason)}"
        yield ""

    def _models(self, *, foreign: bool) -> str:
        """Count models: those that are read, which are the node's GPUs, or those of other makers."""
        gpus = [gpu for gpu in self._snapshot.gpus if gpu.foreign == foreign]
        models = Counter(gpu.identity.model or "unknown model" for gpu in gpus)
        return ", ".join(f"{count} {TIMES} {printable(model)}" for model, count in models.items())

    def _devices(self) -> Iterator[_Line]:
        if self._rows:
            yield _HEADINGS
        for gpu in self._snapshot.gpus:
            yield gpu_line(gpu, self._snapshot.node.released)
            yield from self._holders(DeviceKey(gpu.identity.uuid))
            for key in self._keys_of(gpu.identity.uuid):
                yield mig_line(key, self._migs.get(key))
                yield from self._holders(key)
            if not gpu.foreign:
                yield unattributed_line(gpu)
            yield ""
        yield from self._elsewhere()

    def _keys_of(self, uuid: str) -> list[DeviceKey]:
        """List the MIG devices of a GPU, with those that containers hold though they are not seen now."""
        keys = dict.fromkeys(chain(self._migs, self._rows))
        return [key for key in keys if key.uuid == uuid and key.mig_uuid]

    def _elsewhere(self) -> Iterator[_Line]:
        seen = {gpu.identity.uuid for gpu in self._snapshot.gpus}
        for key in self._rows:
            if key.uuid not in seen:
                yield f"{printable(key.mig_uuid or key.uuid)} · not seen by the driver"
                yield from self._holders(key)
                yield ""

    def _holders(self, key: DeviceKey) -> Iterator[_Line]:
        for row in self._rows.get(key, ()):
            holder = row.holder
            name = f"{holder.namespace}/{holder.pod}/{holder.container or '?'}"
            yield (
                f"    {printable(name)}",
                slices_held(row),
                printable(row.isolation),
                used_of(gibibytes(row.memory_used), gibibytes(row.memory_entitled), "GiB"),
                used_of(decimal(row.compute_used, 2), decimal(row.compute_entitled, 2), "GPU"),
                self._state(row),
            )

    def _state(self, row: ContainerRow) -> str:
        # As of the poll: what a holder has done since then is not known.
        return state_words(judge(row, self._snapshot.timestamp, self._idle_after))

    def _total(self) -> Iterator[_Line]:
        if not all(gpu.foreign for gpu in self._snapshot.gpus):
            yield total_line(self._snapshot)

    def _failures(self) -> Iterator[_Line]:
        for health in self._snapshot.collectors:
            if health.name == "nvml" and self._snapshot.node.released:
                yield f"! {printable(health.message)}"
            elif not health.success:
                yield f"! {printable(health.name)} fails: {printable(health.message) or 'no reason is known'}"


def _aligned(lines: list[_Line]) -> Iterator[str]:
    """Give each column of cells the width of its widest; plain lines stay as they are."""
    rows = [line for line in lines if not isinstance(line, str)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
