"""Starting the processes that are measured, asking them, and what the kernel reports of them."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple, TextIO

ROOT = Path(__file__).parents[1]
START_SECONDS, LOOK_SECONDS, END_SECONDS, TIMEOUT_SECONDS = 60.0, 0.01, 10.0, 60.0
# Below those that the kernel gives to outgoing connections: of these, any may be taken in the next moment.
_FIRST_PORT, _END_PORT = 20_000, 32_000
# They would set options of the exporter.
_OPTIONS = "GPUSLICE_", "NODE_NAME", "POD_"


class MissingError(Exception):
    """Something cannot be measured on this machine; the text contains the reason."""


class Memory(NamedTuple):
    """Memory of a process in bytes, and the number of its threads."""

    resident: int
    peak: int
    files: int
    private: int
    threads: int


class Process:
    """A started process; ``port`` is where it serves HTTP, on 127.0.0.1."""

    def __init__(self, popen: "subprocess.Popen[str]", port: int) -> None:
        self.popen = popen
        self.port = port
        self.began = time.perf_counter()

    def cpu(self) -> float:
        """Return the CPU seconds of all its threads, also of those that have ended."""
        # This is the kernel's id of the CPU clock of a process.
        return time.clock_gettime((~self.popen.pid << 3) | 2)

    def memory(self) -> Memory:
        """Read its memory."""
        status, maps = (self._numbers(name) for name in ("status", "smaps_rollup"))
        return Memory(
            resident=status["VmRSS"] << 10,
            peak=status["VmHWM"] << 10,
            files=status["RssFile"] << 10,
            private=(maps["Private_Clean"] + maps["Private_Dirty"]) << 10,
            threads=status["Threads"],
        )

    def _numbers(self, name: str) -> dict[str, int]:
        lines = Path(f"/proc/{self.popen.pid}/{name}").read_text().splitlines()
        words = [line.split() for line in lines]
        return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}

    def ask(self, do: str, **details: Any) -> Any:
        """Send a request, a line of JSON, and return its answer; raise RuntimeError if it has ended."""
        self.send(json.dumps({"do": do} | details))
        return self.answer()

    def send(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.popen.stdin is not None  # noqa: S101 - it is a pipe
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()

    def answer(self) -> Any:
        """Return the next line of its output, which is JSON; raise RuntimeError if it has ended."""
        assert self.popen.stdout is not None  # noqa: S101 - it is a pipe
        if not (line := self.popen.stdout.readline()):
            raise RuntimeError(f"the process has ended with {self.popen.wait()}: {self.popen.args!r}")
        return json.loads(line)

    def get(
        self, path: str = "metrics", headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Fetch a path over a connection of its own and return its headers and body.

        Raise OSError or HTTPException if there is no answer or its status is not 200.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", f"/{path}", headers=dict(headers or {}))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise HTTPException(f"status {answer.status} of /{path}")
        return dict(answer.getheaders()), body

    def wait_for(self, text: str, path: str = "metrics") -> float:
        """Fetch a path until it contains ``text``; return the seconds since the start of the process.

        Raise RuntimeError if the process ends, or if it takes longer than START_SECONDS.
        """
        while self.popen.poll() is None and time.perf_counter() < self.began + START_SECONDS:
            with suppress(OSError, HTTPException):
                if text in self.get(path)[1].decode():
                    return time.perf_counter() - self.began
            time.sleep(LOOK_SECONDS)
        raise RuntimeError(f"no page with {text.strip()!r} (exit code {self.popen.returncode})")


def module(name: str, *words: str) -> list[str]:
    """Return the command line that runs a module of this package."""
    return [sys.executable, "-m", f"benchmarks.{name}", *words]


@contextmanager
def started(
    command: Sequence[str],
    *,
    port: int = 0,
    variables: Mapping[str, str] | None = None,
    output: TextIO | None = None,
    folder: Path = ROOT,
) -> Iterator[Process]:
    """Start a program in ``folder``, and end it afterwards, by force if it does not end by itself.

    It has pipes for ``ask`` and ``answer``, or writes to ``output``.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OPTIONS)}
    popen = subprocess.Popen(  # noqa: S603 - the words are ours
        command,
        stdin=subprocess.PIPE,
        stdout=output or subprocess.PIPE,
        stderr=output,
        text=True,
        env=environment | dict(variables or {}),
        cwd=folder,
    )
    try:
        yield Process(popen, port)
    finally:
        popen.terminate()
        try:
            popen.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.communicate()


@contextmanager
def subject(how: str, node: str) -> Iterator[Process]:
    """Run the exporter on a node, ``live`` or ``by-hand`` as in subject.py; the latter has polled once."""
    port = free_port()
    with started(module("fake_node", "node", node)) as around:
        variables = around.answer() | {"GPUSLICE_LISTEN": f"127.0.0.1:{port}"}
        with started(module("subject", how, node), port=port, variables=variables) as program:
            if how == "by-hand":
                program.answer()
            yield program


def free_port() -> int:
    """Return a port of this machine on which no program listens."""
    while True:
        port = random.randrange(_FIRST_PORT, _END_PORT)  # noqa: S311 - no secret
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
