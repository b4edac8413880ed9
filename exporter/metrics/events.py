"""The rows of what GPUs report by themselves: XID errors, and the other events of the driver."""

from collections.abc import Iterator

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily
from exporter.model import EventCount, GpuRow
from exporter.xids import ALERTING

_XID_LABELS = ("mig_uuid", "xid")


def _xids(row: GpuRow) -> Iterator[EventCount]:
    return (event for event in row.events if event.xid is not None)


def _xid_errors(row: GpuRow) -> Iterator[Labelled]:
    """Count by code; a watched GPU starts with zeros, so that the first error of such a code is a rise."""
    for event in _xids(row):
        yield (event.mig_uuid, str(event.xid)), event.count
    if row.watched:
        occurred = {event.xid for event in _xids(row) if not event.mig_uuid}
        for code in ALERTING:
            if code not in occurred:
                yield ("", str(code)), 0


def _xid_times(row: GpuRow) -> Iterator[Labelled]:
    return (((event.mig_uuid, str(event.xid)), event.last) for event in _xids(row))


def _events(row: GpuRow) -> Iterator[Labelled]:
    return (((event.kind,), event.count) for event in row.events if event.xid is None)


GPU_EVENTS: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_gpu_xid_errors_total",
        "counter",
        "gpu",
        "XID errors since the exporter's start by code, with mig_uuid where one MIG device caused it; codes "
        "that need somebody to act start at 0. What a code means stands in docs/xids.md.",
        _XID_LABELS,
        _xid_errors,
        group="events",
    ),
    LabelledFamily(
        "gpuslice_gpu_xid_last_timestamp_seconds",
        "gauge",
        "gpu",
        "Unix time of the last XID error of that code.",
        _XID_LABELS,
        _xid_times,
        group="events",
    ),
    LabelledFamily(
        "gpuslice_gpu_events_total",
        "counter",
        "gpu",
        "Other events since the exporter's start: single_bit_ecc, double_bit_ecc, ecc_storm, "
        "dram_retirement, dram_retirement_failure, poison, fatal_poison, mig_config, gpu_unavailable, "
        "recovery_action.",
        ("event",),
        _events,
        group="events",
    ),
    Family(
        "gpuslice_gpu_events_watched",
        "gauge",
        "gpu",
        "1 if events of the GPU are waited for: then a code or event that is not listed did not occur.",
        lambda row: int(row.watched),
        group="events",
    ),
)
"""Families of what a GPU reports by itself (of a GpuRow), for a lost GPU too."""
