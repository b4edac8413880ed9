"""The records behind the series under DCGM's names, and the builders of their rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.metrics.family import Rows, whole
from exporter.model import Bar1, GpuReading, GpuRow, Memory
from exporter.model.readings import Activity

WINDOW_SECONDS = 300
"""The window of dcgm-exporter's counts, by its default."""

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Xids:
    """XID errors of one entity since the exporter started."""

    # The last code: 0 before the first error, None without a subscription to the GPU's events.
    last: int | None = None
    # Errors by code.
    totals: Mapping[int, int] = field(default_factory=dict)
    # Errors of the last window by code; None if unknown.
    recent: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmRow:
    """A DCGM entity: a GPU, or a GPU instance of MIG."""

    # None for a GPU instance.
    gpu: GpuRow | None = None
    # None for a GPU instance, and for a GPU that does not answer.
    reading: GpuReading | None = None
    # Memory, BAR1 and activity of this entity; empty for a GPU if its instances report them.
    memory: Memory | None = None
    bar1: Bar1 | None = None
    active: Mapping[Activity, float] = field(default_factory=dict)
    xids: Xids = field(default_factory=Xids)


DCGM_ROWS: Rows[DcgmRow, DcgmRow] = Rows("DCGM_FI_", "dcgm", whole)
READING = DCGM_ROWS.of(lambda row: row.reading)
"""Builder for the readings of a GPU that answers."""
EXPERIMENTAL: Rows[DcgmRow, DcgmRow] = Rows("DCGM_EXP_", "dcgm", whole)
"""Builder for the series that dcgm-exporter computes itself."""


def mebibytes(size: int | None) -> int | None:
    """Return bytes as whole MiB, rounded down as DCGM does."""
    return None if size is None else size // _MEBIBYTE
