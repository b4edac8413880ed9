"""What a look at the whole cluster costs Prometheus and the hub: ``python -m benchmarks.fleet.looks``.

One node of the real program is scraped, and the shipped rules are evaluated on it. What the hub asks of that
node is copied under other names for as many nodes as wanted, and written to a real Prometheus: so only the
series that are asked are there. 10 000 whole pages do not fit a machine.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.fleet.nodes import Fleet, frame, recorded, scraped
from benchmarks.markdown import MIB, table
from benchmarks.processes import ROOT, Process, free_port, started
from benchmarks.prometheus import cost_of, stored
from exporter.fleet import namespaces, nodes, sick_and_idle, targets
from exporter.fleet.prometheus import Prometheus as Client
from exporter.fleet.watch import read_fleet

SIZES = (1000, 10_000)
"""Numbers of nodes."""

_NODE, _KIND = "000000", "crowd-16"
_NAME = re.compile(r"(?<![\w:])(?:\w+:)?gpuslice_\w+(?::\w+)?|\bup\b")
_TEAMS, _LISTED = 20, 10
# Samples have to be less than 5 minutes apart; those of the future are for the time of the measure.
_BEFORE, _AFTER, _STEP, _SCRAPE = 1200, 600, 240, 15
_DAY = 86400


class Row(NamedTuple):
    """A series of the node that is copied."""

    name: str
    labels: Mapping[str, str]
    value: float


class Look(NamedTuple):
    """Seconds of CPU that looks cost Prometheus, of time that they take, and bytes of the hub."""

    nodes: int
    cpu: float
    wall: float
    hub: int


def asked() -> dict[str, str]:
    """Return the queries of a look."""
    return (
        dict(targets.QUESTIONS)
        | nodes.QUESTIONS
        | namespaces.namespace_questions(_DAY)
        | sick_and_idle.QUESTIONS
        | sick_and_idle.DETAILS
    )


def copied(wanted: Iterable[str]) -> list[Row]:
    """Return the series that the wanted queries ask, of one node with 8 GPUs and 16 holders."""
    names = sorted({name for query in wanted for name in _NAME.findall(query)})
    with scraped(Fleet([frame(page) for page in recorded(_KIND, 3)], 1, 1.0)) as server:
        rules = (ROOT / "alerts/rules/gpuslice-recording.yaml").read_text("utf-8")
        quick = re.sub(r"^(  interval: )\S+$", r"\g<1>1s", rules, flags=re.MULTILINE)
        (server.folder / "recording.yaml").write_text(quick, "utf-8")
        server.reload()
        last = "namespace:gpuslice_used_gpu_seconds:increase1h"
        server.wait_until(lambda: bool(server.query(last)), "the rules are evaluated")
        time.sleep(5)  # Records stand on records.
        found = [row for name in names for row in server.query(f'{{__name__="{name}"}}')]
    return [
        Row(labels.pop("__name__"), labels, float(row["value"][1]))
        for row in found
        if (labels := dict(row["metric"]))
    ]


def _lines(rows: Sequence[Row], count: int, times: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield the samples of ``count`` nodes at the ``times`` of their series.

    GPUs and holders are those of few nodes: these are asked by their name only.
    """
    for row in rows:
        of_node = _NODE in "".join(row.labels.values())
        few = row.name.startswith(("container:", "gpu:", "gpuslice_container_", "gpuslice_gpu_"))
        copies = (min(count, _LISTED) if few else count) if of_node else _TEAMS
        labels = ",".join(f'{name}="{value}"' for name, value in row.labels.items())
        for copy in range(copies):
            mine = labels.replace(_NODE, f"{copy:06d}") if of_node else labels
            mine = re.sub(r'(namespace="[^"]*-)0"', rf'\g<1>{copy % _TEAMS}"', mine)
            for at in times.get(row.name, times[""]):
                value = at if row.name == targets.SNAPSHOT else row.value
                yield f"{row.name}{{{mine}}} {value:.17g} {at}"


def measured(rows: Sequence[Row], count: int) -> Look:
    """Measure looks at ``count`` nodes with these series, and the hub that shows them."""
    now = int(time.time())
    start, end = now - _BEFORE, now + _AFTER
    info, snapshot = targets.NODE_INFO, targets.SNAPSHOT
    recent = dict.fromkeys((info, snapshot), range(start, end, _SCRAPE)) | {"": range(start, end, _STEP)}
    # GPU-hours are added up over a day.
    hours = [row for row in rows if "gpu_seconds:increase1h" in row.name]
    past = {"": range(now - _DAY, start, _STEP)}
    with stored([_lines(rows, count, recent), _lines(hours, count, past)]) as server:
        cpu, wall = cost_of(partial(_look, count), server)
        return Look(count, cpu, wall, _hub_memory(server.process.port))


async def _look(count: int, url: str) -> None:
    client = Client(url, deadline=60.0)
    fleet = await read_fleet(client, _DAY)
    await client.close()
    answering = len(fleet.nodes) - len(fleet.silent)
    if fleet.problems or answering != count or any(node.compute.held.missing for node in fleet.nodes):
        raise RuntimeError(f"{answering} nodes answer, problems: {fleet.problems}")


def _hub_memory(prometheus: int) -> int:
    """Return the resident bytes of a hub after three reads, of which the page and the JSON were opened."""
    port = free_port()
    options = (
        "--prometheus-url",
        f"http://127.0.0.1:{prometheus}",
        "--listen",
        f"127.0.0.1:{port}",
        "--refresh",
        "2s",
    )
    with started([sys.executable, "-m", "exporter", "hub", *options], port=port) as hub:
        for read in range(1, 4):
            _wait_for_read(hub, read)
            hub.get("fleet", {"Accept": "text/html"})
            hub.get("api/v1/fleet")
        return hub.memory().resident


def _wait_for_read(hub: Process, number: int) -> None:
    hub.wait_for("gpuslice_hub_reads_total")
    while f"gpuslice_hub_reads_total {number - 1}.0" in (text := hub.get()[1].decode()):
        time.sleep(0.2)
    if "gpuslice_hub_up 1.0" not in text:
        raise RuntimeError("the hub could not read the cluster")


def main() -> None:
    """Measure and print the table."""
    rows = copied(asked().values())
    looks = [
        (look.nodes, f"{look.cpu:.2f} s", f"{look.wall:.2f} s", f"{look.hub / MIB:.0f} MiB")
        for look in (measured(rows, count) for count in SIZES)
    ]
    columns = ("nodes", "CPU of Prometheus", "time", "memory of the hub")
    print(table(columns, looks))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
