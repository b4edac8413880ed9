"""Snapshots, and a history whose clock the test sets."""

from collections.abc import Mapping

from exporter.history import Ask, Past, Wanted
from exporter.history.ring import BUDGET, History
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    GpuRow,
    Memory,
    NodeRow,
    Snapshot,
)

GIB = 1 << 30
START = 1_700_000_100.0
UUID = "GPU-0"
EVERYTHING = Wanted()


def holder(name, **fields) -> ContainerRow:
    """Return a container of the pod ``name``."""
    ref = ContainerRef("ml", name, "main")
    return ContainerRow(holder=ref, device=fields.pop("device", DeviceKey(UUID)), slices=1, **fields)


def gpu(uuid=UUID, *, used=None, up=True, **fields) -> GpuRow:
    """Return a GPU of 40 GiB of which ``used`` bytes are used."""
    identity = GpuIdentity(index=int(uuid[-1]), uuid=uuid, model="A100", pci_bus_id="", vendor="nvidia")
    rest = {
        name: fields.pop(name)
        for name in ("unattributed_memory", "unattributed_utilization")
        if name in fields
    }
    memory = None if used is None else Memory(total=40 * GIB, used=used, free=40 * GIB - used)
    return GpuRow(
        identity=identity, reading=GpuReading(identity=identity, up=up, memory=memory, **fields), **rest
    )


def snapshot(at, *containers, gpus=(), sequence=1) -> Snapshot:
    """Return a snapshot of Unix time ``at``."""
    return Snapshot(
        timestamp=at, sequence=sequence, node=NodeRow(name="node"), gpus=tuple(gpus), containers=containers
    )


class Clocked:
    """A history with ``now`` as its clock, which follows what is recorded."""

    def __init__(self, kept=3600.0, step=5.0, budget=BUDGET) -> None:
        self.now = START
        self.history = History(kept, step, budget=budget, wall=lambda: self.now)

    def poll(self, at, *containers, **rest) -> None:
        """Record a snapshot at Unix time ``at``."""
        self.now = at
        self.history.record(snapshot(at, *containers, **rest))

    def memory(self, at, uses: Mapping[str, float | None]) -> None:
        """Record how much memory pods use."""
        self.poll(at, *(holder(name, memory_used=used) for name, used in uses.items()))

    def past(self, span, *, end=None, points=240, wanted=EVERYTHING) -> Past:
        """Return the past that ends now, or at ``end``."""
        return self.history.read_sync(Ask(span=span, end=end, points=points, wanted=wanted))

    def values(self, name, span, *, field="memory_used_bytes", **rest) -> dict[float, float]:
        """Return the known values of a field of one pod by the Unix time at which their step begins."""
        past = self.past(span, **rest)
        tracks = [track for track in past.tracks if track.labels.get("pod") == name]
        values = tracks[0].values[field] if tracks else ()
        return {
            past.start + place * past.step: value for place, value in enumerate(values) if value is not None
        }
