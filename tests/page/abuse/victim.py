"""The exporter as a process of its own on a fake node, and what can be seen of it from outside."""

import gzip
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from tests.core.commands.program import TIMEOUT, Serving, command, environment
from tests.waiting import LIMIT_SECONDS, wait_until

# As containers have it with many runtimes.
FILES = 1024
# Threads that come with the first crowd and stay: those that render, those of scrapes, one that decodes,
# and gRPC's own.
CROWDED = min(32, (os.cpu_count() or 1) + 4) + 5
# A connection is kept to each of the two sockets of the kubelet from its first read on: three files each.
KUBELET_FILES = 6
# One snapshot, whose pages are the same bytes for all.
ONE_POLL = ("--poll-interval", "1h", "--stale-after", "2h")
HEADERS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


class Vitals(NamedTuple):
    """What a process holds: open files, threads, MiB of memory, and seconds of CPU that it took."""

    files: int
    threads: int
    memory: float
    cpu: float


class Victim:
    """A served node; ``lines`` is its log so far."""

    def __init__(self, served: Serving, pid: int) -> None:
        self.served = served
        self.port = int(served.url.rstrip("/").rpartition(":")[2])
        self._proc = Path(f"/proc/{pid}")
        self._prometheus = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)

    @property
    def lines(self) -> list[str]:
        """All that it has written."""
        return self.served.lines

    def vitals(self) -> Vitals:
        """Return what the process holds now."""
        status = dict(
            line.split(":", 1) for line in (self._proc / "status").read_text().splitlines() if ":" in line
        )
        times = (self._proc / "stat").read_text().rpartition(")")[2].split()[11:13]
        return Vitals(
            files=sum(1 for _ in (self._proc / "fd").iterdir()),
            threads=int(status["Threads"]),
            memory=int(status["VmRSS"].split()[0]) / 1024,
            cpu=sum(map(int, times)) / 100,
        )

    def scrape(self) -> None:
        """Scrape as Prometheus does, and probe as the kubelet does; both must be answered whole."""
        self.scrape_page()
        probe = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        probe.request("GET", "/-/healthy")
        answer = probe.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok\n")
        probe.close()

    def scrape_page(self) -> None:
        """Scrape over the connection that Prometheus keeps open."""
        page = gzip.decompress(self._scraped())
        assert b"gpuslice_build_info{" in page
        assert page.endswith(b"# EOF\n")

    def scrape_in_the_end(self) -> None:
        """Scrape again for as long as the connection is closed without an answer."""
        wait_until(self._is_scraped, "a scrape is answered")

    def _is_scraped(self) -> bool:
        with suppress(OSError, HTTPException):
            self.scrape()
            return True
        self.close()
        return False

    def close(self) -> None:
        """Close the connection of the scrapes."""
        self._prometheus.close()

    def _scraped(self) -> bytes:
        """Request the page over the connection of the last scrape, and once more if that was closed."""
        with suppress(ConnectionError, HTTPException):
            return self._page()
        self._prometheus.close()
        return self._page()

    def _page(self) -> bytes:
        self._prometheus.request("GET", "/metrics", headers=HEADERS)
        answer = self._prometheus.getresponse()
        assert answer.status == 200
        return answer.read()

    def settle(self, before: Vitals) -> Vitals:
        """Wait until it has no more files open than before, and return what it holds then."""
        most = before.files + KUBELET_FILES
        wait_until(lambda: self.vitals().files <= most, "no file is left open")
        now = self.vitals()
        assert now.threads <= before.threads + CROWDED, f"{now.threads - before.threads} more threads"
        return now


@contextmanager
def victim(*options: object, scenario: str = "showcase", files: int = FILES) -> Iterator[Victim]:
    """Serve a fake node from a process that may open ``files`` files; at the end it must stop well."""
    words = command("demo", "--scenario", scenario, "--listen", "127.0.0.1:0", *ONE_POLL, *options)
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        found = Victim(Serving(process), process.pid)
        # The first scrape makes what stays.
        found.scrape()
        yield found
        found.close()
        assert found.served.stop() == 0
    finally:
        process.kill()
        process.wait(TIMEOUT)
