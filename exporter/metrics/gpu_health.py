"""Rows of a GPU's health: ECC errors, memory repair, the recovery action, modes and events."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import GPU_ROWS, READING, AnyFamily, Labelled, core_values, keyed, word
from exporter.model import EventCount, GpuReading, GpuRow
from exporter.model.readings import RECOVERY_ACTIONS
from exporter.model.xids import explain

_ECC = READING.of(lambda gpu: gpu.ecc, "ecc")
_REPAIRS = READING.of(lambda gpu: gpu.repairs, "repairs")
_MODES = READING.standard.grouped("modes")
_EVENTS = GPU_ROWS.grouped("events")

# What is wrong with a GPU (GpuRow), also with a lost one.
GPU_CONDITIONS: tuple[AnyFamily, ...] = (
    GPU_ROWS.grouped("core").states(
        "condition{condition}",
        "1 if the GPU has this condition, else 0: lost, needs_reset, needs_reboot, replace_board, "
        "uncorrected_memory_errors, throttled_by_heat_or_power, link_degraded or driver_released; absent "
        "while unknown. docs/xids.md lists what raises and clears each.",
        lambda row: (((name,), int(holds)) for name, holds in row.conditions.items()),
    ),
)


def _recovery(gpu: GpuReading) -> Iterator[Labelled]:
    """Yield a sample for every action, 1 for the one that is needed."""
    if gpu.recovery_action is not None:
        for action in RECOVERY_ACTIONS:
            yield (action,), int(action == gpu.recovery_action)


# ECC errors, memory repair, recovery action and modes.
GPU_HEALTH: tuple[AnyFamily, ...] = (
    core_values(
        _ECC.counter_by(
            "ecc_errors_total{severity, scope}",
            "ECC errors by severity (corrected, uncorrected) and scope: volatile since the driver was "
            "loaded, aggregate over the lifetime of the GPU.",
            lambda ecc: ecc.errors.items(),
        ),
        ("corrected", "volatile"),
        ("uncorrected", "volatile"),
    ),
    _ECC.standard.reading("ecc.by_location").counter_by(
        "ecc_location_errors_total{severity, scope, location}",
        "ECC errors by severity, scope and memory location.",
        lambda ecc: ecc.by_location.items(),
    ),
    _ECC.standard.flag("ecc_enabled", "1 if ECC is enabled, else 0.", lambda ecc: ecc.enabled),
    _ECC.standard.flag(
        "ecc_enabled_pending",
        "1 if ECC will be enabled after the next reboot, else 0.",
        lambda ecc: ecc.pending,
    ),
    _REPAIRS.gauge_by(
        "remapped_rows{severity}",
        "Memory rows remapped to spare rows, by severity of the ECC error.",
        lambda repairs: keyed(repairs.remapped_rows),
    ),
    _REPAIRS.flag("row_remap_pending", "1 if a row remapping is pending until the next GPU reset, else 0."),
    _REPAIRS.flag(
        "row_remap_failure", "1 if a row remapping has failed and the board must be replaced, else 0."
    ),
    _REPAIRS.standard.gauge_by(
        "row_remap_banks{left}",
        "Memory banks by availability of spare rows: max, high, partial, low or none.",
        lambda repairs: keyed(repairs.row_banks),
    ),
    _REPAIRS.standard.gauge_by(
        "retired_pages{cause}",
        "Retired memory pages, by cause: single_bit or double_bit ECC errors.",
        lambda repairs: keyed(repairs.retired_pages),
    ),
    _REPAIRS.flag(
        "retired_pages_pending", "1 if a page retirement is pending until the next reboot, else 0."
    ),
    _REPAIRS.full.flag(
        "channel_repair_pending",
        "1 if a repair of a memory channel is pending until the next GPU reset, else 0.",
    ),
    _REPAIRS.full.flag(
        "tpc_repair_pending",
        "1 if a repair of a texture processing cluster (TPC) is pending until the next GPU reset, else 0.",
    ),
    READING.grouped("repairs").standard.states(
        "recovery_action{action}",
        "1 if the GPU needs this recovery action now (none, reset, reboot, ...), else 0.",
        _recovery,
    ),
    _MODES.reading("performance_state").gauge(
        "performance_state",
        "Performance state (P-state) of the GPU: 0 is the maximum performance, 15 the minimum.",
    ),
    _MODES.info(
        "compute_mode_info{compute_mode}",
        "Compute mode of the GPU: default, exclusive_process, exclusive_thread or prohibited.",
        lambda gpu: word(gpu.compute_mode),
    ),
    _MODES.flag(
        "mig_mode_pending",
        "1 if MIG mode will be enabled after the next GPU reset, else 0.",
        lambda gpu: gpu.mig_pending,
    ),
    _MODES.reading("persistence").flag(
        "persistence_mode",
        "1 if persistence mode is enabled: the GPU stays initialized without clients; else 0.",
        lambda gpu: gpu.persistence,
    ),
    _MODES.flag(
        "accounting_mode",
        "1 if accounting mode is enabled: the driver records statistics of each process; else 0.",
        lambda gpu: gpu.accounting,
    ),
    _MODES.full.reading("display_active").flag(
        "display_active", "1 if a display is active on the GPU, else 0."
    ),
)


def _by_xid(row: GpuRow, value: Callable[[EventCount], float]) -> Iterator[Labelled]:
    for event in row.events:
        if event.xid is not None:
            yield (event.mig_uuid, str(event.xid), explain(event.xid).kind), value(event)


def _xid_total(row: GpuRow) -> int | None:
    """Return the number of XID errors; None for a GPU whose events are unknown."""
    counts = [event.count for event in row.events if event.xid is not None]
    return sum(counts) if counts or row.watched else None


# Events reported by a GPU (GpuRow), also of a lost GPU.
GPU_EVENTS: tuple[AnyFamily, ...] = (
    _EVENTS.counter(
        "xid_errors_total",
        "XID errors of the GPU and its MIG devices since the exporter started.",
        _xid_total,
    ),
    _EVENTS.counter_by(
        "xid_code_errors_total{mig_uuid, xid, class}",
        "XID errors by code since the exporter started, from the first error of a code on, with mig_uuid if "
        "a MIG device caused it. See docs/xids.md for the codes and classes.",
        lambda row: _by_xid(row, lambda event: event.count),
    ),
    _EVENTS.gauge_by(
        "xid_last_timestamp_seconds{mig_uuid, xid, class}",
        "Unix time of the last XID error, by code.",
        lambda row: _by_xid(row, lambda event: event.last),
    ),
    _EVENTS.standard.counter_by(
        "events_total{event}",
        "GPU events other than XID errors since the exporter started: single_bit_ecc, double_bit_ecc, "
        "ecc_storm, dram_retirement, dram_retirement_failure, poison, fatal_poison, mig_config, "
        "gpu_unavailable, recovery_action.",
        lambda row: (((event.kind,), event.count) for event in row.events if event.xid is None),
    ),
    _EVENTS.flag(
        "events_watched",
        "1 if the exporter is subscribed to this GPU's events, so that an event without a series did not "
        "occur; else 0.",
        lambda row: row.watched,
    ),
)
