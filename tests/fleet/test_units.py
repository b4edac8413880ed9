"""Sums of what sharing systems give out, each resource on its own."""

from exporter.fleet.amounts import (
    FAILED_AMOUNT,
    UNKNOWN_SLICES,
    Amount,
    Units,
    named,
    shown_units,
    total_units,
    words,
)
from exporter.fleet.queries import Answers
from exporter.fleet.slices import SliceTables
from exporter.formats.wording import UNKNOWN
from exporter.prometheus import Sample

CORE = Units("tencent.com/vcuda-core", Amount(100, 1, 2), Amount(300, 3))
OTHER = Units("example.com/vcuda-core", Amount(1, 1), Amount(4, 1))
SLICES = Units("", Amount(3, 2), Amount(8, 2))


def test_each_resource_is_added_up_on_its_own() -> None:
    """A node of which nothing is known makes each sum a least one."""
    both = total_units([(CORE,), (CORE, OTHER)])
    silent = total_units([(CORE,), None])

    assert both == (OTHER, Units(CORE.resource, Amount(200, 2, 4), Amount(600, 6)))
    assert silent == (Units(CORE.resource, Amount(100, 1, 3), Amount(300, 3, 1)),)
    assert total_units([None]) is None
    assert total_units([()]) == ()


def test_units_that_could_not_be_asked_make_no_zero_of_slices() -> None:
    """Slices that are there are told, and others are not said to be none."""
    assert shown_units(SLICES, None) == (SLICES,)
    assert words(shown_units(Units("", Amount(), Amount()), None)) == f"{UNKNOWN} of {UNKNOWN}"
    assert words(shown_units(Units("", Amount(), Amount()), ())) == "0 of 0"
    assert words(shown_units(UNKNOWN_SLICES, ())) == f"{UNKNOWN} of {UNKNOWN}"


def test_names_are_as_long_as_they_must_be() -> None:
    """Two resources whose last parts are alike are told in full; slices have a name beside others."""
    assert words([SLICES]) == "3 of 8"
    assert words([SLICES, OTHER]) == "3 of 8 slices, 1 of 4 vcuda-core"
    assert [name for name, _ in named([CORE, OTHER])] == [CORE.resource, OTHER.resource]


def _tables(*refused: str) -> SliceTables:
    sample = [Sample({"uuid": "GPU-1"}, 2.0)]
    told = {f"{form} of slices {what}": sample for form in ("count", "sum") for what in ("offered", "held")}
    answers = {name: found for name, found in told.items() if name not in refused}
    return SliceTables(Answers(answers, dict.fromkeys(refused, "too much")), lambda each: each.labels["uuid"])


def test_gpus_of_which_nothing_is_told_make_both_sums_least_ones() -> None:
    """Nobody knows whether they offer something; without any other nothing is known."""
    tables = _tables()

    assert tables.slices("GPU-1", 1) == Units("", Amount(2.0, 2, 3), Amount(2.0, 2, 3))
    assert tables.slices("GPU-2", 1) == Units("", Amount(0.0, 0, 1), Amount(0.0, 0, 1))
    assert tables.units("GPU-1", 1) == ()


def test_a_sum_that_is_refused_costs_only_itself() -> None:
    """What is offered is told where what is held could not be asked."""
    told = _tables("sum of slices held").slices("GPU-1", 0)

    assert (told.held, told.offered.total) == (FAILED_AMOUNT, 2.0)
    assert _tables("count of units held").units("GPU-1", 0) is None
