"""The exporter and Prometheus as programs of their own, and requests to them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import benchmarks.prometheus
from benchmarks.processes import free_port
from tests.tools import tool
from tests.waiting import LIMIT_SECONDS, wait_until

PATIENCE = LIMIT_SECONDS
# The samples of all scrapes that began before are stored after this time.
SCRAPE_SECONDS = 1.5
Found = TypeVar("Found")


def get(url: str, headers: Mapping[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
    """Fetch a page; return its headers and its body. Raises OSError or HTTPException."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", url.removeprefix(f"http://{parts.netloc}"), headers=dict(headers or {}))
        answer = connection.getresponse()
        return dict(answer.headers), answer.read()


def until(question: Callable[[], Found | None], what: str) -> Found:
    """Ask until the answer is true, and return it; an error of the connection is no answer yet."""

    def answer() -> Found | None:
        with contextlib.suppress(OSError, HTTPException):
            return question()
        return None

    return wait_until(answer, what)


@contextmanager
def demo(scenario: str, *options: str) -> Iterator[str]:
    """Run the exporter on a fake node and yield its URL; at the end it must stop with exit code 0."""
    command = [sys.executable, "-m", "exporter", "demo", "--scenario", scenario, "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            announced = process.stdout.readline()
            yield announced.split()[-1].removesuffix("/")
        finally:
            process.terminate()
            code = process.wait(PATIENCE)
    assert code == 0


class Prometheus:
    """A running Prometheus; ``port`` is where it answers, ``at`` the Unix time of queries, None for now."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.at: float | None = None

    def api(self, path: str, **parameters: str) -> Any:
        """Return the ``data`` of an answer of its API."""
        if path == "query" and self.at is not None:
            parameters.setdefault("time", str(self.at))
        _, body = get(f"{self.url}/api/v1/{path}?{urlencode(parameters)}")
        answer = json.loads(body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Evaluate an expression now; return its values by the sorted values of their labels."""
        result = self.api("query", query=expression)["result"]
        return {tuple(sorted(series["metric"].values())): float(series["value"][1]) for series in result}

    def settle(self) -> None:
        """Wait until all rules have been evaluated, and once more on the results of each other."""
        for _ in range(2):
            now = datetime.now(UTC)
            until(lambda now=now: self._evaluated_since(now), "all rules are evaluated")

    def _evaluated_since(self, moment: datetime) -> bool:
        times = [datetime.fromisoformat(group["lastEvaluation"]) for group in self.api("rules")["groups"]]
        return bool(times) and all(time > moment for time in times)


@contextmanager
def prometheus(
    folder: Path,
    jobs: Mapping[str, str],
    *,
    port: int = 0,
    scrape: Mapping[str, Any] | None = None,
    rules: Sequence[Path] = (),
    alertmanager: str | None = None,
    evaluation: str = "1s",
) -> Iterator[Prometheus]:
    """Run Prometheus with a job for each name and URL, scraped every second; it writes to ``folder`` only.

    ``scrape`` are further settings of the jobs; ``static_configs`` replace the URLs. The files of ``rules``
    are evaluated every ``evaluation``, unless a group has its own interval; alerts are sent to the URL
    ``alertmanager``.
    """
    tool("prometheus")
    config = _configuration(jobs, scrape or {}, rules, alertmanager, evaluation)
    port = port or free_port()
    with benchmarks.prometheus.prometheus(folder, config, port, "--log.level=warn"):
        yield Prometheus(port)


def scraped_snapshots(server: Prometheus, urls: Sequence[str]) -> list[dict[str, Any]]:
    """Return the snapshots of nodes if Prometheus has just these; if not, an empty list."""
    snapshots = [json.loads(get(f"{url}/api/v1/snapshot")[1]) for url in urls]
    shown = {(snapshot["node"]["node"], snapshot["timestamp"]) for snapshot in snapshots}
    series = server.api("query", query="gpuslice_snapshot_timestamp_seconds")["result"]
    scraped = {(each["metric"]["node"], float(each["value"][1])) for each in series}
    return snapshots if scraped == shown else []


def _configuration(
    jobs: Mapping[str, str],
    scrape: Mapping[str, Any],
    rules: Sequence[Path],
    alertmanager: str | None,
    evaluation: str,
) -> dict[str, Any]:
    receivers = (
        [] if alertmanager is None else [{"static_configs": [{"targets": [urlsplit(alertmanager).netloc]}]}]
    )
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": evaluation},
        "rule_files": [str(path.resolve()) for path in rules],
        "alerting": {"alertmanagers": receivers},
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": urlsplit(url).path,
                "static_configs": [{"targets": [urlsplit(url).netloc]}],
                **scrape,
            }
            for name, url in jobs.items()
        ],
    }
