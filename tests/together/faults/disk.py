"""A program whose standard error goes where nothing can be written."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from benchmarks.processes import free_port
from tests.core.commands.program import command, environment, nothing_here
from tests.together.end_to_end.programs import get
from tests.waiting import LIMIT_SECONDS, wait_until

PIPE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Mute:
    """A program that serves at ``url`` and cannot write its log."""

    process: subprocess.Popen[bytes]
    url: str

    def metrics(self) -> str:
        """Return the page of metrics."""
        return get(f"{self.url}/metrics")[1].decode()

    def answers(self) -> bool:
        """Return whether it serves the page."""
        with contextlib.suppress(OSError, HTTPException):
            return bool(self.metrics())
        return False

    def polls(self) -> float:
        """Return the time of the page's snapshot."""
        lines = self.metrics().splitlines()
        return next(
            float(line.split()[1]) for line in lines if line.startswith("gpuslice_snapshot_timestamp")
        )


@contextlib.contextmanager
def mute(folder: Path, stderr: int) -> Iterator[Mute]:
    """Serve an empty node, with a debug log that goes to ``stderr``."""
    port = free_port()
    words = command(
        "serve",
        "--listen",
        f"127.0.0.1:{port}",
        "--poll-interval",
        "1s",
        "--log-level",
        "debug",
        *nothing_here(folder),
    )  # fmt: skip - one option a line would be a page
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr, env=environment())
    try:
        found = Mute(process, f"http://127.0.0.1:{port}")
        wait_until(found.answers, "it serves")
        yield found
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)


@contextlib.contextmanager
def full_device() -> Iterator[int]:
    """Yield a device without free space."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """Yield a full pipe, whose reader does not read."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 512)
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    """Yield a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


SINKS = {"a full disk": full_device, "a reader that hangs": full_pipe, "no reader": closed_pipe}
