"""The same samples in several databases: Prometheus of two versions or with replicas, and VictoriaMetrics."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import started
from tests.product.compat.units import REPLICAS
from tests.together.end_to_end.programs import Prometheus, free_port

REPLICA = "prometheus_replica"
Labels = Mapping[str, str]


class Stored(NamedTuple):
    """A series: its labels with its name, and its values by Unix time."""

    labels: Labels
    values: Sequence[tuple[float, str]]


def stored(server: Prometheus, at: float, seconds: int) -> list[Stored]:
    """Return all series of a server in the last ``seconds`` before a Unix time."""
    found = server.api("query", query=f'{{__name__=~".+"}}[{seconds}s]', time=str(at))["result"]
    return [Stored(each["metric"], each["values"]) for each in found]


def stretched(series: Sequence[Stored], at: float, factor: int) -> list[Stored]:
    """Stretch the time before ``at``, so that it is longer than the range of a rate; values stay the same."""
    return [
        each._replace(values=[(at - (at - when) * factor, value) for when, value in each.values])
        for each in series
    ]


def doubled(series: Sequence[Stored]) -> list[Stored]:
    """Return each series of an exporter from two replicas, and each record and alert once."""
    return [copy for each in series for copy in (_copies(each) if _is_scraped(each) else (each,))]


def _is_scraped(series: Stored) -> bool:
    name = series.labels["__name__"]
    return ":" not in name and name not in ("ALERTS", "ALERTS_FOR_STATE")


def _copies(series: Stored) -> Iterator[Stored]:
    for replica in REPLICAS:
        yield Stored({**series.labels, REPLICA: replica}, series.values)


def lines(series: Sequence[Stored], moment: Callable[[int], str]) -> Iterator[str]:
    """Yield samples in the text format, by name; ``moment`` formats Unix milliseconds."""
    for each in sorted(series, key=lambda found: found.labels["__name__"]):
        inside = ",".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}"
            for key, value in each.labels.items()
            if key != "__name__"
        )
        for at, value in each.values:
            yield f"{each.labels['__name__']}{{{inside}}} {value} {moment(round(at * 1000))}\n"


@contextmanager
def prometheus(folder: Path, program: str, promtool: str, series: Sequence[Stored]) -> Iterator[Prometheus]:
    """Serve series by a Prometheus, from blocks that promtool makes of them below ``folder``."""
    folder.mkdir()
    blocks(folder, promtool, series)
    with serve(folder, program) as server:
        yield server


def blocks(folder: Path, promtool: str, series: Sequence[Stored]) -> None:
    """Make blocks of series below ``folder``."""
    (folder / "samples").write_text("".join([*lines(series, lambda at: f"{at / 1000:.3f}"), "# EOF\n"]))
    # All samples are read for each block, so the fewer the better.
    command = [promtool, "tsdb", "create-blocks-from", "--max-block-duration=192h"]
    command += ["openmetrics", folder / "samples", folder / "data"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@contextmanager
def serve(folder: Path, program: str) -> Iterator[Prometheus]:
    """Serve the blocks below ``folder``."""
    (folder / "prometheus.yml").write_text("{}")
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    # Blocks may be older than its 15 days.
    options.append("--storage.tsdb.retention.time=10y")
    with _running([program, *options], "--web.listen-address", "-/ready", folder) as server:
        yield server


@contextmanager
def victoria_metrics(folder: Path, program: str, series: Sequence[Stored]) -> Iterator[Prometheus]:
    """Serve series by VictoriaMetrics, told that a sample holds for five minutes as in Prometheus."""
    folder.mkdir()
    options = ["-search.disableCache", "-search.latencyOffset=0s", "-search.minStalenessInterval=5m"]
    # Samples may be older than its month.
    options += [f"-storageDataPath={folder}/data", "-retentionPeriod=100y"]
    with _running([program, *options], "-httpListenAddr", "health", folder) as server:
        connection = HTTPConnection(server.url.removeprefix("http://"), timeout=600)
        body = "".join(lines(series, str))
        connection.request("POST", "/api/v1/import/prometheus", body.encode())
        assert connection.getresponse().status == 204
        connection.close()
        connection.request("GET", "/internal/force_flush")
        assert connection.getresponse().status == 200
        connection.close()
        yield server


@contextmanager
def _running(command: Sequence[str], listen: str, ready: str, folder: Path) -> Iterator[Prometheus]:
    port = free_port()
    words = [*command, f"{listen}=127.0.0.1:{port}"]
    with (folder / "log").open("w") as output, started(words, port=port, output=output) as process:
        process.wait_for("", ready)
        yield Prometheus(port)
