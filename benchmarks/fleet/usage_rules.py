"""What the recording rules of usage cost Prometheus: ``python -m benchmarks.fleet.usage_rules NODES...``.

A page of the real program on a fake node with 8 GPUs and 16 holders is stored for so many nodes, scraped
every 15 s. The rules of each group are evaluated on it, and their records stored for the next group.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from alerts.model import Group
from alerts.usage_records import usage_groups
from benchmarks.fleet.nodes import NODE, TEAM, frame, only, recorded
from benchmarks.markdown import table
from benchmarks.processes import free_port
from benchmarks.prometheus import Prometheus, create_blocks, prometheus

_KIND, _TEAMS, _SCRAPE = "crowd-16", 20, 15
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNIT = {"m": _MINUTE, "h": _HOUR}
_NAME = re.compile(r"(?<![:\w])gpuslice_\w+")


def _samples(nodes: int, start: int, end: int) -> Iterator[str]:
    """Yield what the rules read of so many nodes; counters grow."""
    names = frozenset(_NAME.findall("".join(rule.expr for group in usage_groups() for rule in group.rules)))
    text = frame(only(recorded(_KIND, 1)[0], names)).text
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    for node in range(nodes):
        for each in series:
            named = each.replace(NODE, f"{node:06d}").replace(TEAM, str(node % _TEAMS))
            named = named.replace("{", f'{{instance="{node}",job="gpuslice-exporter",', 1)
            slope = 0.4 if "_total{" in named else 0.0
            for at in range(start, end, _SCRAPE):
                yield f"{named} {1 + slope * (at - start):.1f} {at}"


def _records(server: Prometheus, group: Group, at: int) -> Iterator[tuple[str, str]]:
    """Evaluate the rules of a group at a Unix time; yield each record with its labels, and its value."""
    for rule in group.rules:
        for each in server.query(rule.expr, at):
            labels = ",".join(f"{name}={json.dumps(value)}" for name, value in each["metric"].items())
            yield f"{rule.name}{{{labels}}}", each["value"][1]


def measured(nodes: int) -> Iterator[tuple[Group, float, int]]:
    """Yield each group, the seconds of CPU of Prometheus for one evaluation, and the number of records."""
    midnight = int(time.time()) // _DAY * _DAY - _DAY
    # In the first evaluation of an hour, from which on the records of the day before are read.
    hour, at = midnight + 2 * _HOUR, midnight + 2 * _HOUR + 5 * _MINUTE
    with tempfile.TemporaryDirectory(prefix="usage-rules-") as name:
        folder = Path(name)
        create_blocks(_samples(nodes, hour - 2 * _HOUR, at), folder, "4h")
        for group in usage_groups():
            # A server finds blocks when it starts.
            with prometheus(folder, {"scrape_configs": []}, free_port(), "--log.level=error") as server:
                cpu = server.process.cpu()
                records = list(_records(server, group, at))
                yield group, server.process.cpu() - cpu, len(records)
            # As if all hours of the day had been the same.
            moments = range(midnight - _DAY, at + 1, 5 * _MINUTE)
            create_blocks(
                (f"{row} {value} {moment}" for row, value in records for moment in moments), folder, "36h"
            )


def main() -> None:
    """Measure and print the table."""
    rows = []
    for nodes in map(int, sys.argv[1:] or ["100"]):
        for group, cpu, records in measured(nodes):
            interval = int(group.interval[:-1]) * _UNIT[group.interval[-1]]
            share = f"{cpu / interval:.2%}"
            rows.append((nodes, group.name, group.interval, records, f"{cpu:.2f} s", share))
    print(table(("nodes", "group", "every", "records", "CPU of Prometheus", "of a core"), rows))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
