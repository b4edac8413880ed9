"""The hub without one rule, one group of rules or one series: numbers become unknown, and never others.

The rules are put into the queries, so that one Prometheus with the series of nodes answers as one would that
has all rules but some.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from alerts.records import recording_groups
from alerts.windows import Windows
from exporter.fleet.json_data import fleet_json, inspection_json
from exporter.fleet.prometheus import Prometheus as Client
from exporter.fleet.prometheus import PrometheusError, Sample
from exporter.fleet.targets import CLOCK, MissingSeriesError
from exporter.fleet.watch import inspect, read_fleet
from tests.fleet.weaker import Recorded, changes
from tests.together.end_to_end.programs import Prometheus, demo, prometheus, until

pytestmark = pytest.mark.slow

SCENARIOS = ("t4-timeslicing", "a100-mig-mixed", "sick-gpus", "mgpu", "h100-exclusive", "hami-vendors")
# Polls are rare, so that nothing changes between two queries.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
GROUPS = recording_groups(Windows(interval="1m", slow_interval="4m", idle_after="1s"))
RECORDS = {rule.name: rule.expr for group in GROUPS for rule in group.rules}
RECORD = re.compile(r"(\w+:gpuslice_\w+:\w+)(\{[^}]*\})?(?:\[(\w+)\])?")
SERIES = re.compile(r"(?<![:\w])(gpuslice_\w+)(?:\{([^}]*)\})?")
NOTHING = "gpuslice_nothing"


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """What is missing: rules, and series, all of them or those that a matcher does not match."""

    records: frozenset[str] = frozenset()
    series: Mapping[str, str] = field(default_factory=dict)  # matcher of those that are left, by name

    def query(self, expression: str) -> str:
        """Return a query with the rules in it."""

        def record(found: re.Match[str]) -> str:
            name, _, window = found.groups()
            inner = NOTHING if name in self.records else RECORD.sub(record, RECORDS[name])
            return f"({inner})[{window}:30s]" if window else f"({inner})"

        def series(found: re.Match[str]) -> str:
            name, matchers = found.groups()
            more = self.series.get(name)
            if more == "":
                return NOTHING
            return f"{name}{{{','.join(filter(None, (matchers, more)))}}}"

        return SERIES.sub(series, RECORD.sub(record, expression))


@dataclass
class Ruled:
    """The Prometheus with rules at one time, of which some are missing; keeps all answers."""

    client: Client
    hidden: Hidden
    at: float
    answers: dict[str, list[Sample]] = field(default_factory=dict)

    async def query(self, expression: str, _at: float | None = None) -> list[Sample]:
        """Return the answer to a query on records."""
        if expression == CLOCK:
            self.answers[expression] = [Sample({}, self.at)]
        else:
            self.answers[expression] = await self.client.query(self.hidden.query(expression), self.at)
        return self.answers[expression]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape nodes of several kinds, and go on without them."""
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        urls = list(at_once.map(running.enter_context, [demo(name, *ONCE) for name in SCENARIOS]))
        jobs = {name: f"{url}/metrics" for name, url in zip(SCENARIOS, urls, strict=True)}
        there = running.enter_context(prometheus(tmp_path_factory.mktemp("tsdb"), jobs))
        scraped = "count_over_time(gpuslice_snapshot_timestamp_seconds[1m]) >= 3"
        until(lambda: len(there.query(scraped)) == len(jobs), "each node was scraped three times")
        there.at = min(there.query("timestamp(gpuslice_snapshot_timestamp_seconds)").values())
        yield there


Read = Callable[[Any], Any]


async def fleet(prometheus: Any) -> dict[str, Any]:
    """Return the cluster, as the API has it."""
    return fleet_json(await read_fleet(prometheus, 3600))


async def inspected(prometheus: Any) -> dict[str, Any]:
    """Return all nodes with their holders, as ``inspect`` prints them."""
    return inspection_json(await inspect(prometheus, (), details=True, idle_after=600), details=True)


def asked(server: Prometheus, read: Read, hidden: Hidden) -> tuple[Any, dict[str, list[Sample]]]:
    """Return what is read without what is hidden, None for an error, and the answers to all queries."""

    async def ask() -> tuple[Any, dict[str, list[Sample]]]:
        client = Client(server.url, deadline=60)
        ruled = Ruled(client, hidden, server.at or 0.0)
        try:
            return await read(ruled), ruled.answers
        except (PrometheusError, MissingSeriesError):
            return None, ruled.answers
        finally:
            await client.close()

    return asyncio.run(ask())


READS = [fleet, inspected]
each_read = pytest.mark.parametrize("read", READS, ids=["hub", "inspect"])


@pytest.fixture(scope="module")
def whole(server: Prometheus) -> dict[Read, tuple[Any, dict[str, list[Sample]]]]:
    """Return what is read if nothing is hidden."""
    return {read: asked(server, read, Hidden()) for read in READS}


@each_read
def test_without_a_rule_or_a_group_numbers_are_unknown(server, whole, read) -> None:
    document, _ = whole[read]
    assert document["problems"] == []
    named = [frozenset({name}) for name in RECORDS] + [frozenset(r.name for r in g.rules) for g in GROUPS]
    bad = [
        (sorted(records), change)
        for records in named
        for change in changes(document, asked(server, read, Hidden(records=records))[0])
    ]
    assert not bad, "\n".join(map(str, bad))


@each_read
def test_without_a_series_numbers_are_unknown(server, whole, read) -> None:
    """Without all of a name, and without those of one node, GPU or pod."""
    document, answers = whole[read]
    names = {name for text in answers for name, _ in SERIES.findall(Hidden().query(text))} - {NOTHING}
    assert len(names) > 20
    bad = []
    for name in sorted(names):
        found = server.api("query", query=name, time=str(server.at))["result"]
        for label in ("node", "uuid", "pod"):
            values = sorted({each["metric"][label] for each in found if label in each["metric"]})
            for value in values[:: max(len(values) // 3, 1)]:
                hidden = Hidden(series={name: f'{label}!="{value}"'})
                bad += [(name, label, value, c) for c in changes(document, asked(server, read, hidden)[0])]
        bad += [(name, c) for c in changes(document, asked(server, read, Hidden(series={name: ""}))[0])]
    assert not bad, "\n".join(map(str, bad))


@each_read
def test_without_a_row_of_an_answer_numbers_are_unknown(whole, read) -> None:
    document, answers = whole[read]
    recorded = Recorded(answers)
    bad = []
    for expression, samples in answers.items():
        if RECORD.search(expression):
            for place in (None, *range(len(samples))):
                left = recorded.without(expression, place)
                try:
                    after = asyncio.run(read(left))
                except (PrometheusError, MissingSeriesError):
                    continue
                bad += [
                    (expression, samples[place] if place is not None else "", c)
                    for c in changes(document, after)
                ]
    assert not bad, "\n".join(map(str, bad))
