"""Fields of health: ECC errors, memory repair, the recovery action, and NVLink."""

from exporter.metrics.dcgm.row import DCGM_ROWS, READING, DcgmRow
from exporter.metrics.family import Family, entry
from exporter.model.readings import RECOVERY_ACTIONS, EccScope, EccSeverity, NvlinkError

_ECC = READING.of(lambda gpu: gpu.ecc, "ecc")
_REPAIRS = READING.of(lambda gpu: gpu.repairs, "repairs")
_NVLINK = READING.of(lambda gpu: gpu.nvlink, "nvlink")

_SEVERITIES: tuple[tuple[str, EccSeverity, str], ...] = (
    ("SBE", "corrected", "Single-bit (corrected)"),
    ("DBE", "uncorrected", "Double-bit (uncorrected)"),
)
_SCOPES: tuple[tuple[str, EccScope, str], ...] = (
    ("VOL", "volatile", "since the driver was loaded"),
    ("AGG", "aggregate", "over the lifetime of the GPU"),
)
_LOCATIONS = (
    ("L1", "l1_cache", "the L1 cache"),
    ("L2", "l2_cache", "the L2 cache"),
    ("DEV", "dram", "device memory"),
    ("REG", "register_file", "the register file"),
    ("TEX", "texture_memory", "texture memory"),
    ("SHM", "shared_memory", "shared memory"),
    ("CBU", "cbu", "the convergence barrier unit"),
    ("SRM", "sram", "SRAM"),
)
_NVLINK_ERRORS: tuple[tuple[str, NvlinkError, str], ...] = (
    ("CRC_FLIT", "crc_flit", "flit CRC errors"),
    ("CRC_DATA", "crc_data", "data CRC errors"),
    ("REPLAY", "replay", "replay errors"),
    ("RECOVERY", "recovery", "recovery errors"),
)
_BANKS = (
    ("MAX", "max", "all"),
    ("HIGH", "high", "many"),
    ("PARTIAL", "partial", "some"),
    ("LOW", "low", "few"),
    ("NONE", "none", "no"),
)


def _nvlink_bandwidth(row: DcgmRow) -> int | None:
    """Return what DCGM computes from the counters: KiB per second in both directions, divided by 1000."""
    if row.gpu is None or row.reading is None:
        return None
    rate = row.gpu.nvlink_bytes_per_second
    if rate is None and row.reading.profiling is not None:
        rates = row.reading.profiling.rates
        if "nvlink_transmit" in rates and "nvlink_receive" in rates:
            rate = rates["nvlink_transmit"] + rates["nvlink_receive"]
    return None if rate is None else int(rate / 1024 / 1000)


ECC: tuple[Family[DcgmRow], ...] = (
    _ECC.flag("DEV_ECC_CURRENT", "1 if ECC is enabled, else 0.", lambda ecc: ecc.enabled),
    _ECC.flag(
        "DEV_ECC_PENDING",
        "1 if ECC will be enabled after the next reboot, else 0.",
        lambda ecc: ecc.pending,
    ),
    *(
        _ECC.counter(
            f"DEV_ECC_{short}_{when}_TOTAL", f"{bits} ECC errors {since}.", entry("errors", (severity, scope))
        )
        for when, scope, since in _SCOPES
        for short, severity, bits in _SEVERITIES
    ),
    *(
        _ECC.counter(
            f"DEV_ECC_{short}_{when}_{where}",
            f"{bits} ECC errors in {place} {since}.",
            entry("by_location", (severity, scope, location)),
        )
        for where, location, place in _LOCATIONS
        for when, scope, since in _SCOPES
        for short, severity, bits in _SEVERITIES
    ),
)

REPAIRS: tuple[Family[DcgmRow], ...] = (
    _REPAIRS.counter(
        "DEV_RETIRED_SBE",
        "Memory pages retired due to single-bit ECC errors.",
        lambda repairs: repairs.retired_pages.get("single_bit"),
    ),
    _REPAIRS.counter(
        "DEV_RETIRED_DBE",
        "Memory pages retired due to double-bit ECC errors.",
        lambda repairs: repairs.retired_pages.get("double_bit"),
    ),
    _REPAIRS.flag(
        "DEV_RETIRED_PENDING",
        "1 if a page retirement is pending until the next reboot, else 0.",
        lambda repairs: repairs.retired_pages_pending,
    ),
    _REPAIRS.counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Memory rows remapped due to uncorrectable errors.",
        lambda repairs: repairs.remapped_rows.get("uncorrected"),
    ),
    _REPAIRS.counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "Memory rows remapped due to correctable errors.",
        lambda repairs: repairs.remapped_rows.get("corrected"),
    ),
    _REPAIRS.flag(
        "DEV_ROW_REMAP_FAILURE",
        "1 if a row remapping has failed, else 0.",
        lambda repairs: repairs.row_remap_failure,
    ),
    _REPAIRS.flag(
        "DEV_ROW_REMAP_PENDING",
        "1 if a row remapping is pending until the next GPU reset, else 0.",
        lambda repairs: repairs.row_remap_pending,
    ),
    *(
        _REPAIRS.gauge(
            f"DEV_BANKS_REMAP_ROWS_AVAIL_{name}",
            f"Memory banks with {amount} spare rows available for remapping.",
            entry("row_banks", left),
        )
        for name, left, amount in _BANKS
    ),
    READING.grouped("repairs").gauge(
        "DEV_GET_GPU_RECOVERY_ACTION",
        "Recovery action that the GPU needs: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, "
        "5 recover IMEX domain, 6 bus reset, 7 system reboot.",
        lambda gpu: None if gpu.recovery_action is None else RECOVERY_ACTIONS.index(gpu.recovery_action),
    ),
)

NVLINK: tuple[Family[DcgmRow], ...] = (
    *(
        _NVLINK.counter(
            f"DEV_NVLINK_{name}_ERROR_COUNT_TOTAL",
            f"NVLink {errors}, summed over all links.",
            entry("errors", kind),
        )
        for name, kind, errors in _NVLINK_ERRORS
    ),
    DCGM_ROWS.grouped("nvlink").gauge(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "NVLink bandwidth in use, summed over all links and both directions (MB/s).",
        _nvlink_bandwidth,
    ),
)
