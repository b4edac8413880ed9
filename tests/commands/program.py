"""The program as a user starts it: another process, with an environment that sets nothing."""

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[2]
TIMEOUT = 60
# From the signal to the end of the process, by its own clock: ``seconds_of``.
END_SECONDS = 2.0
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


class Forking:
    """Starts the program from a process that has its modules already, which most of a short run goes into."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.commands.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        self._one_at_a_time = threading.Lock()
        atexit.register(self._end)

    def run(self, words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            start = {"words": words, "environment": variables, "out": out.name, "err": err.name}
            with self._one_at_a_time:
                print(json.dumps(start | {"within": TIMEOUT}), file=self._server.stdin, flush=True)
                code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())

    def _end(self) -> None:
        self._server.communicate()


_forking = cache(Forking)


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; keywords are variables of its environment."""
    return _forking().run([*map(str, arguments)], environment(**variables))


def run_anew(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Do the same in a new interpreter, which has imported nothing yet."""
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


def seconds_of(pid: int) -> float:
    """Return the time now, less the seconds that the main thread of a process has waited for a CPU."""
    waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return time.monotonic() - waited / 1e9


class Serving:
    """The program while it serves: its URL, and all that it has written so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []
        self._threads = [
            threading.Thread(target=self._collect, args=(pipe,)) for pipe in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()
        self.url = self._wait_for_url()

    def get(self, path: str, within: float = 10) -> str:
        """Return the body of a page, as a browser asks for it."""
        asked = Request(self.url + path, headers={"Accept": "text/html, */*;q=0.1"})  # noqa: S310 - ours
        with urlopen(asked, timeout=within) as answer:  # noqa: S310 - as above
            assert answer.status == 200
            return answer.read().decode()

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal and return the exit code and the seconds until the end."""
        pid = self._process.pid
        started = seconds_of(pid)
        self._process.send_signal(number)
        deadline = time.monotonic() + TIMEOUT
        # The kernel keeps schedstat of an ended process until its parent collects the exit code.
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            assert time.monotonic() < deadline, f"it runs {TIMEOUT} s after {number.name}"
            time.sleep(0.01)
        took = seconds_of(pid) - started
        code = self._process.wait(TIMEOUT)
        for thread in self._threads:
            thread.join(TIMEOUT)
        return code, took

    def _collect(self, pipe) -> None:
        with pipe:
            self.lines.extend(line.rstrip("\n") for line in pipe)

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            found = URL.search("\n".join(self.lines))
            if found is not None:
                return found[0]
            time.sleep(0.02)
        raise AssertionError("\n".join(["it does not serve:", *self.lines]))


@contextlib.contextmanager
def serving(*arguments: object, **variables: str) -> Iterator[Serving]:
    """Start ``serve`` or ``demo`` on a free port; it is killed at the end if it is still there."""
    process = subprocess.Popen(
        command(*arguments, "--listen", "127.0.0.1:0"),
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
    return [
        "--nvml-library",
        str(folder / "libnvidia-ml.so.1"),
        "--kubelet-root",
        str(folder / "kubelet"),
        "--pod-log-dir",
        str(folder / "pods"),
        "--sys-root",
        str(folder / "sys"),
    ]
