"""Usage of a simulated month in a real Prometheus is what really happened.

With ``PICTURES=docs/screenshots`` it also takes the pictures of the documentation.
"""

import asyncio
import csv
import io
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
from jsonschema import Draft202012Validator
from playwright.async_api import async_playwright

from exporter.fleet.usage.model import Usage
from exporter.fleet.usage.period import Period, period_of_month
from exporter.fleet.usage.reading import read_usage
from tests.core.commands.program import run as call
from tests.core.commands.program import serving
from tests.fleet.focus import broken_rules
from tests.fleet.month import (
    A100,
    ALWAYS,
    DAY,
    H100,
    HOUR,
    LENGTH,
    MINUTE,
    SCRAPE,
    START,
    WATTS,
    Gpu,
    Pod,
    Run,
    Time,
    World,
    served,
    served_by_victoria_metrics,
    shortened,
)
from tests.fleet.week import ask
from tests.page.browser.axe import faults
from tests.page.browser.site import NARROW, PHONE, WIDE, chromium, looking, overflow
from tests.product.compat.places import doubled
from tests.together.end_to_end.programs import Prometheus, get
from tests.tools import ROOT

pytestmark = pytest.mark.slow

FEBRUARY = (2025, 2)
AFTER = START + LENGTH + DAY
RECUT = 14 * DAY + 5 * HOUR
HALF = 12 * DAY
JOBS = 150
PICTURES = os.environ.get("PICTURES", "")


def _pods() -> Iterator[Pod]:
    whole = Time(0, LENGTH)
    yield Pod(name="train", time=Time(0, 20 * DAY), gpu="GPU-0", share=1.0, used=0.6, team="research")
    for number in range(JOBS):
        start = 20 * DAY + number * HOUR + 7 * MINUTE * (number % 8)
        time = Time(start, start + 12 * MINUTE)
        owner = ("Job", f"nightly-{29_000_000 + number}")
        name = f"nightly-{number}"
        yield Pod(name=name, time=time, gpu="GPU-0", share=0.5, used=0.1, team="batch", owner=owner)
    # Between two scrapes.
    for number in range(40):
        start = 27 * DAY + number * 20 * SCRAPE + 20
        time = Time(start, start + 2 * MINUTE)
        yield Pod(name=f"short-{number}", time=time, gpu="GPU-0", share=1.0, used=0.5, seen=False)
    yield Pod(
        name="mig-a",
        time=Time(DAY, RECUT),
        gpu="GPU-1",
        mig="MIG-a/3g.20gb",
        share=3 / 7,
        used=None,
        team="web",
    )
    yield Pod(
        name="mig-b", time=Time(RECUT, LENGTH), gpu="GPU-1", mig="MIG-b/2g.10gb", share=2 / 7, used=None
    )
    for name in "abc":
        time = Time(HALF, HALF + 2 * DAY) if name == "c" else whole
        yield Pod(name=f"shared-{name}", time=time, gpu="GPU-2", share=0.5, used=0.2, namespace="shared")
    yield Pod(
        name="memory", time=Time(2 * DAY, 25 * DAY), gpu="GPU-3", share=0.25, used=0.1, namespace="shared",
        by_memory=True, team="web", owner=("StatefulSet", "memory"),
    )  # fmt: skip


def _world() -> World:
    n1 = (
        Run(time=Time(0, 9 * DAY + 100), instance="10.0.0.1:9836"),
        # A restart, and a pod that is replaced after an hour and a half.
        Run(time=Time(9 * DAY + 160, 18 * DAY), instance="10.0.0.1:9836"),
        Run(time=Time(18 * DAY + 90 * MINUTE, LENGTH), instance="10.0.0.9:9836"),
    )
    lost = Time(5 * DAY, 8 * DAY + 3 * HOUR)
    return World(
        gpus=(
            Gpu(uuid="GPU-0", node="n1"),
            Gpu(
                uuid="GPU-1",
                node="n1",
                model=A100,
                cut=((Time(0, RECUT), 3 / 7), (Time(RECUT, LENGTH), 2 / 7 * 2)),
            ),
            Gpu(uuid="GPU-2", node="n2"),
            # Lost for three days, and removed before the end.
            Gpu(uuid="GPU-3", node="n2", down=(lost,), time=Time(0, 26 * DAY)),
        ),
        pods=tuple(_pods()),
        runs={"n1": n1, "n2": (Run(time=Time(0, LENGTH), instance="10.0.0.2:9836"),)},
        gaps=(
            Time(3 * DAY + 10 * MINUTE, 3 * DAY + 30 * MINUTE),
            Time(4 * DAY + 40 * MINUTE, 4 * DAY + 5 * HOUR),
        ),
    )


WORLD = _world()
SIZES = "usage of February 2025 (UTC): 4 known GPUs \u00d7 672 h = 2,688 GPU-hours = classes + "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Serve the month and its records."""
    with served(tmp_path_factory.mktemp("month") / "prometheus", WORLD) as running:
        yield running


def show(line: str) -> None:
    """Print a line; pytest shows it with -s."""
    sys.stdout.write(f"{line}\n")


def read(server: Prometheus, by: str = "namespace", at: float = AFTER, period: Period | None = None) -> Usage:
    """Return the usage of February."""
    wanted = period or period_of_month(FEBRUARY, at)
    return ask(server, lambda client: read_usage(client, at, wanted, by))


def truth_of_groups(name_of: Callable[[Pod], str], world: World = WORLD) -> dict[str, dict[str, float]]:
    """Return GPU-hours held and used that scrapes can have seen, and the tolerance, by a name."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    nodes = {gpu.uuid: gpu.node for gpu in world.gpus}
    for pod in world.pods:
        node, group = nodes[pod.gpu], sums[name_of(pod)]
        seconds = world.observed(node, pod.time) if pod.seen else 0.0
        group["held"] += pod.share * seconds / HOUR
        group["used"] += (pod.used or 0.0) * seconds / HOUR
        group["kwh"] += pod.share * WATTS * seconds / 3.6e6
        # Up to two scrapes of each pod, and one at each end of a run and of a gap.
        edges = 2 + 2 * len(world.gaps) + 2 * len(world.runs[node])
        group["tolerance"] += pod.share * SCRAPE * (edges if seconds > DAY else 2) / HOUR
    return sums


def truth_of_classes(which: int, period: Time = ALWAYS, world: World = WORLD) -> dict[str, float]:
    """Return the observed GPU-seconds of a balance by class."""
    sums: dict[str, float] = defaultdict(float)
    for gpu in world.gpus:
        for part, shares in world.parts(gpu, which):
            seconds = world.observed(gpu.node, part.part_of(period))
            for name, share in shares.items():
                sums[name] += share * seconds
    return sums


OF: dict[str, Callable[[Pod], str]] = {
    "namespace": lambda pod: pod.namespace,
    "label:team": lambda pod: pod.team if pod.seen else "",
    "node": lambda pod: "n2" if pod.gpu in ("GPU-2", "GPU-3") else "n1",
    "model": lambda pod: A100 if pod.gpu == "GPU-1" else H100,
    "owner": lambda pod: (
        "ml/nightly (CronJob)"
        if pod.owner and pod.owner[0] == "Job"
        else "shared/memory (StatefulSet)"
        if pod.owner
        else f"{pod.namespace} (no known owner)"
    ),
}


@pytest.mark.parametrize("by", OF)
def test_hours_of_groups_are_true_within_the_scrape_interval_of_each_pod(server: Prometheus, by: str) -> None:
    usage = read(server, by)

    _check_groups(usage, by)


def _check_groups(usage: Usage, by: str, world: World = WORLD) -> None:
    assert usage.problems == ()
    truth = truth_of_groups(OF[by], world)
    found = {group.name: group.total for group in usage.groups or ()}
    assert found.keys() == truth.keys()
    for name, expected in truth.items():
        held, tolerance = (found[name].held or 0.0) / HOUR, expected["tolerance"]
        show(f"{by} {name or '-'}: held {held:.3f} h, true {expected['held']:.3f} ± {tolerance:.3f}")
        assert held == pytest.approx(expected["held"], abs=tolerance)
        assert (found[name].used or 0.0) / HOUR == pytest.approx(expected["used"], abs=tolerance)
        assert found[name].kilowatt_hours == pytest.approx(expected["kwh"], abs=tolerance * WATTS / 1000)


def test_both_balances_are_true_and_close(server: Prometheus) -> None:
    _check_balances(read(server))


def _check_balances(usage: Usage, world: World = WORLD) -> None:
    balance = usage.balance
    assert usage.gpus == len(WORLD.gpus)
    assert balance.capacity == len(WORLD.gpus) * LENGTH
    for which, found in ((0, balance.allocation), (1, balance.use)):
        truth = truth_of_classes(which, world=world)
        for name, seconds in found.items():
            show(f"{name}: {seconds / HOUR:.3f} h, true {truth[name] / HOUR:.3f}")
            assert seconds == pytest.approx(truth[name], abs=20 * SCRAPE * len(WORLD.gpus)), name
        assert sum(found.values()) + balance.not_observed == pytest.approx(balance.capacity)
    lost = len(WORLD.gpus) * LENGTH - sum(world.observed(gpu.node, gpu.time) for gpu in WORLD.gpus)
    assert balance.not_observed == pytest.approx(lost, abs=20 * SCRAPE * len(WORLD.gpus))


def test_what_no_scrape_saw_and_what_is_beyond_a_gpu_have_lines_of_their_own(server: Prometheus) -> None:
    usage = read(server)

    assert usage.unseen is not None
    assert usage.overcommitted is not None
    unseen = sum(pod.share * pod.time.seconds for pod in WORLD.pods if not pod.seen)
    assert usage.unseen == pytest.approx(unseen, abs=0.5 * HOUR + JOBS * SCRAPE)
    assert usage.overcommitted == pytest.approx(DAY, abs=10 * MINUTE)
    assert (usage.held or 0) + usage.overcommitted == pytest.approx(usage.unseen + (usage.total.held or 0))


def test_days_and_hours_have_the_same_sum(server: Prometheus) -> None:
    """Shortly after a day its record is missing, and its hours are read."""
    period = Period(START + 6 * HOUR, START + 3 * DAY + 5 * HOUR, "")
    late = read(server, at=AFTER, period=period)
    soon = read(server, at=period.end + HOUR, period=period)

    assert late.balance.allocation == pytest.approx(soon.balance.allocation)
    assert late.total.held == pytest.approx(soon.total.held)
    truth = truth_of_classes(0, Time(period.start - START, period.end - START))
    for name, seconds in late.balance.allocation.items():
        assert seconds == pytest.approx(truth[name], abs=4 * SCRAPE * len(WORLD.gpus))


def test_rules_that_pause_lose_whole_hours_and_say_so(tmp_path: Path) -> None:
    """An hour is recorded in the hour after it; in a pause of six hours five have no evaluation."""
    world = shortened(WORLD, 4 * DAY)
    period, at = Period(START, START + 4 * DAY - HOUR, ""), START + 4 * DAY
    with served(tmp_path / "whole", world) as server:
        whole = read(server, at=at, period=period)
    short = Time(DAY + 3 * HOUR + 4 * MINUTE, DAY + 3 * HOUR + 44 * MINUTE)
    long = Time(2 * DAY + 10 * HOUR + 20 * MINUTE, 2 * DAY + 16 * HOUR + 20 * MINUTE)
    with served(tmp_path / "paused", world, paused=(short, long)) as server:
        paused = read(server, at=at, period=period)

    lost = 5 * HOUR * len(world.gpus)
    assert paused.balance.not_observed - whole.balance.not_observed == pytest.approx(lost)
    for balance in (paused.balance.allocation, paused.balance.use):
        assert sum(balance.values()) + paused.balance.not_observed == pytest.approx(paused.balance.capacity)
    assert (paused.total.held or 0) < (whole.total.held or 0)
    assert paused.unseen == pytest.approx(whole.unseen, abs=1)


@pytest.mark.tools
def test_victoria_metrics_has_the_same_hours(tmp_path: Path) -> None:
    """With the records that vmalert makes."""
    world = replace(WORLD, bridged=True)
    with served_by_victoria_metrics(tmp_path / "month", WORLD) as server:
        for by in OF:
            _check_groups(read(server, by), by, world)
        _check_balances(read(server), world)


def test_two_replicas_double_nothing(tmp_path: Path) -> None:
    """Neither of series nor of records."""
    world = shortened(WORLD, 3 * DAY)
    period = Period(START, START + 3 * DAY - HOUR, "")
    at = START + 3 * DAY
    with served(tmp_path / "one", world) as server:
        one = {by: read(server, by, at, period) for by in OF}
    with served(tmp_path / "two", world, doubled, ("a", "b")) as server:
        two = {by: read(server, by, at, period) for by in OF}

    for by in OF:
        assert two[by].gpus == one[by].gpus == 4
        assert two[by].balance.allocation == pytest.approx(one[by].balance.allocation)
        assert two[by].balance.use == pytest.approx(one[by].balance.use)
        held = [{group.name: group.total.held for group in usage[by].groups or ()} for usage in (one, two)]
        assert held[0] == pytest.approx(held[1])
        assert sum(value or 0 for value in held[0].values()) > 0
        assert two[by].overcommitted == pytest.approx(one[by].overcommitted, abs=1)


def test_the_command_prints_the_month(server: Prometheus, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices: [{model: NVIDIA H100*, price: 3.10}, {model: '*', price: 2}]\n")
    options = ("--month", "2025-02", "--by", "label:team", "--prices", str(prices))

    done = call("usage", *options, "--prometheus-url", server.url)

    show(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    first, allocation, use, _, headings, *rows = done.stdout.splitlines()
    assert first.startswith(SIZES)
    assert allocation.startswith("  held ")
    assert use.startswith("  used by holders ")
    assert " ".join(headings.split()) == "TEAM HELD GPU-H USED GPU-H USED OF HELD ENERGY kWh COST EUR"
    assert [row.split("  ")[0] for row in rows[:5]] == ["research", "web", "batch", "no label team", "total"]
    document = json.loads(call("usage", *options, "--format", "json", "--prometheus-url", server.url).stdout)
    costs = {group["name"]: group["cost"]["value"] for group in document["groups"]}
    held = {group["name"]: group["held_gpu_hours"] for group in document["groups"]}
    assert costs["research"] == pytest.approx(3.1 * held["research"])
    assert len(document["days"]) == LENGTH / DAY
    table = call("usage", *options, "--format", "csv", "--prometheus-url", server.url).stdout
    lines = list(csv.DictReader(io.StringIO(table)))
    assert sum(float(line["cost"]) for line in lines) == pytest.approx(sum(costs.values()))


ROWS = "[{model: NVIDIA H100*, price: 3.10}, {model: '*', price: 2.05}]"
BILL = f"currency: EUR\naccount: Research\nprices: {ROWS}\n"


def test_the_bill_follows_focus_and_has_the_cost_of_the_table(server: Prometheus, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(BILL)
    options = ("--month", "2025-02", "--prices", str(prices), "--prometheus-url", server.url)

    done = call("usage", "--format", "focus", *options)

    assert (done.returncode, done.stderr) == (0, "")
    reader = csv.DictReader(io.StringIO(done.stdout))
    rows = list(reader)
    assert broken_rules(list(reader.fieldnames or ()), rows) == set()
    document = json.loads(call("usage", "--format", "json", *options).stdout)
    for group in document["groups"]:
        billed = sum(float(row["BilledCost"]) for row in rows if row["SubAccountName"] == group["name"])
        assert billed == pytest.approx(group["cost"]["value"], rel=1e-6)
    (row,) = (
        row for row in rows if row["x_Pod"] == "train" and row["ChargePeriodStart"].startswith("2025-02-02")
    )
    assert (row["ResourceId"], row["ChargePeriodEnd"]) == ("GPU-0", "2025-02-03T00:00:00Z")
    assert json.loads(row["Tags"]) == {"team": "research"}
    assert {row["ResourceId"] for row in rows if row["x_Pod"] == "mig-a"} == {"MIG-a/3g.20gb"}
    assert {row["SkuId"] for row in rows if row["x_Pod"] == "mig-b"} == {f"{A100} 2g.10gb"}


def test_a_bill_by_use_leaves_out_what_was_not_measured_and_says_so(
    server: Prometheus, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"by: used\n{BILL}")
    options = ("--month", "2025-02", "--prices", str(prices), "--prometheus-url", server.url)

    done = call("usage", "--format", "focus", *options)

    assert done.returncode == 1
    assert "not known: 2025-02-02T00:00:00Z: the use of 1 holder: not in the bill\n" in done.stderr
    pods = {row["x_Pod"] for row in csv.DictReader(io.StringIO(done.stdout))}
    assert "train" in pods
    assert "mig-a" not in pods


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "--format focus needs --prices"),
        (BILL.replace("account: Research\n", ""), "needs an account"),
        (BILL.replace("'*'", "L4"), f"needs a price for {A100} 2g.10gb, {A100} 3g.20gb in the file"),
    ],
)
def test_a_bill_names_what_it_needs(server: Prometheus, tmp_path: Path, text: str | None, named: str) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(text or "")
    options = ("--month", "2025-02", "--prometheus-url", server.url)

    done = call("usage", "--format", "focus", *options, *(("--prices", str(prices)) if text else ()))

    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr


def test_the_hub_shows_the_month(server: Prometheus, tmp_path: Path) -> None:
    """On a page that is readable on phones and accessible by axe, as text, and in its API."""
    prices = tmp_path / "prices.yaml"
    prices.write_text(BILL)
    with serving("hub", "--prometheus-url", server.url, "--prices", str(prices)) as hub:
        query = "month=2025-02&by=label:team"
        headers, text = get(f"{hub.url}usage?{query}", {"Accept": "text/plain"})
        assert headers["Content-Type"].startswith("text/plain")
        assert text.decode().startswith(SIZES)
        document = json.loads(hub.get(f"api/v1/usage?{query}"))
        components = json.loads(hub.get("api/v1/openapi.json"))["components"]
        schema = {"$ref": "#/components/schemas/Usage", "components": components}
        Draft202012Validator(schema).validate(document)
        assert {group["name"] for group in document["groups"]} == {"research", "web", "batch", None}
        options = ("--month", "2025-02", "--prices", str(prices), "--prometheus-url", server.url)
        for form in ("csv", "focus"):
            command = call("usage", "--format", form, *options).stdout
            assert hub.get(f"api/v1/usage?month=2025-02&format={form}").split() == command.split()
        asyncio.run(_browse(f"{hub.url}usage?{query}"))


async def _browse(url: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for scheme, size in (("light", WIDE), ("dark", PHONE), ("light", NARROW)):
            async with looking(browser, url, viewport=size, color_scheme=scheme) as (page, _):
                await page.goto(url)
                assert await page.locator("svg.days g").count() == LENGTH / DAY
                teams = await page.locator("#groups tbody th").all_inner_texts()
                assert teams == ["research", "web", "batch", "no label team", "total"]
                assert await faults(page) == [], (scheme, size)
                assert await overflow(page) <= 0, (scheme, size)
        for scheme in ("light", "dark") if PICTURES else ():
            for size, suffix in ((WIDE, ""), ({"width": 390, "height": 800}, "-narrow")):
                async with looking(browser, url, viewport=size, color_scheme=scheme) as (page, _):
                    await page.goto(url)
                    await page.screenshot(
                        path=ROOT / PICTURES / f"usage-{scheme}{suffix}.png", full_page=True
                    )
        await browser.close()


def test_a_hub_of_some_namespaces_shows_the_usage_of_these_only(server: Prometheus, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(BILL)
    options = ("--prometheus-url", server.url, "--prices", str(prices), "--namespace", "ml")
    with serving("hub", *options) as hub:
        whole = read(server)
        document = json.loads(hub.get("api/v1/usage?month=2025-02"))
        assert [group["name"] for group in document["groups"]] == ["ml"]
        assert document["held_by_unseen_pods_gpu_hours"] == pytest.approx((whole.unseen or 0.0) / HOUR)
        assert "shared" not in hub.get("usage?month=2025-02")
        bill = csv.DictReader(io.StringIO(hub.get("api/v1/usage?month=2025-02&format=focus")))
        assert {row["SubAccountName"] for row in bill} == {"ml"}
        with pytest.raises(HTTPError, match="404"):
            hub.get("api/v1/usage?month=2025-02&by=owner")
