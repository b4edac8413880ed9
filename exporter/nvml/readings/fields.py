"""Tables of NVML field values (``NVML_FI_*`` of nvml.h), by class: one call reads all of a GPU that are due.

A row has several fields if generations of drivers or boards number the reading differently. The classes are
those of ``exporter.nvml.readings.device``: read in every sweep, and slow.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from exporter.model.bounds import (
    CELSIUS,
    CELSIUS_MARGIN,
    COUNT,
    COUNTER,
    LINK_SPEED,
    LINKS,
    MEMORY_ERRORS,
    MILLIWATTS,
    NANOSECONDS,
    RATIO,
    SMALL,
    Bound,
)
from exporter.model.readings import RECOVERY_ACTIONS, PacketError
from exporter.nvml.readings.answers import IMPOSSIBLE, Decode, Path, celsius, flag, known, margin, word

# Scope of a sum over all NVLinks.
ALL_LINKS = 2**32 - 1
LINK_STATE = 165
KIBIBYTE = 1024
# The largest number of 32 bits.
MOST_32_BITS = 2**32 - 1
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
    # What its numbers can be; None for a reading without numbers.
    bound: Bound | None
    decode: Decode = known
    # Value type to use if a driver wrongly answers with the type double; 0: the type is right.
    integer: int = 0
    # Whether it is slow; ``slow_rows`` sets it.
    slow: bool = False


def slow_rows(*rows: FieldRow) -> tuple[FieldRow, ...]:
    """Return these rows as slow ones."""
    return tuple(replace(row, slow=True) for row in rows)


def _violation(reason: str, number: int) -> FieldRow:
    return FieldRow("throttling", ("violations_nanoseconds", reason), (Field(number),), NANOSECONDS)


def _limit(threshold: str, number: int) -> FieldRow:
    into = "temperature_limits_celsius", threshold
    return FieldRow("thermal", into, (Field(number),), CELSIUS_MARGIN, margin)


def _power(part: str, number: int, scope: int) -> FieldRow:
    return FieldRow("power", ("power_parts_milliwatts", part), (Field(number, scope),), MILLIWATTS)


def _ecc(severity: str, scope: str, number: int) -> FieldRow:
    # Some drivers leave the type at 0, which is double. The value may then be one: its bits exceed the bound.
    into = "ecc", "errors", (severity, scope)
    return FieldRow("ecc", into, (Field(number),), MEMORY_ERRORS, integer=UNSIGNED_LONG)


def _repair(name: str, number: int) -> FieldRow:
    return FieldRow("repairs", ("repairs", *name.split(".")), (Field(number),), COUNT)


def _repair_flag(name: str, number: int) -> FieldRow:
    return FieldRow("repairs", ("repairs", name), (Field(number),), None, flag)


def past_wrapping(answer: int) -> int | None:
    """Return a count above 32 bits. A counter of 32 bits wraps within a second on a busy link.

    A smaller count may be of such a counter, and a counter that falls is worse than none.
    """
    return known(answer) if not 0 <= answer <= MOST_32_BITS else None


def bit_error_ratio(answer: int) -> float:
    """Return a ratio: four bits of mantissa times ten to the power of minus the lower eight bits.

    The smallest one that can be encoded stands for none:
    https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/src/DcgmUtilities.cpp, NvmlBerParser.
    """
    mantissa, exponent = answer >> 8, answer & 0xFF
    if answer == NO_BIT_ERRORS:
        return 0.0
    return float(f"{mantissa}e-{exponent}") if 0 <= mantissa <= 0xF else IMPOSSIBLE


# Read in every sweep.
ROWS = (
    _power("average", 185, 0),
    _power("instant", 186, 0),
    _power("module", 186, 1),
    # Memory power is reported as an average only.
    _power("memory", 185, 2),
    # One driver branch answers with the type double for an unsigned integer.
    FieldRow("thermal", ("memory_temperature_celsius",), (Field(82),), CELSIUS, celsius, integer=UNSIGNED),
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
    FieldRow("pcie", ("traffic_bytes", "pcie_transmit"), (Field(197),), COUNTER, past_wrapping),
    FieldRow("pcie", ("traffic_bytes", "pcie_receive"), (Field(198),), COUNTER, past_wrapping),
)
SLOW_ROWS = slow_rows(
    FieldRow("nvlink", ("nvlink", "links"), (Field(91),), LINKS),
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
    _repair_flag("retired_pages_pending", 31),
    _repair("remapped_rows.corrected", 142),
    _repair("remapped_rows.uncorrected", 143),
    _repair_flag("row_remap_pending", 144),
    _repair_flag("row_remap_failure", 145),
    FieldRow("repairs", ("recovery_action",), (Field(230),), None, word(dict(enumerate(RECOVERY_ACTIONS)))),
    FieldRow("c2c", ("c2c", "links"), (Field(170),), LINKS),
    FieldRow("c2c", ("c2c", "errors", "crc"), (Field(231),), COUNTER),
    FieldRow("c2c", ("c2c", "errors", "replay"), (Field(232),), COUNTER),
    FieldRow("c2c", ("c2c", "errors", "replay_back_to_back"), (Field(233),), COUNTER),
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
        COUNTER,
    ),
    FieldRow(
        "nvlink",
        ("traffic_bytes", "nvlink_receive"),
        (Field(139, ALL_LINKS, KIBIBYTE), Field(204, ALL_LINKS)),
        COUNTER,
    ),
)
SLOW_NVLINK_ROWS = slow_rows(
    FieldRow("nvlink", ("nvlink", "megabytes_per_second"), (Field(90),), LINK_SPEED),
    FieldRow("nvlink", ("nvlink", "errors", "crc_flit"), (Field(38),), COUNTER),
    FieldRow("nvlink", ("nvlink", "errors", "crc_data"), (Field(45),), COUNTER),
    FieldRow("nvlink", ("nvlink", "errors", "replay"), (Field(52),), COUNTER),
    FieldRow("nvlink", ("nvlink", "errors", "recovery"), (Field(59), Field(215, ALL_LINKS)), COUNTER),
    *(
        FieldRow("nvlink", ("nvlink", "packet_errors", error), (Field(number, ALL_LINKS),), COUNTER)
        for error, number in PACKET_ERRORS
    ),
    FieldRow("nvlink", ("nvlink", "recoveries", "successful"), (Field(213, ALL_LINKS),), COUNT),
    FieldRow("nvlink", ("nvlink", "recoveries", "failed"), (Field(214, ALL_LINKS),), COUNT),
    FieldRow(
        "nvlink",
        ("nvlink", "bit_error_ratios", "effective"),
        (Field(220, ALL_LINKS),),
        RATIO,
        bit_error_ratio,
    ),
    FieldRow(
        "nvlink", ("nvlink", "bit_error_ratios", "symbol"), (Field(222, ALL_LINKS),), RATIO, bit_error_ratio
    ),
)


@cache
def link_rows(links: int, c2c_links: int = 0) -> tuple[FieldRow, ...]:
    """Return the rows of a GPU with so many NVLinks and C2C links: sums over all, and the state of each."""
    nvlinks = (*NVLINK_ROWS, *SLOW_NVLINK_ROWS, *map(_state_row, range(links))) if links else ()
    return (*nvlinks, *(row for link in range(c2c_links) for row in _c2c_rows(link)))


@cache
def _state_row(link: int) -> FieldRow:
    return FieldRow("nvlink", ("link_states", link), (Field(LINK_STATE, link),), SMALL, slow=True)


@cache
def _c2c_rows(link: int) -> tuple[FieldRow, ...]:
    return slow_rows(
        FieldRow("c2c", ("c2c", "states", link), (Field(171, link),), None, flag),
        FieldRow("c2c", ("c2c", "speeds", link), (Field(172, link),), LINK_SPEED),
    )
