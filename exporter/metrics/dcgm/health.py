"""Fields of health: errors of the memory, its repairs, and NVLink."""

from exporter.metrics import Family
from exporter.metrics.dcgm.row import (
    DcgmRow,
    Value,
    counter,
    ecc,
    flag,
    gauge,
    nvlink,
    reading,
    repairs,
)
from exporter.model.readings import (
    RECOVERY_ACTIONS,
    EccScope,
    EccSeverity,
    NvlinkError,
)

_SEVERITIES: tuple[tuple[str, EccSeverity, str], ...] = (
    ("SBE", "corrected", "corrected"),
    ("DBE", "uncorrected", "uncorrected"),
)
_SCOPES: tuple[tuple[str, EccScope, str], ...] = (
    ("VOL", "volatile", "since the driver was loaded"),
    ("AGG", "aggregate", "ever"),
)
_LOCATIONS = (
    ("L1", "l1_cache", "the L1 cache"),
    ("L2", "l2_cache", "the L2 cache"),
    ("DEV", "dram", "the device memory"),
    ("REG", "register_file", "the register file"),
    ("TEX", "texture_memory", "the texture memory"),
    ("SHM", "shared_memory", "the shared memory"),
    ("CBU", "cbu", "the convergence barrier unit"),
    ("SRM", "sram", "the SRAM"),
)
_NVLINK_ERRORS: tuple[tuple[str, NvlinkError, str], ...] = (
    ("CRC_FLIT", "crc_flit", "Flow control digits with a wrong checksum"),
    ("CRC_DATA", "crc_data", "Data with a wrong checksum"),
    ("REPLAY", "replay", "Replays"),
    ("RECOVERY", "recovery", "Recoveries"),
)
_BANKS = (
    ("MAX", "max", "all"),
    ("HIGH", "high", "many"),
    ("PARTIAL", "partial", "some"),
    ("LOW", "low", "few"),
    ("NONE", "none", "none"),
)


def _ecc_errors(severity: EccSeverity, scope: EccScope) -> Value:
    return ecc(lambda found: found.errors.get((severity, scope)))


def _ecc_errors_at(severity: EccSeverity, scope: EccScope, location: str) -> Value:
    return ecc(lambda found: found.by_location.get((severity, scope, location)))


def _nvlink_errors(kind: NvlinkError) -> Value:
    return nvlink(lambda found: found.errors.get(kind))


def _banks(left: str) -> Value:
    return repairs(lambda found: found.row_banks.get(left))


def _nvlink_bandwidth(row: DcgmRow) -> int | None:
    """Give what DCGM makes of the counters: KiB per second, both directions, divided by 1000."""
    if row.gpu is None or row.reading is None:
        return None
    rate = row.gpu.nvlink_bytes_per_second
    if rate is None and row.reading.profiling is not None:
        rates = row.reading.profiling.rates
        if "nvlink_transmit" in rates and "nvlink_receive" in rates:
            rate = rates["nvlink_transmit"] + rates["nvlink_receive"]
    return None if rate is None else int(rate / 1024 / 1000)


ECC: tuple[Family[DcgmRow], ...] = (
    gauge("DEV_ECC_CURRENT", "ecc", "1 if ECC is on.", ecc(lambda found: flag(found.enabled))),
    gauge(
        "DEV_ECC_PENDING",
        "ecc",
        "1 if ECC will be on after the next reboot.",
        ecc(lambda found: flag(found.pending)),
    ),
    *(
        counter(
            f"DEV_ECC_{short}_{when}_TOTAL",
            "ecc",
            f"ECC errors {word}, {since}.",
            _ecc_errors(severity, scope),
        )
        for when, scope, since in _SCOPES
        for short, severity, word in _SEVERITIES
    ),
    *(
        counter(
            f"DEV_ECC_{short}_{when}_{where}",
            "ecc",
            f"ECC errors {word} in {place}, {since}.",
            _ecc_errors_at(severity, scope, location),
        )
        for where, location, place in _LOCATIONS
        for when, scope, since in _SCOPES
        for short, severity, word in _SEVERITIES
    ),
)

REPAIRS: tuple[Family[DcgmRow], ...] = (
    counter(
        "DEV_RETIRED_SBE",
        "repairs",
        "Pages retired after single-bit errors.",
        repairs(lambda found: found.retired_pages.get("single_bit")),
    ),
    counter(
        "DEV_RETIRED_DBE",
        "repairs",
        "Pages retired after double-bit errors.",
        repairs(lambda found: found.retired_pages.get("double_bit")),
    ),
    gauge(
        "DEV_RETIRED_PENDING",
        "repairs",
        "1 if a page will be retired at the next reboot.",
        repairs(lambda found: flag(found.retired_pages_pending)),
    ),
    counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "repairs",
        "Rows remapped after uncorrectable errors.",
        repairs(lambda found: found.remapped_rows.get("uncorrected")),
    ),
    counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "repairs",
        "Rows remapped after correctable errors.",
        repairs(lambda found: found.remapped_rows.get("corrected")),
    ),
    gauge(
        "DEV_ROW_REMAP_FAILURE",
        "repairs",
        "1 if a row could not be remapped.",
        repairs(lambda found: flag(found.row_remap_failure)),
    ),
    gauge(
        "DEV_ROW_REMAP_PENDING",
        "repairs",
        "1 if a row will be remapped when the GPU is reset.",
        repairs(lambda found: flag(found.row_remap_pending)),
    ),
    *(
        gauge(
            f"DEV_BANKS_REMAP_ROWS_AVAIL_{name}",
            "repairs",
            f"Banks of memory with {amount} of their spare rows left.",
            _banks(left),
        )
        for name, left, amount in _BANKS
    ),
    gauge(
        "DEV_GET_GPU_RECOVERY_ACTION",
        "repairs",
        "What the GPU needs: 0 nothing, 1 reset, 2 reboot, 3 draining of peers, 4 draining and reset.",
        reading(lambda r: None if r.recovery_action is None else RECOVERY_ACTIONS.index(r.recovery_action)),
    ),
)

NVLINK: tuple[Family[DcgmRow], ...] = (
    *(
        counter(
            f"DEV_NVLINK_{name}_ERROR_COUNT_TOTAL", "nvlink", f"{what} over NVLink.", _nvlink_errors(kind)
        )
        for name, kind, what in _NVLINK_ERRORS
    ),
    gauge(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "nvlink",
        "Rate of traffic over all NVLinks, both directions (MB/s).",
        _nvlink_bandwidth,
    ),
)
