"""Each renamed field under its old and its new name, by the table of dialects.

A row of the tables has the name whose unit distinguishes more values, and the family of the other name is
made of it: MiB of bytes, joules of millijoules. So nothing is lost by the rounding of the other unit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from exporter.metrics.dcgm.dialects import RENAMED, Field
from exporter.metrics.dcgm.entities import DcgmRow
from exporter.metrics.family import AnyFamily, Family
from exporter.model import Number

_BY_OLD_NAME: Final[Mapping[str, Field]] = {field.old: field for field in RENAMED}
_ROUNDED: Final[Mapping[str, Field]] = {field.new: field for field in RENAMED if field.steps == "finer"}
# Units in HELP, old and new.
_UNITS: Final[Mapping[str, str]] = {
    "MHz": "Hz",
    "mJ": "J",
    "%": "ratio",
    "MiB": "bytes",
    "MB/s": "bytes/s",
}
_OLD_UNITS: Final[Mapping[str, str]] = {new: old for old, new in _UNITS.items()}
_UNIT = re.compile(r"\((?P<unit>[^()]+)\)(?=[.;])")


class BothNames(NamedTuple):
    """A field under its names in 4.8 and in 4.9, which are one family if it kept its name.

    ``new`` is None if 4.8 has the new name too, as another row.
    """

    old: AnyFamily
    new: AnyFamily | None


def both_names(rows: Sequence[AnyFamily]) -> Iterator[BothNames]:
    """Yield the families of each row."""
    names = {row.name for row in rows}
    for row in rows:
        if field := _ROUNDED.get(row.name):
            yield BothNames(_old_of(row, field), replace(row, level="dcgm_new"))
        elif field := _BY_OLD_NAME.get(row.name):
            new = None if field.new in names else _new_of(row, field)
            yield BothNames(replace(row, level="dcgm_old"), new)
        else:
            yield BothNames(row, row)


def _new_of(row: AnyFamily, field: Field) -> AnyFamily:
    new = replace(row, name=field.new, level="dcgm_new", help=_with_units(row.help, _UNITS))
    return _converted(new, field.factor) if field.factor != 1 else new


def _old_of(row: AnyFamily, field: Field) -> AnyFamily:
    """Return the family of the old name, in whole units, rounded down as DCGM does."""
    old = replace(row, name=field.old, level="dcgm_old", help=_with_units(row.help, _OLD_UNITS))
    return _converted(old, 1 / field.factor, whole=True)


def _converted(family: AnyFamily, factor: Fraction, *, whole: bool = False) -> Family[DcgmRow]:
    """Return the family with its values times ``factor``, with ``whole`` rounded down."""
    if not isinstance(family, Family):
        raise TypeError(f"{family.name} has labels of its own, and another unit")
    read, multiplier, divisor = family.value, factor.numerator, factor.denominator

    def value(row: DcgmRow) -> Number | None:
        number = read(row)
        if number is None:
            return None
        if whole:
            return int(number * multiplier // divisor)
        return number * multiplier if divisor == 1 else number * multiplier / divisor

    return replace(family, value=value)


def _with_units(text: str, units: Mapping[str, str]) -> str:
    return _UNIT.sub(lambda match: f"({units.get(match['unit'], match['unit'])})", text)
