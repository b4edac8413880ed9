"""The rows of a GPU's health: errors of its memory, repairs, what it needs, and its modes."""

from collections.abc import Iterator

from exporter.metrics.family import (
    AnyFamily,
    Family,
    Labelled,
    LabelledFamily,
    answering,
    flag,
    reading,
    word,
)
from exporter.model import Ecc, EventCount, GpuRow, Repairs
from exporter.model.readings import RECOVERY_ACTIONS
from exporter.model.xids import ALERTING


def _ecc(row: GpuRow) -> Ecc:
    found = answering(row)
    return found.ecc if found is not None and found.ecc is not None else Ecc()


def _repairs(row: GpuRow) -> Repairs:
    found = answering(row)
    return found.repairs if found is not None and found.repairs is not None else Repairs()


def _recovery(row: GpuRow) -> Iterator[Labelled]:
    """Give one sample for each action there is: 1 for the one that is needed."""
    found = answering(row)
    if found is not None and found.recovery_action is not None:
        for action in RECOVERY_ACTIONS:
            yield (action,), int(action == found.recovery_action)


GPU_HEALTH: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_gpu_ecc_errors_total",
        "counter",
        "gpu",
        "ECC errors, corrected or uncorrected, since the driver was loaded (volatile) or ever (aggregate).",
        ("severity", "scope"),
        lambda row: _ecc(row).errors.items(),
        group="ecc",
    ),
    LabelledFamily(
        "gpuslice_gpu_ecc_location_errors_total",
        "counter",
        "gpu",
        "ECC errors by the memory in which they were found.",
        ("severity", "scope", "location"),
        lambda row: _ecc(row).by_location.items(),
        group="ecc",
    ),
    Family(
        "gpuslice_gpu_ecc_enabled",
        "gauge",
        "gpu",
        "1 if ECC is on.",
        lambda row: flag(_ecc(row).enabled),
        group="ecc",
    ),
    Family(
        "gpuslice_gpu_ecc_enabled_pending",
        "gauge",
        "gpu",
        "1 if ECC will be on after the next reboot.",
        lambda row: flag(_ecc(row).pending),
        group="ecc",
    ),
    LabelledFamily(
        "gpuslice_gpu_remapped_rows",
        "gauge",
        "gpu",
        "Rows of memory that were replaced by spare ones, by the severity of the error.",
        ("severity",),
        lambda row: (((severity,), count) for severity, count in _repairs(row).remapped_rows.items()),
        group="repairs",
    ),
    Family(
        "gpuslice_gpu_row_remap_pending",
        "gauge",
        "gpu",
        "1 if a row will be replaced when the GPU is reset.",
        lambda row: flag(_repairs(row).row_remap_pending),
        group="repairs",
    ),
    Family(
        "gpuslice_gpu_row_remap_failure",
        "gauge",
        "gpu",
        "1 if a row could not be replaced: the board is to be exchanged.",
        lambda row: flag(_repairs(row).row_remap_failure),
        group="repairs",
    ),
    LabelledFamily(
        "gpuslice_gpu_row_remap_banks",
        "gauge",
        "gpu",
        "Banks of memory by how many of their spare rows are left: max, high, partial, low or none.",
        ("left",),
        lambda row: (((left,), count) for left, count in _repairs(row).row_banks.items()),
        group="repairs",
    ),
    LabelledFamily(
        "gpuslice_gpu_retired_pages",
        "gauge",
        "gpu",
        "Pages of memory that were taken out of use, by cause: single_bit or double_bit errors.",
        ("cause",),
        lambda row: (((cause,), count) for cause, count in _repairs(row).retired_pages.items()),
        group="repairs",
    ),
    Family(
        "gpuslice_gpu_retired_pages_pending",
        "gauge",
        "gpu",
        "1 if a page will be taken out of use at the next reboot.",
        lambda row: flag(_repairs(row).retired_pages_pending),
        group="repairs",
    ),
    LabelledFamily(
        "gpuslice_gpu_recovery_action",
        "gauge",
        "gpu",
        "1 for what the driver says that the GPU needs now (none, reset, reboot, ...), 0 for the rest.",
        ("action",),
        _recovery,
        group="repairs",
    ),
    Family(
        "gpuslice_gpu_performance_state",
        "gauge",
        "gpu",
        "Performance state: 0 is the fastest, 15 the slowest.",
        reading(lambda gpu: gpu.performance_state),
        group="modes",
    ),
    LabelledFamily(
        "gpuslice_gpu_compute_mode_info",
        "info",
        "gpu",
        "Compute mode of the GPU: default, exclusive_process, exclusive_thread or prohibited.",
        ("compute_mode",),
        word(lambda gpu: gpu.compute_mode),
        group="modes",
    ),
    Family(
        "gpuslice_gpu_mig_mode_pending",
        "gauge",
        "gpu",
        "1 if the GPU will be in MIG mode when it has been reset.",
        reading(lambda gpu: flag(gpu.mig_pending)),
        group="modes",
    ),
    Family(
        "gpuslice_gpu_persistence_mode",
        "gauge",
        "gpu",
        "1 if the driver keeps the GPU initialised while nobody uses it.",
        reading(lambda gpu: flag(gpu.persistence)),
        group="modes",
    ),
    Family(
        "gpuslice_gpu_accounting_mode",
        "gauge",
        "gpu",
        "1 if the driver keeps account of each process.",
        reading(lambda gpu: flag(gpu.accounting)),
        group="modes",
    ),
    Family(
        "gpuslice_gpu_display_active",
        "gauge",
        "gpu",
        "1 if a display is driven by the GPU.",
        reading(lambda gpu: flag(gpu.display_active)),
        group="modes",
    ),
)
"""Errors, repairs, needs and modes."""


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
