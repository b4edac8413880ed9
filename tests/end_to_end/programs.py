"""Starting the exporter and Prometheus as programs of their own, and talking to them over HTTP."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import pytest

import benchmarks.prometheus
from benchmarks.processes import free_port

PATIENCE = 30.0
Found = TypeVar("Found")


def program(name: str) -> str:
    """Give the path of a program of Debian's package prometheus; without it, skip, but fail in CI."""
    path = shutil.which(name)
    if path is None and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not on PATH; CI must have it (Debian: apt-get install prometheus)")
    return path or pytest.skip(f"{name} is not on PATH")


def get(url: str, headers: Mapping[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
    """Fetch a page: its headers and its body; OSError or HTTPException where there is none."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", url.removeprefix(f"http://{parts.netloc}"), headers=dict(headers or {}))
        answer = connection.getresponse()
        return dict(answer.headers), answer.read()


def until(question: Callable[[], Found | None], what: str) -> Found:
    """Ask until there is an answer; fail after PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError, HTTPException):
            if answer := question():
                return answer
        time.sleep(0.1)
    pytest.fail(f"after {PATIENCE:.0f} s still not: {what}")


@contextmanager
def demo(scenario: str, *options: str) -> Iterator[str]:
    """Run the exporter on a fake node and give its URL; at the end it must stop by itself, and well."""
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
    """A running Prometheus; ``port`` is where it answers."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def api(self, path: str, **parameters: str) -> Any:
        """Ask its API and return what stands under ``data``."""
        _, body = get(f"{self.url}/api/v1/{path}?{urlencode(parameters)}")
        answer = json.loads(body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Evaluate an expression now: the values by the sorted values of their labels."""
        found = self.api("query", query=expression)["result"]
        return {tuple(sorted(each["metric"].values())): float(each["value"][1]) for each in found}

    def settle(self) -> None:
        """Wait until all rules have been evaluated on the series of now, and once more on each other's."""
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

    ``scrape`` is what its jobs have set besides; with ``static_configs`` in it, they have targets and labels
    of their own. The files of ``rules`` are evaluated every ``evaluation``, but for groups that say their own
    interval; what fires is sent to the URL ``alertmanager``.
    """
    program("prometheus")
    config = _configuration(jobs, scrape or {}, rules, alertmanager, evaluation)
    port = port or free_port()
    with benchmarks.prometheus.prometheus(folder, config, port, "--log.level=warn"):
        yield Prometheus(port)


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


class TextOnly:
    """A go-between at ``url``: whoever asks it for /<name> gets that page in the text format.

    Prometheus 2.42 cannot be told not to ask for OpenMetrics. ``accept`` is what it asked for last.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = pages
        self.accept = ""
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["TextOnly"]:
        """Answer on a free port."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        between = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                between.accept = self.headers["Accept"]
                headers, body = get(between.pages[self.path.strip("/")], {"Accept": "text/plain"})
                self.send_response(200)
                self.send_header("Content-Type", headers["Content-Type"])
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
