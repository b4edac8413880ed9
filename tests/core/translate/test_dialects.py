"""The table of both dialects: against our own names, the migration page, and NVIDIA's lists."""

import re
from fractions import Fraction

import pytest

from exporter.commands.metrics import dialect_table
from exporter.metrics.dcgm import DCGM, DEFAULT
from exporter.metrics.dcgm.dialects import DEFAULTS, LABELS, RENAMED
from exporter.metrics.dcgm.own_names import NO_EQUAL, OWN
from tests.tools import ROOT

OURS = {family.name for family in DCGM["4.8"]}
BY_OLD_NAME = {field.old: field for field in RENAMED}
MIGRATION = re.compile(
    r"^\| `(DCGM_\w+)` \| (?:yes)? ?\| `(gpuslice_\w+)(?:\{(.*?)\})?`(?:, `[^`]+`)? \| (.*) \|$", re.MULTILINE
)
FACTORS = {
    "the same": Fraction(1),
    "÷ 10^6": Fraction(10**6),
    "÷ 2^20, rounded down": Fraction(2**20),
    "× 100": Fraction(1, 100),  # noqa: RUF001 - as the page has it
    "× 1000": Fraction(1, 1000),  # noqa: RUF001 - as the page has it
    "× 10^9": Fraction(1, 10**9),  # noqa: RUF001 - as the page has it
}


def test_the_release_renames_23_of_its_fields_and_the_units_of_eleven() -> None:
    """The 22 series of the default counters that have new names, and the label of the driver's version."""
    defaults = {family.name for family in DEFAULT["4.8"]}
    renamed = [field for field in RENAMED if field.since == DEFAULTS and field.old in defaults]

    assert len(renamed) + sum(label.since == DEFAULTS for label in LABELS) == 23
    assert sum(field.factor != 1 for field in renamed) == 11
    assert defaults - {field.old for field in renamed} == {
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "DCGM_FI_PROF_PCIE_RX_BYTES",
    }


def test_every_field_is_one_that_this_exporter_has() -> None:
    assert BY_OLD_NAME.keys() <= OURS


def test_each_name_is_there_once() -> None:
    """No new name is an old one, except for one that DCGM has had under both names."""
    new = [field.new for field in RENAMED]

    assert len(set(new)) == len(new) == len(BY_OLD_NAME)
    assert set(new) & OURS == {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}


@pytest.mark.parametrize(
    ("unit", "factors"),
    [
        ("_HERTZ", {Fraction(10**6)}),
        ("_BYTES", {Fraction(2**20)}),
        ("_BYTES_PER_SECOND", {Fraction(1_024_000)}),
        ("_JOULES_TOTAL", {Fraction(1, 1000)}),
        ("_CELSIUS", {Fraction(1)}),
        ("_WATTS", {Fraction(1)}),
        # Profiling ratios always were ratios.
        ("_RATIO", {Fraction(1), Fraction(1, 100)}),
    ],
)
def test_a_new_name_has_its_unit(unit: str, factors: set[Fraction]) -> None:
    assert {field.factor for field in RENAMED if field.new.endswith(unit)} == factors


def test_a_changed_unit_is_in_the_new_name() -> None:
    units = ("_HERTZ", "_BYTES", "_BYTES_PER_SECOND", "_JOULES_TOTAL", "_RATIO")

    assert all(field.new.endswith(units) for field in RENAMED if field.factor != 1)


def test_our_series_are_those_of_the_migration_page() -> None:
    """With their matchers, and with the opposite of the conversion there."""
    page = (ROOT / "docs/migration.md").read_text(encoding="utf-8")
    rows = {name: (series, labels, how) for name, series, labels, how in MIGRATION.findall(page)}

    assert OWN.keys() | NO_EQUAL.keys() <= rows.keys()
    for name, own in OWN.items():
        series, labels, how = rows[name]
        assert (own.name, dict(own.matchers)) == (series, dict(re.findall(r'(\w+)="(\w+)"', labels))), name
        assert FACTORS[how] == own.factor, name


def test_a_field_has_an_equal_series_or_a_reason() -> None:
    assert not OWN.keys() & NO_EQUAL.keys()
    assert {family.name for family in DEFAULT["4.8"]} <= OWN.keys() | NO_EQUAL.keys()


def test_the_page_has_the_table() -> None:
    assert dialect_table() in (ROOT / "docs/translate.md").read_text(encoding="utf-8"), "run make docs"
