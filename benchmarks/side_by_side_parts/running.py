"""A program that runs: started on a node, scraped, and asked of the kernel what it took."""

import http.client
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.ports import free_port
from benchmarks.side_by_side_parts.driver import Control
from benchmarks.side_by_side_parts.programs import Program, ProgramError, environment

START_SECONDS, SCRAPE_SECONDS = 30.0, 20.0
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Memory(NamedTuple):
    """Bytes of a process: all that is resident, what is its own alone; and its threads."""

    resident: int
    private: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A program under test.

    ``started`` is by time.monotonic; its first page came ``first_page`` seconds later, and took ``first_cpu``
    seconds of a processor.
    """

    program: Program
    control: Control
    process: "subprocess.Popen[str]"
    port: int
    started: float
    first_page: float
    first_cpu: float

    def cpu(self) -> float:
        """Return the seconds of a processor so far, of all threads, those that have ended too."""
        return time.clock_gettime(_clock_of(self.process.pid))

    def memory(self) -> Memory:
        """Read what the process has."""
        return memory_of(self.process.pid)

    def scrape(self) -> float:
        """Fetch the page as Prometheus does; return the seconds that it took."""
        began = time.perf_counter()
        fetch(self.port, _HEADERS)
        return time.perf_counter() - began

    def page(self) -> str:
        """Return the page in the classic format."""
        return fetch(self.port, {"Accept": "text/plain"}).decode()


def _clock_of(pid: int) -> int:
    """Return the kernel's number of the clock of a process's processor time."""
    return (~pid << 3) | 2


def memory_of(pid: int) -> Memory:
    """Read what a process has."""
    sizes = _numbers(Path(f"/proc/{pid}/smaps_rollup"))
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Memory(sizes["Rss"] << 10, private << 10, _numbers(Path(f"/proc/{pid}/status"))["Threads"])


def _numbers(path: Path) -> dict[str, int]:
    words = (line.split() for line in path.read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def fetch(port: int, headers: dict[str, str]) -> bytes:
    """Fetch /metrics over a connection of its own; raise OSError or HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SCRAPE_SECONDS)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"status {answer.status}")
    return body


@contextmanager
def running(program: Program, folder: Path, control: Control) -> Iterator[Running]:
    """Start a program with the stub that lies in ``folder``; raise ProgramError if no page of it comes."""
    port = free_port()
    log = folder / f"{control.path.name}.log"
    with log.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603 - the words are ours
            program.command(port, folder),
            env=environment(program, folder, control.path),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            cwd=folder,
        )
        try:
            first = _first_page(program, port, process, began, log)
            yield Running(
                program=program,
                control=control,
                process=process,
                port=port,
                started=began,
                first_page=first,
                first_cpu=time.clock_gettime(_clock_of(process.pid)),
            )
        finally:
            stop(process)


def stop(process: "subprocess.Popen[str]") -> None:
    """End a process, by force if it does not end within seconds."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first_page(
    program: Program, port: int, process: "subprocess.Popen[str]", began: float, log: Path
) -> float:
    """Wait for a page with a reading of a GPU; return the seconds that it took."""
    while time.monotonic() - began < START_SECONDS and process.poll() is None:
        try:
            if f"\n{program.names.used}{{" in fetch(port, {}).decode():
                return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.02)
    raise ProgramError(f"{program.name} had no page with a GPU: {log.read_text()[-400:].strip()}")
