"""Tables of NVML field values (``NVML_FI_*`` of nvml.h), by class: one call reads all of a GPU that are due.

A row has several fields if generations of drivers or boards number the reading differently. The classes are
those of ``exporter.nvml.readings.device``: read in every sweep, and slow.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from exporter.model.readings import RECOVERY_ACTIONS, PacketError
from exporter.nvml.readings.answers import (
    UNKNOWN_32,
    UNKNOWN_64,
    Decode,
    Path,
    celsius,
    flag,
    long_number,
    margin,
    word,
)

# Scope of a sum over all NVLinks.
ALL_LINKS = 2**32 - 1
LINK_STATE = 165
KIBIBYTE = 1024
MOST_LINKS = 128
# The bits of a positive double, read as an integer, are at least that.
DOUBLE_BITS = 2**52
# The largest mantissa with the largest exponent.
NO_BIT_ERRORS = 0xFFF
# Numbers of value types (``nvmlValueType_t``).
UNSIGNED, UNSIGNED_LONG = 1, 3


class Field(NamedTuple):
    """A field value of NVML."""

    number: int
    # A link, or a scope of power.
    scope: int = 0
    # Factor to the unit of the reading.
    unit: int = 1


# By identity, as ``Row``.
@dataclass(frozen=True, slots=True, eq=False)
class FieldRow:
    """One reading of the table."""

    # A key of GROUPS in exporter.metrics.
    group: str
    into: Path
    # Fields that contain it, preferred first.
    fields: tuple[Field, ...]
    decode: Decode = long_number
    # Value type to use if a driver wrongly answers with the type double; 0: the type is right.
    integer: int = 0
    # Whether it is slow; ``slow_rows`` sets it.
    slow: bool = False


def slow_rows(*rows: FieldRow) -> tuple[FieldRow, ...]:
    """Return these rows as slow ones."""
    return tuple(replace(row, slow=True) for row in rows)


def _violation(reason: str, number: int) -> FieldRow:
    return FieldRow("throttling", ("violations_nanoseconds", reason), (Field(number),))


def _limit(threshold: str, number: int) -> FieldRow:
    return FieldRow("thermal", ("temperature_limits_celsius", threshold), (Field(number),), margin)


def _power(part: str, number: int, scope: int) -> FieldRow:
    return FieldRow("power", ("power_parts_milliwatts", part), (Field(number, scope),))


def _ecc(severity: str, scope: str, number: int) -> FieldRow:
    # Some drivers leave the type at 0, which is double; the value may then be one.
    def count(answer: int) -> int | None:
        return answer if 0 <= answer < DOUBLE_BITS else None

    return FieldRow(
        "ecc", ("ecc", "errors", (severity, scope)), (Field(number),), count, integer=UNSIGNED_LONG
    )


def _repair(name: str, number: int, decode: Decode = long_number) -> FieldRow:
    return FieldRow("repairs", ("repairs", *name.split(".")), (Field(number),), decode)


def past_wrapping(answer: int) -> int | None:
    """Return a count above 32 bits. A counter of 32 bits wraps within a second on a busy link.

    A smaller count may be of such a counter, and a counter that falls is worse than none.
    """
    return answer if UNKNOWN_32 < answer < UNKNOWN_64 else None


def bit_error_ratio(answer: int) -> float | None:
    """Return a ratio: four bits of mantissa times ten to the power of minus the lower eight bits.

    The smallest one that can be encoded stands for none:
    https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/src/DcgmUtilities.cpp, NvmlBerParser.
    """
    mantissa, exponent = answer >> 8, answer & 0xFF
    if answer == NO_BIT_ERRORS:
        return 0.0
    ratio = float(f"{mantissa}e-{exponent}")
    return ratio if 0 <= mantissa <= 0xF and ratio <= 1 else None


def link_count(answer: int) -> int | None:
    """Return a plausible number of links."""
    return answer if 0 <= answer <= MOST_LINKS else None


# Read in every sweep.
ROWS = (
    _power("average", 185, 0),
    _power("instant", 186, 0),
    _power("module", 186, 1),
    # Memory power is reported as an average only.
    _power("memory", 185, 2),
    # One driver branch answers with the type double for an unsigned integer.
    FieldRow("thermal", ("memory_temperature_celsius",), (Field(82),), celsius, integer=UNSIGNED),
    _violation("power", 74),
    _violation("thermal", 75),
    _violation("sync_boost", 76),
    _violation("board_limit", 77),
    _violation("low_utilization", 78),
    _violation("reliability", 79),
    _violation("application_clocks", 80),
    _violation("base_clocks", 81),
    _violation("software_thermal", 269),
    _violation("hardware_thermal", 270),
    _violation("power_brake", 271),
    FieldRow("pcie", ("traffic_bytes", "pcie_transmit"), (Field(197),), past_wrapping),
    FieldRow("pcie", ("traffic_bytes", "pcie_receive"), (Field(198),), past_wrapping),
)
SLOW_ROWS = slow_rows(
    FieldRow("nvlink", ("nvlink", "links"), (Field(91),), link_count),
    _limit("shutdown", 193),
    _limit("slowdown", 194),
    _limit("memory", 195),
    _limit("gpu", 196),
    _ecc("corrected", "volatile", 3),
    _ecc("uncorrected", "volatile", 4),
    _ecc("corrected", "aggregate", 5),
    _ecc("uncorrected", "aggregate", 6),
    _repair("retired_pages.single_bit", 29),
    _repair("retired_pages.double_bit", 30),
    _repair("retired_pages_pending", 31, flag),
    _repair("remapped_rows.corrected", 142),
    _repair("remapped_rows.uncorrected", 143),
    _repair("row_remap_pending", 144, flag),
    _repair("row_remap_failure", 145, flag),
    FieldRow("repairs", ("recovery_action",), (Field(230),), word(dict(enumerate(RECOVERY_ACTIONS)))),
    FieldRow("c2c", ("c2c", "links"), (Field(170),), link_count),
    FieldRow("c2c", ("c2c", "errors", "crc"), (Field(231),)),
    FieldRow("c2c", ("c2c", "errors", "replay"), (Field(232),)),
    FieldRow("c2c", ("c2c", "errors", "replay_back_to_back"), (Field(233),)),
)
# The numbers of NVLinks and of C2C links, which decide what else to read.
LINKS_ROW, C2C_LINKS_ROW = (row for row in SLOW_ROWS if row.into[1:] == ("links",))
# Counters of Blackwell over all links (``NVML_FI_DEV_NVLINK_COUNT_*`` of nvml.h).
PACKET_ERRORS: tuple[tuple[PacketError, int], ...] = (
    ("malformed", 206),
    ("buffer_overrun", 207),
    ("received", 208),
    ("remote", 209),
    ("general", 210),
    ("link_integrity", 211),
    ("discarded", 212),
    ("effective", 219),
    ("symbol", 221),
)
# For GPUs with NVLinks; Blackwell has other counters than earlier generations.
NVLINK_ROWS = (
    FieldRow(
        "nvlink",
        ("traffic_bytes", "nvlink_transmit"),
        (Field(138, ALL_LINKS, KIBIBYTE), Field(202, ALL_LINKS)),
    ),
    FieldRow(
        "nvlink",
        ("traffic_bytes", "nvlink_receive"),
        (Field(139, ALL_LINKS, KIBIBYTE), Field(204, ALL_LINKS)),
    ),
)
SLOW_NVLINK_ROWS = slow_rows(
    FieldRow("nvlink", ("nvlink", "megabytes_per_second"), (Field(90),)),
    FieldRow("nvlink", ("nvlink", "errors", "crc_flit"), (Field(38),)),
    FieldRow("nvlink", ("nvlink", "errors", "crc_data"), (Field(45),)),
    FieldRow("nvlink", ("nvlink", "errors", "replay"), (Field(52),)),
    FieldRow("nvlink", ("nvlink", "errors", "recovery"), (Field(59), Field(215, ALL_LINKS))),
    *(
        FieldRow("nvlink", ("nvlink", "packet_errors", error), (Field(number, ALL_LINKS),))
        for error, number in PACKET_ERRORS
    ),
    FieldRow("nvlink", ("nvlink", "recoveries", "successful"), (Field(213, ALL_LINKS),)),
    FieldRow("nvlink", ("nvlink", "recoveries", "failed"), (Field(214, ALL_LINKS),)),
    FieldRow(
        "nvlink", ("nvlink", "bit_error_ratios", "effective"), (Field(220, ALL_LINKS),), bit_error_ratio
    ),
    FieldRow("nvlink", ("nvlink", "bit_error_ratios", "symbol"), (Field(222, ALL_LINKS),), bit_error_ratio),
)


@cache
def link_rows(links: int, c2c_links: int = 0) -> tuple[FieldRow, ...]:
    """Return the rows of a GPU with so many NVLinks and C2C links: sums over all, and the state of each."""
    nvlinks = (*NVLINK_ROWS, *SLOW_NVLINK_ROWS, *map(_state_row, range(links))) if links else ()
    return (*nvlinks, *(row for link in range(c2c_links) for row in _c2c_rows(link)))


@cache
def _state_row(link: int) -> FieldRow:
    return FieldRow("nvlink", ("link_states", link), (Field(LINK_STATE, link),), slow=True)


@cache
def _c2c_rows(link: int) -> tuple[FieldRow, ...]:
    return slow_rows(
        FieldRow("c2c", ("c2c", "states", link), (Field(171, link),), flag),
        FieldRow("c2c", ("c2c", "speeds", link), (Field(172, link),)),
    )
