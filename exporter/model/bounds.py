"""Bounds of what a reading can be. A number outside of its bound was not observed: it is absent, and counted.

A bound is several times what hardware reaches, and far below the answers of broken drivers, firmware and
files: all ones, negative numbers read as unsigned, registers that cannot be read (0xbad…), other units.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

# Numbers with all bits set, of 32 and 64 bits: a value of none.
ALL_ONES: Final = frozenset({2**32 - 1, 2**64 - 1})
# The name under which a number outside of its bound is counted.
IMPOSSIBLE_VALUE: Final = "ImpossibleValue"


class Bound(NamedTuple):
    """The lowest and the highest number that a reading can be."""

    lowest: float
    highest: float

    def has(self, number: float) -> bool:
        """Return whether a reading can be this number; it cannot be NaN, nor all ones."""
        return self.lowest <= number <= self.highest and number not in ALL_ONES

    def times(self, unit: int) -> "Bound":
        """Return the bound in a unit of which ``unit`` make one of this bound's."""
        return Bound(self.lowest * unit, self.highest * unit)


PERCENT: Final = Bound(0, 100)
# Parts of a share are sampled at different times, so a busy device can be slightly above 1; a mean over
# samples of another length far above 100 %. Both are cut.
SHARE: Final = Bound(0, 1.01)
SAMPLED_PERCENT: Final = Bound(0, 1000)
# Of the maximum noise tolerance, which a fan may exceed; more is a number of revolutions.
FAN_PERCENT: Final = Bound(0, 200)
CELSIUS: Final = Bound(-60, 200)
CELSIUS_MARGIN: Final = Bound(-200, 200)
MILLIWATTS: Final = Bound(0, 20_000_000)
WATTS: Final = Bound(0, 20_000)
# 20 kW for 15 years.
MILLIJOULES: Final = Bound(0, 10**16)
MEGAHERTZ: Final = Bound(0, 50_000)
# 64 TiB.
BYTES: Final = Bound(0, 2**46)
PCIE_GENERATION: Final = Bound(1, 16)
PCIE_LANES: Final = Bound(1, 32)
# Bytes per second in one direction.
PCIE_RATE: Final = Bound(0, 2 * 10**12)
LINK_RATE: Final = Bound(0, 10**14)
# NVLinks or C2C links, and the speed of one in MB/s.
LINKS: Final = Bound(0, 128)
LINK_SPEED: Final = Bound(0, 10**7)
# Repairs, retransmissions and other events, which are counted in 32 bits.
COUNT: Final = Bound(0, 2 * 10**9)
# Errors of the memory: one every 30 microseconds for ten years.
MEMORY_ERRORS: Final = Bound(0, 10**13)
# Counters that may use 64 bits, as those of bytes: all but small negative numbers.
COUNTER: Final = Bound(0, 2**64 - 2**32)
# 15 years.
NANOSECONDS: Final = Bound(0, 15 * 366 * 86_400 * 10**9)
RATIO: Final = Bound(0, 1)
# Processors, engines, instances and slices of one GPU.
PARTS: Final = Bound(0, 10_000)
# Numbers of states, modes and ids.
SMALL: Final = Bound(0, 15)
NUMBER: Final = Bound(0, 2**31)


def rate_bound(traffic: str) -> Bound:
    """Return the bound of the bytes per second of a kind of traffic, such as ``pcie_transmit``."""
    return PCIE_RATE if traffic.startswith("pcie") else LINK_RATE


def bounded(value: Any, bound: Bound | None) -> tuple[Any, bool]:
    """Return a value without the numbers outside of a bound, and whether it had any.

    In a dictionary each number counts by itself; a record is None if one of its numbers is impossible.
    """
    if value is None or bound is None or isinstance(value, (bool, str)):
        return value, False
    if isinstance(value, (int, float)):
        return (value, False) if bound.has(value) else (None, True)
    if isinstance(value, Mapping):
        parts = {key: bounded(part, bound) for key, part in value.items()}
        return {key: part for key, (part, _) in parts.items()}, any(bad for _, bad in parts.values())
    if not is_dataclass(value):
        return value, False
    of_record = (getattr(value, field.name) for field in fields(value))
    return (None, True) if any(bounded(part, bound)[1] for part in of_record) else (value, False)
