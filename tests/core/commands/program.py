"""The program as a user starts it, in this process or another, with an environment that sets no option."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO
from unittest.mock import patch
from urllib.request import Request, urlopen

import pynvml

from exporter.cli import main
from exporter.commands import serve, snapshot
from exporter.fleet import commands as cluster_commands
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
# Only a hang reaches it.
TIMEOUT = 120
URL = re.compile(r"https?://[^\s/]+/")


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of this process without what would set options."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPUSLICE_", "NODE_NAME", "POD_"))
    }
    ours = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "COLUMNS": "200"}
    return clean | ours | {"TMPDIR": tempfile.gettempdir()} | variables


def command(*arguments: object) -> list[str]:
    """Return the words that start the program."""
    return [sys.executable, "-m", "exporter", *map(str, arguments)]


# The limit of a shutdown ends a process by force and with code 0: without it, a shutdown that hangs is seen.
_WITHOUT_LIMIT = """
import sys
from exporter import server_process
server_process.END_SECONDS = 3600
from exporter.cli import main
sys.exit(main())
"""


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process; keywords are variables of its environment.

    A command that serves is shut down as soon as it serves.
    """
    words = [*map(str, arguments)]
    with _output(1) as out, _output(2) as err, _environment(variables), _shut_down_at_once(), _log():
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _exit_code(words)
        for handler in logging.getLogger().handlers:
            handler.flush()
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _exit_code(words: list[str]) -> int:
    """Run the program in a thread of its own, if this one has an event loop that runs."""

    def run_main() -> int:
        try:
            return main(words)
        except SystemExit as ended:
            return ended.code

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_main()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_main).result()


@contextlib.contextmanager
def _shut_down_at_once() -> Iterator[None]:
    """Leave the signals and the allocator of this process alone, and end servers."""

    @contextlib.contextmanager
    def shut_down() -> Iterator[asyncio.Event]:
        shutdown = asyncio.Event()
        shutdown.set()
        yield shutdown

    with contextlib.ExitStack() as patches:
        for module in (cluster_commands, serve):
            patches.enter_context(patch.object(module, "shutdown_signals", shut_down))
            patches.enter_context(patch.object(module, "tune_malloc"))
        # On a busy machine a poll may take long, and then reports that it waits.
        patches.enter_context(patch.object(snapshot, "SILENCE_SECONDS", 3600.0))
        yield


@contextlib.contextmanager
def _output(descriptor: int) -> Iterator[TextIO]:
    """Yield a file that takes what is written to a descriptor; the log does not go through ``sys.stderr``."""
    kept = os.dup(descriptor)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield file
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)


def _text(file: TextIO) -> str:
    file.flush()
    file.seek(0)
    return file.read()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    kept = dict(os.environ)
    changed = environment(**variables)
    os.environ.clear()
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextlib.contextmanager
def _log() -> Iterator[None]:
    """Put the log and the binding of the driver's library back as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()


def run_anew(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a new interpreter, which has imported nothing yet."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=environment(**variables),
    )


def output_of(*arguments: object) -> str:
    """Return what a command prints, which must succeed without a word of complaint."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Serving:
    """The program while it serves: its URL, and all lines that it has written so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.lines: list[str] = []
        self._threads = [
            threading.Thread(target=self._collect, args=(pipe,)) for pipe in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()
        self.url = wait_until(self._announced_url, "it serves")

    def get(self, path: str) -> str:
        """Return the body of a page, as a browser asks for it."""
        request = Request(self.url + path, headers={"Accept": "text/html, */*;q=0.1"})  # noqa: S310 - ours
        with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            assert answer.status == 200
            return answer.read().decode()

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal that ends it, and return the exit code."""
        self._process.send_signal(number)
        code = self._process.wait(TIMEOUT)
        for thread in self._threads:
            thread.join()
        return code

    def _collect(self, pipe: TextIO) -> None:
        with pipe:
            self.lines.extend(line.rstrip("\n") for line in pipe)

    def _announced_url(self) -> str | None:
        written = "\n".join(self.lines)
        if found := URL.search(written):
            return found[0]
        assert self._process.poll() is None, f"it does not serve: {written}"
        return None


@contextlib.contextmanager
def serving(*arguments: object, **variables: str) -> Iterator[Serving]:
    """Start ``serve``, ``demo`` or ``hub`` on a free port; it is killed at the end if it is still there.

    It ends when all that it has to end has ended, however long that takes.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_LIMIT, *map(str, arguments), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    try:
        yield Serving(process)
    finally:
        process.kill()
        process.wait(TIMEOUT)


def nothing_here(folder: Path) -> list[str]:
    """Return flags that make any machine one without a driver, a kubelet and pod logs."""
    paths = {
        "nvml-library": "libnvidia-ml.so.1",
        "kubelet-root": "kubelet",
        "pod-log-dir": "pods",
        "sys-root": "sys",
    }
    return [word for option, path in paths.items() for word in (f"--{option}", str(folder / path))]
