"""Usage: its time, its sums, its prices, and answers that are missing."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config.parse import SettingsError
from exporter.fleet.amounts import Amount
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.usage.documents import usage_csv, usage_json
from exporter.fleet.usage.grouping import parse_by
from exporter.fleet.usage.model import Group, Kind, Quantities, Usage, balance_of
from exporter.fleet.usage.period import (
    DAY,
    HOUR,
    Period,
    last_recorded_hour,
    parse_month,
    parse_since,
    period_of_month,
    period_since,
)
from exporter.fleet.usage.prices import Prices, cost_of, read_prices
from exporter.fleet.usage.queries import Piece, merged
from exporter.fleet.usage.reading import read_usage
from exporter.fleet.usage.text import rounded, usage_text
from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES
from exporter.wording import UNKNOWN
from tests.fleet.answering import Answer, Samples, connected

MIDNIGHT = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
PERIOD = Period(MIDNIGHT, MIDNIGHT + 2 * HOUR, "a test")
SECONDS = st.floats(0, 1e7)


@given(st.integers(1, 400 * 24), st.floats(1e9, 2e9))
def test_a_period_is_full_hours_that_are_recorded(hours: int, at: float) -> None:
    period = period_since(parse_since(f"{hours}h"), at)

    assert period.end % HOUR == period.start % HOUR == 0
    assert hours <= period.hours < hours + 24
    assert period.hours == hours if hours % 24 else period.start % DAY == 0
    assert at - period.end > HOUR / 4
    days = list(period.days())
    assert sum(end - start for start, end in days) == period.end - period.start
    assert all(start // DAY == (end - 1) // DAY for start, end in days)


@pytest.mark.parametrize(("month", "days"), [("2026-02", 28), ("2028-02", 29), ("2026-12", 31)])
def test_a_month_is_one_of_utc(month: str, days: int) -> None:
    period = period_of_month(parse_month(month), 2e9)

    assert (period.hours, period.start % DAY) == (24 * days, 0)


def test_the_current_month_ends_with_the_last_recorded_hour() -> None:
    at = MIDNIGHT + 5 * DAY + 1800

    assert period_of_month((2026, 10), at) == Period(
        MIDNIGHT, last_recorded_hour(at), "October 2026 up to 2026-10-06 00:00"
    )
    with pytest.raises(SettingsError, match="--month: November 2026 has no full hour yet"):
        period_of_month((2026, 11), at)


@pytest.mark.parametrize("text", ["2026-13", "2026-1", "10-2026", "0000-01", ""])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="2026-10"):
        parse_month(text)


@pytest.mark.parametrize("text", ["30", "0h", "401d", "99999d", "1.5d", "-1d", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="30d"):
        parse_since(text)


@pytest.mark.parametrize("text", ["team", "label:", 'label:a"b', "pod", ""])
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label:team"):
        parse_by(text)


def test_adjacent_pieces_are_read_together() -> None:
    pieces = [Piece("hours", 2 * DAY, 5), Piece("days", 3 * DAY, 1), Piece("days", 4 * DAY, 1)]
    apart = Piece("days", 6 * DAY, 1)

    assert merged([*pieces, apart]) == [pieces[0], Piece("days", 4 * DAY, 2), apart]


@given(st.lists(SECONDS, min_size=1, max_size=8), st.integers(0, 2))
def test_rounded_parts_add_up(values: Sequence[float], digits: int) -> None:
    parts = rounded({str(number): value for number, value in enumerate(values)}, digits)

    whole = sum(map(Decimal, values), Decimal()).quantize(Decimal(1).scaleb(-digits))
    assert sum(parts.values()) == whole
    for part, value in zip(parts.values(), values, strict=True):
        assert abs(part - Decimal(value)) < Decimal(1).scaleb(-digits)


CLASSES = st.fixed_dictionaries(dict.fromkeys(ALLOCATION_CLASSES, SECONDS))
USES = st.fixed_dictionaries(dict.fromkeys(USE_CLASSES, SECONDS))


@given(CLASSES, USES, st.integers(0, 200))
def test_balances_close_whatever_was_counted(
    allocation: dict[str, float], use: dict[str, float], gpus: int
) -> None:
    balance = balance_of(start=0, end=DAY, gpus=gpus, allocation=allocation, use=use)

    assert balance.not_observed >= 0
    for classes in (balance.allocation, balance.use):
        if classes:
            assert sum(classes.values()) + balance.not_observed == pytest.approx(gpus * DAY, abs=1e-6)


def usage(*groups: Group, held: float, overcommitted: float = 0.0, gpus: int = 4) -> Usage:
    """Return the usage of two hours."""
    length = PERIOD.end - PERIOD.start
    rest = gpus * length - held
    balance = balance_of(
        start=PERIOD.start,
        end=PERIOD.end,
        gpus=gpus,
        allocation={"held": held, "free": rest},
        use={"holders": held, "idle_free": rest},
        overcommitted=overcommitted,
    )
    return Usage(
        at=PERIOD.end,
        period=PERIOD,
        by="namespace",
        gpus=gpus,
        balance=balance,
        days=(balance,),
        groups=groups,
    )


def group(name: str, held: float | None, **values: float) -> Group:
    """Return a group with GPUs of one model."""
    return Group(name=name, kinds={Kind("L4", ""): Quantities(held=held, **values)})


@given(st.lists(st.floats(0, 5000), max_size=4), st.floats(0, 8 * HOUR), st.floats(0, 1000))
def test_the_lines_beside_the_groups_close_the_sum(held: list[float], whole: float, beyond: float) -> None:
    found = usage(*(group(str(n), value) for n, value in enumerate(held)), held=whole, overcommitted=beyond)

    assert found.held is not None
    assert found.unseen is not None
    assert found.overcommitted is not None
    assert found.unseen >= -1e-6
    assert found.overcommitted >= 0
    assert found.held + found.overcommitted == pytest.approx(found.unseen + sum(held), abs=1e-6)


def test_unknown_is_a_dash_and_never_0() -> None:
    found = usage(group("ml", 3600, measured=0.0), group("lab", 1800, measured=1800, used=0.0), held=6000)

    text = usage_text(found)
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert lines["ml"] == ["1.00", UNKNOWN, UNKNOWN, UNKNOWN]
    assert lines["lab"] == ["0.50", "0.00", "0", "%", UNKNOWN]
    assert "COST" not in text
    document = usage_json(found)
    assert [each["used_gpu_hours"] for each in document["groups"]] == [None, 0.0]
    assert usage_csv(found).splitlines()[1].split(",")[6:] == ["1.0", "0.0", "", ""]


def test_use_that_was_measured_in_part_is_a_lower_bound() -> None:
    found = usage(group("ml", 7200, measured=3600, used=1800), held=7200)

    (line,) = [line for line in usage_text(found).splitlines() if line.startswith("ml")]
    assert line.split() == ["ml", "2.00", "≥", "0.50", "50", "%", UNKNOWN]


PRICES = """
currency: EUR
prices:
  - {model: NVIDIA H100*, price: 3.10}
  - {model: NVIDIA H100*, profile: 1g.*, price: 4}
  - {model: NVIDIA L4, price: 0}
"""


def prices(folder: Path, text: str) -> Prices:
    """Return the prices in a file of this text."""
    path = folder / "prices.yaml"
    path.write_text(text)
    return read_prices(path)


def test_prices_are_by_model_and_profile(tmp_path: Path) -> None:
    found = prices(tmp_path, PRICES)

    assert found.of(Kind("NVIDIA H100 80GB HBM3", "")) == 3.1
    assert found.of(Kind("NVIDIA H100 80GB HBM3", "1g.10gb")) == 4
    assert found.of(Kind("NVIDIA H100 80GB HBM3", "3g.40gb")) == 3.1
    assert found.of(Kind("NVIDIA L4", "")) == 0
    assert found.of(Kind("", "")) is None


def test_what_has_no_price_makes_a_cost_a_lower_bound(tmp_path: Path) -> None:
    parts = {Kind("NVIDIA H100", ""): Quantities(held=7200.0), Kind("T4", ""): Quantities(held=3600.0)}
    found = prices(tmp_path, PRICES)

    assert cost_of((Group(name="ml", kinds=parts),), found) == Amount(6.2, 1, 1)
    text = usage_text(usage(Group(name="ml", kinds=parts), held=10800), found)
    assert "COST EUR" in text
    assert "≥ 6.20" in text
    assert "! no price for T4: costs are lower bounds (≥)" in text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prices: [{model: a, price: 1}]", "currency.*: is missing"),
        ("{currency: euro, prices: [{model: a, price: 1}]}", "currency.*EUR"),
        ("{currency: EUR, prices: []}", "prices.*: has no row"),
        ("{currency: EUR, prices: [{model: a}]}", r"prices\[0\]\.price.*is missing"),
        ("{currency: EUR, prices: [{model: a, price: -1}]}", r"prices\[0\]\.price.*'-1' is not a number"),
        ("{currency: EUR, prices: [{modell: a, price: 1}]}", "did you mean model"),
        ("{currency: EUR, by: allocated, prices: [{model: a, price: 1}]}", "by.*held, used"),
        ("currency: [", "not valid YAML"),
    ],
)
def test_errors_of_prices_name_the_place(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=f"--prices: .*prices.yaml: .*{named}"):
        prices(tmp_path, text)


def test_a_file_of_prices_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--prices: cannot read .*none\.yaml: No such file"):
        read_prices(tmp_path / "none.yaml")


def answers(expression: str) -> Samples | str:
    """Return a balance and a GPU, and an error for groups."""
    if expression.startswith("count("):
        return [({}, 4.0)]
    if "usage_seconds" in expression:
        return [
            ({"value": "allocation", "class": "held"}, 7200.0),
            ({"value": "use", "class": "others"}, 7200.0),
        ]
    return "query processing would load too many samples"


def read(answer: Answer) -> Usage:
    """Return the usage that a server with these answers has."""

    async def reading() -> Usage:
        async with connected(answer) as prometheus:
            return await read_usage(prometheus, PERIOD.end + DAY, PERIOD, "namespace")

    return asyncio.run(reading())


def test_groups_that_cannot_be_read_are_unknown() -> None:
    found = read(answers)

    assert found.groups is None
    assert (found.unseen, found.overcommitted) == (None, None)
    text = usage_text(found)
    assert "! not known: usage by namespace, part 1: Prometheus refuses a query: query processing" in text
    assert (
        f"held by pods that no scrape saw {UNKNOWN} · shares beyond a GPU (overcommitted) {UNKNOWN}" in text
    )
    assert usage_json(found)["groups"] is None


def test_missing_records_of_groups_are_not_taken_for_pods_that_no_scrape_saw() -> None:
    """Rules of an earlier version, or without a group, have balances only."""
    found = read(lambda query: [] if "gpuslice_usage:" in query else answers(query))

    assert (found.groups, found.unseen) == (None, None)
    assert "its records are missing: load all groups" in usage_text(found)


def test_without_records_the_rules_are_named() -> None:
    with pytest.raises(MissingSeriesError, match=r"load alerts/rules/gpuslice-recording\.yaml"):
        read(lambda _: [])
    with pytest.raises(MissingSeriesError, match="known GPUs"):
        read(lambda query: [] if "observed_seconds" in query else answers(query))
