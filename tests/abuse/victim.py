"""The exporter as a process of its own on a fake node, and what can be seen of it from outside."""

import gzip
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from tests.commands.program import TIMEOUT, Serving, command, environment, seconds_of

# As containers have it with many runtimes.
FILES = 1024
# A Prometheus that is not told otherwise waits for 10 s.
IN_TIME = 9.0
# Beside other programs that are busy an answer may come later, by what the exporter waits for a CPU.
BUSY = 40.0
# Threads that come with the first crowd and stay: those that render, those of scrapes, one that decodes,
# and gRPC's own.
CROWDED = min(32, (os.cpu_count() or 1) + 4) + 5
# A connection is kept to each of the two sockets of the kubelet from its first read on: three files each.
KUBELET_FILES = 6


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
        self._pid = pid
        self._proc = Path(f"/proc/{pid}")
        self._prometheus = HTTPConnection("127.0.0.1", self.port, timeout=BUSY)

    @property
    def lines(self) -> list[str]:
        """All that it has written."""
        return self.served.lines

    def vitals(self) -> Vitals:
        """Look at the process."""
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

    def scrape(self) -> float:
        """Scrape as Prometheus does, and probe as the kubelet does; return the seconds of the slower one.

        Both must be answered in time, whole, and with 200. Seconds are those that its main thread did not
        wait for a CPU, which programs beside it may hold.
        """
        started = seconds_of(self._pid)
        page = gzip.decompress(self._scraped())
        assert b"gpuslice_build_info{" in page
        assert page.endswith(b"# EOF\n")
        scraped = seconds_of(self._pid)
        probe = HTTPConnection("127.0.0.1", self.port, timeout=BUSY)
        probe.request("GET", "/-/healthy")
        answer = probe.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok\n")
        probe.close()
        slower = max(scraped - started, seconds_of(self._pid) - scraped)
        if slower > IN_TIME:
            raise TimeoutError(f"answered after {slower:.1f} s")
        return slower

    def close(self) -> None:
        """Let go of the connection of the scrapes."""
        self._prometheus.close()

    def _scraped(self) -> bytes:
        """Ask over the connection of the last scrape, and once more where that was closed meanwhile."""
        headers = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
        with suppress(ConnectionError, HTTPException):
            self._prometheus.request("GET", "/metrics", headers=headers)
            answer = self._prometheus.getresponse()
            assert answer.status == 200
            return answer.read()
        self._prometheus.close()
        self._prometheus.request("GET", "/metrics", headers=headers)
        answer = self._prometheus.getresponse()
        assert answer.status == 200
        return answer.read()

    def settle(self, before: Vitals, within: float = 15.0) -> Vitals:
        """Wait until it holds no more than before; fails with what is left."""
        end = time.monotonic() + within
        most = before.files + KUBELET_FILES
        while (now := self.vitals()).files > most and time.monotonic() < end:
            time.sleep(0.05)
        assert now.files <= most, f"{now.files - before.files} files are left open"
        assert now.threads <= before.threads + CROWDED, f"{now.threads - before.threads} more threads"
        return now


@contextmanager
def victim(*options: object, scenario: str = "showcase", files: int = FILES) -> Iterator[Victim]:
    """Serve a fake node from a process that may open so many files; at the end it must stop well."""
    words = command("demo", "--scenario", scenario, "--listen", "127.0.0.1:0", *options)
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
        code, _ = found.served.end()
        assert code == 0
    finally:
        process.kill()
        process.wait(TIMEOUT)
