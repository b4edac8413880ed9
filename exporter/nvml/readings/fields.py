"""Tables of NVML field values (``NVML_FI_*`` of nvml.h), by class: one call reads all of a GPU that are due.

A row has several fields if generations of drivers or boards number the reading differently. The classes are
those of ``exporter.nvml.readings.device``: read in every sweep, and slow.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

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
from exporter.model.readings import (
    RECOVERY_ACTIONS,
    EccScope,
    EccSeverity,
    PacketError,
    PowerPart,
    Threshold,
    Violation,
)
from exporter.nvml.readings.answers import IMPOSSIBLE, Decode, celsius, flag, known, margin
from exporter.nvml.readings.paths import C2C, ECC, GPU, NVLINK, REPAIRS, Path, path_of

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
    scope: int = 0  # a link, or a scope of power
    unit: int = 1  # factor to the unit of the reading


# By identity, as ``CallRow``.
@dataclass(frozen=True, slots=True, eq=False)
class FieldRow:
    """One reading of the table."""

    group: str  # of readings, for which its calls and failures count
    into: Path
    fields: tuple[Field, ...]  # fields that contain it, preferred first
    # What its numbers can be; None for a reading without numbers.
    bound: Bound | None
    decode: Decode = known
    # Value type to use if a driver wrongly answers with the type double; 0: the type is right.
    integer: int = 0
    slow: bool = False  # whether it is slow; ``slow_rows`` sets it


def slow_rows(*rows: FieldRow) -> tuple[FieldRow, ...]:
    """Return these rows as slow ones."""
    return tuple(replace(row, slow=True) for row in rows)


def _row(
    group: str,
    into: Any,
    field: int | Field | tuple[Field, ...],
    bound: Bound | None,
    decode: Decode = known,
) -> FieldRow:
    """Return the row of a reading: its place, such as ``GPU.recovery_action``, and its fields."""
    if isinstance(field, int):
        field = Field(field)
    fields = (field,) if isinstance(field, Field) else field
    return FieldRow(group, path_of(into), fields, bound, decode)


def _violation(reason: Violation, number: int) -> FieldRow:
    return _row("throttling", GPU.violations_nanoseconds[reason], number, NANOSECONDS)


def _limit(threshold: Threshold, number: int) -> FieldRow:
    return _row("thermal", GPU.temperature_limits_celsius[threshold], number, CELSIUS_MARGIN, margin)


def _power(part: PowerPart, number: int, scope: int) -> FieldRow:
    return _row("power", GPU.power_parts_milliwatts[part], Field(number, scope), MILLIWATTS)


def _ecc(severity: EccSeverity, scope: EccScope, number: int) -> FieldRow:
    # Some drivers leave the type at 0, which is double. The value may then be one: its bits exceed the bound.
    return replace(_row("ecc", ECC.errors[severity, scope], number, MEMORY_ERRORS), integer=UNSIGNED_LONG)


def _repair(into: Any, number: int) -> FieldRow:
    return _row("repairs", into, number, COUNT)


def _repair_flag(into: Any, number: int) -> FieldRow:
    return _row("repairs", into, number, None, flag)


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
    replace(_row("thermal", GPU.memory_temperature_celsius, 82, CELSIUS, celsius), integer=UNSIGNED),
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
    _row("pcie", GPU.traffic_bytes["pcie_transmit"], 197, COUNTER, past_wrapping),
    _row("pcie", GPU.traffic_bytes["pcie_receive"], 198, COUNTER, past_wrapping),
)
SLOW_ROWS = slow_rows(
    _row("nvlink", NVLINK.links, 91, LINKS),
    _limit("shutdown", 193),
    _limit("slowdown", 194),
    _limit("memory", 195),
    _limit("gpu", 196),
    _ecc("corrected", "volatile", 3),
    _ecc("uncorrected", "volatile", 4),
    _ecc("corrected", "aggregate", 5),
    _ecc("uncorrected", "aggregate", 6),
    _repair(REPAIRS.retired_pages["single_bit"], 29),
    _repair(REPAIRS.retired_pages["double_bit"], 30),
    _repair_flag(REPAIRS.retired_pages_pending, 31),
    _repair(REPAIRS.remapped_rows["corrected"], 142),
    _repair(REPAIRS.remapped_rows["uncorrected"], 143),
    _repair_flag(REPAIRS.row_remap_pending, 144),
    _repair_flag(REPAIRS.row_remap_failure, 145),
    _row("repairs", GPU.recovery_action, 230, None, dict(enumerate(RECOVERY_ACTIONS)).get),
    _row("c2c", C2C.links, 170, LINKS),
    _row("c2c", C2C.errors["crc"], 231, COUNTER),
    _row("c2c", C2C.errors["replay"], 232, COUNTER),
    _row("c2c", C2C.errors["replay_back_to_back"], 233, COUNTER),
)
# The numbers of NVLinks and of C2C links, which decide what else to read.
LINKS_ROW, C2C_LINKS_ROW = (
    row for row in SLOW_ROWS if row.into in {path_of(NVLINK.links), path_of(C2C.links)}
)
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
    _row(
        "nvlink",
        GPU.traffic_bytes["nvlink_transmit"],
        (Field(138, ALL_LINKS, KIBIBYTE), Field(202, ALL_LINKS)),
        COUNTER,
    ),
    _row(
        "nvlink",
        GPU.traffic_bytes["nvlink_receive"],
        (Field(139, ALL_LINKS, KIBIBYTE), Field(204, ALL_LINKS)),
        COUNTER,
    ),
)
SLOW_NVLINK_ROWS = slow_rows(
    _row("nvlink", NVLINK.megabytes_per_second, 90, LINK_SPEED),
    _row("nvlink", NVLINK.errors["crc_flit"], 38, COUNTER),
    _row("nvlink", NVLINK.errors["crc_data"], 45, COUNTER),
    _row("nvlink", NVLINK.errors["replay"], 52, COUNTER),
    _row("nvlink", NVLINK.errors["recovery"], (Field(59), Field(215, ALL_LINKS)), COUNTER),
    *(
        _row("nvlink", NVLINK.packet_errors[error], Field(number, ALL_LINKS), COUNTER)
        for error, number in PACKET_ERRORS
    ),
    _row("nvlink", NVLINK.recoveries["successful"], Field(213, ALL_LINKS), COUNT),
    _row("nvlink", NVLINK.recoveries["failed"], Field(214, ALL_LINKS), COUNT),
    _row("nvlink", NVLINK.bit_error_ratios["effective"], Field(220, ALL_LINKS), RATIO, bit_error_ratio),
    _row("nvlink", NVLINK.bit_error_ratios["symbol"], Field(222, ALL_LINKS), RATIO, bit_error_ratio),
)


@cache
def link_rows(links: int, c2c_links: int = 0) -> tuple[FieldRow, ...]:
    """Return the rows of a GPU with so many NVLinks and C2C links: sums over all, and the state of each."""
    nvlinks = (*NVLINK_ROWS, *SLOW_NVLINK_ROWS, *map(_state_row, range(links))) if links else ()
    return (*nvlinks, *(row for link in range(c2c_links) for row in _c2c_rows(link)))


@cache
def _state_row(link: int) -> FieldRow:
    # Not a field of the model: ``active_links`` counts them.
    return FieldRow("nvlink", ("link_states", link), (Field(LINK_STATE, link),), SMALL, slow=True)


@cache
def _c2c_rows(link: int) -> tuple[FieldRow, ...]:
    return slow_rows(
        _row("c2c", C2C.states[link], Field(171, link), None, flag),
        _row("c2c", C2C.speeds[link], Field(172, link), LINK_SPEED),
    )
