"""What a look at the whole cluster costs Prometheus and the hub: ``python -m benchmarks.fleet.looks``.

One node of the real program is scraped, and the shipped rules are evaluated on it. What the hub asks of that
node is copied under other names for as many nodes as wanted, and written to a real Prometheus: so only the
series that are asked are there. 10 000 whole pages do not fit a machine.
"""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fleet.nodes import Fleet, scraped
from benchmarks.fleet.pages import frame, recorded
from benchmarks.markdown import table
from benchmarks.processes import ROOT, Process, free_port, started
from benchmarks.prometheus import Prometheus, create_blocks, prometheus
from exporter.fleet import attention, nodes, targets, tenants
from exporter.fleet.read import read_fleet
from exporter.prometheus import Prometheus as Client

SIZES = (1000, 10_000)
"""Numbers of nodes."""

_NODE, _KIND = "000000", "crowd-16"
_NAME = re.compile(r"(?<![\w:])(?:\w+:)?gpuslice_\w+(?::\w+)?|\bup\b")
_TEAMS, _LISTED = 20, 10
# Samples have to be less than 5 minutes apart; those of the future are for the time of the measure.
_BEFORE, _AFTER, _STEP, _SCRAPE = 1200, 600, 240, 15
_DAY = 86400
_LOOKS = 3


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
        | tenants.questions(_DAY)
        | attention.QUESTIONS
        | attention.DETAILS
    )


def copied(queries: Iterable[str]) -> list[Row]:
    """Return the series that queries ask, of one node with 8 GPUs and 16 holders."""
    names = sorted({name for query in queries for name in _NAME.findall(query)})
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


def _lines(rows: Sequence[Row], count: int, times: Mapping[str, Sequence[int]], whole: bool) -> Iterator[str]:
    """Yield the samples of ``count`` nodes at the ``times`` of their series.

    Unless ``whole``, GPUs and holders are those of few nodes: these are asked by their name only.
    """
    for row in rows:
        of_node = _NODE in "".join(row.labels.values())
        few = row.name.startswith(("container:", "gpu:", "gpuslice_container_", "gpuslice_gpu_"))
        copies = (min(count, _LISTED) if few and not whole else count) if of_node else _TEAMS
        labels = ",".join(f'{name}="{value}"' for name, value in row.labels.items())
        for copy in range(copies):
            if of_node:
                mine = labels.replace(_NODE, f"{copy:06d}")
                mine = re.sub(r'(namespace="[^"]*-)0"', rf'\g<1>{copy % _TEAMS}"', mine)
            else:
                mine = re.sub(r'(namespace="[^"]*-)0"', rf'\g<1>{copy}"', labels)
            for at in times.get(row.name, times[""]):
                value = at if row.name == targets.queries.SNAPSHOT else row.value
                yield f"{row.name}{{{mine}}} {value:.17g} {at}\n"


@contextmanager
def simulated(rows: Sequence[Row], count: int, *, whole: bool = False) -> Iterator[Prometheus]:
    """Run a Prometheus with these series of ``count`` nodes."""
    now = int(time.time())
    start, end = now - _BEFORE, now + _AFTER
    info, snapshot = targets.queries.NODE_INFO, targets.queries.SNAPSHOT
    recent = dict.fromkeys((info, snapshot), range(start, end, _SCRAPE)) | {"": range(start, end, _STEP)}
    # GPU-hours are added up over a day.
    past = {"": range(now - _DAY, start, _STEP)}
    hours = [row for row in rows if "gpu_seconds:increase1h" in row.name]
    with tempfile.TemporaryDirectory(prefix="looks-") as name:
        for part, times in ((rows, recent), (hours, past)):
            source = Path(name, "series")
            with source.open("w", encoding="utf-8") as file:
                file.writelines(_lines(part, count, times, whole))
                file.write("# EOF\n")
            create_blocks(source, Path(name, "data"))
            source.unlink()
        with prometheus(Path(name), {"scrape_configs": []}, free_port(), "--log.level=error") as server:
            yield server


def measured(rows: Sequence[Row], count: int) -> Look:
    """Measure looks at ``count`` nodes, and the hub that shows them."""
    with simulated(rows, count) as server:
        url = f"http://127.0.0.1:{server.process.port}"
        asyncio.run(_look(url, count))  # The first reads the files.
        cpu, began = server.process.cpu(), time.monotonic()
        for _ in range(_LOOKS):
            asyncio.run(_look(url, count))
        cpu, wall = server.process.cpu() - cpu, time.monotonic() - began
        return Look(count, cpu / _LOOKS, wall / _LOOKS, _hub_memory(url))


async def _look(url: str, count: int) -> None:
    client = Client(url, deadline=60.0)
    fleet = await read_fleet(client, _DAY)
    await client.close()
    if (
        fleet.problems
        or len(fleet.answering) != count
        or any(node.compute.held.missing for node in fleet.nodes)
    ):
        raise RuntimeError(f"{len(fleet.answering)} nodes answer, problems: {fleet.problems}")


def _hub_memory(url: str) -> int:
    """Return the resident bytes of a hub after three reads, of which the page and the JSON were opened."""
    port = free_port()
    options = "--prometheus-url", url, "--listen", f"127.0.0.1:{port}", "--refresh", "2s"
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
    looks = [measured(rows, count) for count in SIZES]
    columns = ("nodes", "CPU of Prometheus", "time", "memory of the hub")
    print(table(columns, [_texts(look) for look in looks]))  # noqa: T201 - this is its output


def _texts(look: Look) -> Sequence[Any]:
    return (
        f"{look.nodes}",
        f"{look.cpu:.2f} s",
        f"{look.wall:.2f} s",
        f"{look.hub / 2**20:.0f} MiB",
    )


if __name__ == "__main__":
    main()
