"""A program whose standard error goes where nothing can be written."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.commands.program import command, environment, nothing_here
from tests.end_to_end.programs import free_port, get, until

PIPE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Mute:
    """A program that serves at ``url`` and cannot say anything."""

    process: subprocess.Popen[bytes]
    url: str

    def metrics(self) -> str:
        """Fetch the page of metrics."""
        return get(f"{self.url}/metrics")[1].decode()

    def polls(self) -> float:
        """Give the time of the page's snapshot."""
        lines = self.metrics().splitlines()
        return next(
            float(line.split()[1]) for line in lines if line.startswith("gpuslice_snapshot_timestamp")
        )


@contextlib.contextmanager
def mute(folder: Path, stderr: int) -> Iterator[Mute]:
    """Serve a node that has nothing, with the log of all there is to tell going to ``stderr``."""
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
        until(found.metrics, "it serves")
        yield found
    finally:
        process.kill()
        process.wait(10)


@contextlib.contextmanager
def full_device() -> Iterator[int]:
    """Give a device on which no space is left."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """Give a pipe that is full, and whose reader reads no more."""
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
    """Give a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


SINKS = {"a full disk": full_device, "a reader that hangs": full_pipe, "no reader": closed_pipe}
"""Where a log cannot be written, by name."""
