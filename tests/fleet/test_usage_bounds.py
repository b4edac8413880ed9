"""Usage: what is known in part is a lower bound, and is never taken for the whole."""

import asyncio
import csv
import io
import json
import re
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.usage_records import usage_groups
from exporter.fleet.prometheus import PrometheusError, Response, Sample, read_vector
from exporter.fleet.queries import ask_whole
from exporter.fleet.usage.documents import usage_json
from exporter.fleet.usage.focus import focus_days
from exporter.fleet.usage.model import Group, Kind, Quantities, Usage, balance_of
from exporter.fleet.usage.period import DAY, HOUR, Period, last_recorded_hour
from exporter.fleet.usage.prices import Price, Prices
from exporter.fleet.usage.reading import read_usage
from exporter.fleet.usage.servers import Servers, read_servers
from exporter.fleet.usage.text import usage_text
from exporter.wording import UNKNOWN
from tests.fleet.answering import AT, Answer, Samples, connected

START = 1_760_000_400.0 // DAY * DAY
L4 = Kind("L4", "")


def found(*groups: Group, only: tuple[str, ...] = ()) -> Usage:
    """Return the usage of groups that held two GPU-hours of two."""
    period = Period(START, START + 2 * HOUR, "a test")
    balance = balance_of(
        start=period.start, end=period.end, gpus=1, allocation={"held": 7200.0}, use={"holders": 7200.0}
    )
    return Usage(
        at=period.end, period=period, by="namespace", gpus=1, balance=balance, days=(balance,), groups=groups,
        only=only,
    )  # fmt: skip


def table(*groups: Group, only: tuple[str, ...] = ()) -> str:
    """Return the table of such groups."""
    return usage_text(found(*groups, only=only))


def cells(text: str, name: str) -> list[str]:
    """Return the cells of a group."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return re.split(" {2,}", line)[1:]


def test_an_hour_counts_when_both_groups_of_rules_have_recorded_it() -> None:
    minutes = {
        group.name: int(group.interval.removesuffix("m")) for group in usage_groups() if "m" in group.interval
    }

    margin = 60 * sum(minutes[f"gpuslice-usage-{name}"] for name in ("hours", "groups"))
    assert last_recorded_hour(START + margin - 1) == START - HOUR
    assert last_recorded_hour(START + margin) == START


def test_a_sum_with_an_unknown_part_is_a_lower_bound_however_small_the_part() -> None:
    whole = Quantities(held=7200.0, measured=7200.0, used=3600.0, joules=3.6e9)
    small = Quantities(held=1.0)

    text = table(Group(name="big", kinds={L4: whole}), Group(name="small", kinds={L4: small}))

    assert cells(text, "big") == ["2.00", "1.00", "50 %", "1,000"]
    assert cells(text, "small") == ["0.00", UNKNOWN, UNKNOWN, UNKNOWN]
    assert cells(text, "total") == ["2.00", "≥ 1.00", "50 %", "≥ 1,000"]


def test_a_device_with_an_unknown_share_makes_what_is_held_a_lower_bound() -> None:
    known = Quantities(held=3600.0, measured=3600.0, used=1800.0, unshared=60.0)

    text = table(
        Group(name="ml", kinds={L4: known}),
        Group(name="lab", kinds={L4: Quantities(unshared=3600.0)}),
    )

    assert cells(text, "ml")[:2] == ["≥ 1.00", "≥ 0.50"]
    assert cells(text, "lab")[:2] == [UNKNOWN, UNKNOWN]


def test_json_has_the_hours_of_unknown_shares() -> None:
    parts = {L4: Quantities(held=3600.0, unshared=7200.0)}

    (group,) = usage_json(found(Group(name="ml", kinds=parts)))["groups"]
    assert (group["held_gpu_hours"], group["unknown_share_hours"]) == (1.0, 2.0)
    assert group["devices"][0]["unknown_share_hours"] == 2.0


def test_used_of_held_compares_holders_with_a_known_share_only() -> None:
    parts = Quantities(held=7200.0, measured=3600.0, used=1800.0 + 5400.0, uncompared=5400.0)

    assert parts.used_of_held == 0.5


@given(st.floats(0, 1), st.floats(0, 1))
def test_use_without_a_record_is_not_measured(recorded: float, held: float) -> None:
    balance = balance_of(
        start=0,
        end=DAY,
        gpus=1,
        allocation={"held": held * DAY, "free": (1 - held) * DAY},
        use={"holders": recorded * DAY / 2, "idle_free": recorded * DAY / 2},
    )

    if balance.use:
        assert balance.use["holders"] <= recorded * DAY / 2 + 1e-6
        assert balance.use["unmeasured"] == pytest.approx((1 - recorded) * DAY, abs=1e-3)
        assert sum(balance.use.values()) == pytest.approx(sum(balance.allocation.values()))


def of_server(warnings: list[str]) -> list[Sample]:
    """Return an answer with warnings."""
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}]}
    document = {"status": "success", "data": data, "warnings": warnings}
    return read_vector(Response(200, json.dumps(document).encode()))


class Warner:
    """A Prometheus whose answers have a warning."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def query(self, _expression: str, _at: float | None = None) -> list[Sample]:
        return of_server([self.text])


@pytest.mark.parametrize(
    ("warning", "failed"),
    [
        ("receive series from Addr: store-2: connection refused", True),
        ("PromQL info: metric might not be a counter", False),
    ],
)
def test_an_answer_without_the_data_of_a_store_is_not_an_answer(warning: str, failed: bool) -> None:
    answers = asyncio.run(ask_whole(Warner(warning), {"a": "1"}, AT))  # type: ignore[arg-type]

    assert bool(answers.problems) is failed
    assert bool(answers.samples("a")) is not failed
    if failed:
        assert "store-2" in answers.problems["a"]


def test_warnings_cost_the_balances() -> None:
    with pytest.raises(PrometheusError, match="not complete: no store"):
        asyncio.run(
            read_usage(Warner("no store"), START + DAY, Period(START, START + HOUR, ""), "node")  # type: ignore[arg-type]
        )


def test_namespaces_of_a_hub_are_found_in_each_of_several_clusters() -> None:
    kinds = {L4: Quantities(held=3600.0)}
    text = table(
        Group(name="west/ml", kinds=kinds, namespace="ml"),
        Group(name="east/ml", kinds=kinds, namespace="ml"),
        Group(name="east/lab", kinds=kinds, namespace="lab"),
        only=("ml",),
    )

    assert "west/ml" in text
    assert "east/ml" in text
    assert "lab" not in text


HOLDER = {"cluster": "", "namespace": "ml", "container": "main", "node": "n1", "gpu": "0", "uuid": "GPU-1"}
Holder = Mapping[str, float]


def billed(
    holders: Mapping[str, Holder], by: str, model: str = "L4"
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the rows of a day for pods with such values, and what the bill lacks."""

    def answer(expression: str) -> Samples | str:
        value = next((value for value in VALUES if f'value="{value}"' in expression), "")
        return [
            ({**HOLDER, "pod": pod, "model": model}, values[value])
            for pod, values in holders.items()
            if value in values
        ]

    prices = Prices(currency="EUR", account="lab", by=by, prices=(Price(model="L4", price=2.0),))  # type: ignore[arg-type]

    async def read(answer: Answer) -> list[tuple[str, str]]:
        async with connected(answer) as server:
            period = Period(START, START + DAY, "")
            return [day async for day in focus_days(server, START + 2 * DAY, period, prices)]

    days = asyncio.run(read(answer))
    rows = list(csv.DictReader(io.StringIO("".join(text for text, _ in days))))
    return rows, [lacks for _, lacks in days if lacks]


VALUES = ("held", "used", "measured", "unshared")


def test_a_bill_by_use_has_all_use_and_names_what_it_knows_in_part() -> None:
    rows, lacks = billed(
        {
            "whole": {"held": 7200.0, "measured": 7200.0, "used": 3600.0},
            "guest": {"used": 1800.0},
            "part": {"held": 7200.0, "measured": 3600.0, "used": 900.0},
            "unknown": {"held": 7200.0},
            "unshared": {"unshared": 60.0},
        },
        "used",
    )

    assert {row["x_Pod"]: Decimal(row["ConsumedQuantity"]) for row in rows} == {
        "whole": 1,
        "guest": Decimal("0.5"),
        "part": Decimal("0.25"),
    }
    (lack,) = lacks
    assert lack.endswith("Z: the use of 2 holders, a part of the use of 1 holder")


def test_a_bill_names_holders_with_an_unknown_share() -> None:
    part = {"held": 1800.0, "unshared": 1800.0}
    rows, lacks = billed({"a": {"held": 3600.0}, "b": {"unshared": 3600.0}, "c": part}, "held")

    assert [row["x_Pod"] for row in rows] == ["a", "c"]
    assert [lack.partition(": ")[2] for lack in lacks] == [
        "the share of 1 holder, a part of the share of 1 holder"
    ]


def test_a_device_without_a_price_is_not_billed_with_0() -> None:
    rows, lacks = billed({"a": {"held": 3600.0}}, "held", model="T4")

    assert rows == []
    assert [lack.partition(": ")[2] for lack in lacks] == ["the price of 1 holder"]


@pytest.mark.parametrize(
    ("row", "model", "profile", "fits"),
    [
        ("Aldebaran [Instinct MI210]", "Aldebaran [Instinct MI210]", "", True),
        ("A[1]", "A1", "", False),
        ("A?", "AB", "", False),
        ("*", "", "", True),
        ("A*B*", "AxByz", "", True),
        ("A100", "A100 80GB", "", False),
    ],
)
def test_a_star_is_the_only_wildcard_of_a_price(row: str, model: str, profile: str, fits: bool) -> None:
    prices = Prices(currency="EUR", prices=(Price(model=row, price=1.0),))

    assert (prices.of(Kind(model, profile)) is not None) is fits


def test_the_price_of_mig_devices_is_not_one_of_whole_gpus() -> None:
    prices = Prices(currency="EUR", prices=(Price(model="*", profile="*", price=4.0),))

    assert prices.of(Kind("H100", "1g.10gb+me")) == 4
    assert prices.of(Kind("H100", "")) is None


def test_prices_are_printed_with_all_their_decimals() -> None:
    rows = (Price(model="a", price=0.0005), Price(model="b", price=3.1), Price(model="c", price=2.125))

    assert (
        Prices(currency="EUR", prices=rows).words == "EUR per GPU-hour held: 0.0005 (a), 3.10 (b), 2.125 (c)"
    )


NODES = st.integers(2, 6)


@given(NODES, st.booleans(), st.booleans())
def test_replicas_and_shards_are_told_apart_by_nodes(nodes: int, sharded: bool, replicated: bool) -> None:
    samples = [
        Sample(
            {"cluster": "west", "node": f"n{node}", "region": "eu", "replica": replica}
            | ({"shard": str(node % 2)} if sharded else {}),
            1.0,
        )
        for node in range(nodes)
        for replica in ("ab" if replicated else "a")
    ]

    assert read_servers(samples) == Servers(("replica",) if replicated else (), ("shard",) if sharded else ())
