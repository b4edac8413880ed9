"""A real Prometheus, and what it reports of itself."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.processes import MissingError, Process, free_port, started

MOST_MEMORY, LEAST_FREE = 11 << 30, 2 << 30
_PATIENCE, _LOOKS = 180.0, 3


class Prometheus:
    """A running Prometheus, whose data is below ``folder``."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.folder = folder

    def metric(self, name: str) -> dict[str, float]:
        """Return the values of one of its own series, by the text of their labels."""
        lines = self.process.get()[1].decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if re.match(rf"{name}[{{ ]", line)]
        return {labels.removeprefix(name): float(value) for labels, value in samples}

    def total(self, name: str) -> float:
        """Return one of its own series, summed over its labels."""
        return sum(self.metric(name).values())

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Evaluate an expression, now or at a Unix time; return the series of the answer."""
        asked = {"query": expression} | ({} if at is None else {"time": f"{at}"})
        _, answer = self.process.get(f"api/v1/query?{urlencode(asked)}")
        series: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return series

    def live(self) -> int:
        """Collect its garbage, and return the bytes of its heap that are in use then."""
        self.process.get("debug/pprof/heap?gc=1")
        return int(self.total("go_memstats_heap_alloc_bytes"))

    def reload(self) -> None:
        """Have it read its files of rules."""
        self.process.popen.send_signal(signal.SIGHUP)

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until something is done; raise MissingError if that takes too long or too much memory."""
        end = time.monotonic() + _PATIENCE
        while not done():
            if time.monotonic() > end:
                raise MissingError(f"after {_PATIENCE:.0f} s still not: {what}. Is the machine too busy?")
            self.check_memory()
            time.sleep(0.2)

    def check_memory(self) -> None:
        """Raise MissingError if it has too much memory, or the machine has too little left."""
        resident = self.process.memory().resident
        (free,) = re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        if resident > MOST_MEMORY or int(free) << 10 < LEAST_FREE:
            raise RuntimeError(
                f"stopped: Prometheus had {resident / 1e9:.1f} GB, {int(free) >> 20} GiB were left"
            )


def installed(program: str) -> str:
    """Return the path of a program of the package prometheus; raise MissingError if it is not installed."""
    if (path := shutil.which(program)) is None:
        raise MissingError(f"{program} is not on PATH (Debian: apt-get install prometheus)")
    return path


@contextmanager
def prometheus(folder: Path, config: Mapping[str, Any], port: int, *options: str) -> Iterator[Prometheus]:
    """Run Prometheus with a configuration; it serves at ``port`` and writes below ``folder`` only.

    Raise MissingError if it is not installed, RuntimeError if it does not start.
    """
    (folder / "prometheus.json").write_text(json.dumps(config))
    command = [
        installed("prometheus"),
        f"--config.file={folder}/prometheus.json",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    with (folder / "log").open("w") as output, started(command, port=port, output=output) as process:
        process.wait_for("Ready", "-/ready")
        yield Prometheus(process, folder)


def create_blocks(lines: Iterable[str], folder: Path, longest: str = "2h") -> None:
    """Write samples in the OpenMetrics format as blocks into ``folder/data``; raise CalledProcessError.

    A Prometheus with a retention of 15 days has blocks of up to 36 hours in the end: "36h".
    """
    source = folder / "series"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in chain(lines, ["# EOF"]))
    made = "tsdb", "create-blocks-from", f"--max-block-duration={longest}", "openmetrics"
    words = *made, str(source), str(folder / "data")
    subprocess.run([installed("promtool"), *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our words
    source.unlink()


@contextmanager
def stored(parts: Iterable[Iterable[str]], longest: str = "2h", *options: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes nothing, with blocks of the samples of each part."""
    with tempfile.TemporaryDirectory(prefix="stored-") as name:
        for lines in parts:
            create_blocks(lines, Path(name), longest)
        quiet = "--log.level=error", *options
        with prometheus(Path(name), {"scrape_configs": []}, free_port(), *quiet) as server:
            yield server


def cost_of(look: Callable[[str], Coroutine[Any, Any, None]], server: Prometheus) -> tuple[float, float]:
    """Return the seconds of CPU of Prometheus, and of time, that ``look`` takes with its URL."""
    url = f"http://127.0.0.1:{server.process.port}"
    asyncio.run(look(url))  # The first reads the files.
    cpu, began = server.process.cpu(), time.monotonic()
    for _ in range(_LOOKS):
        asyncio.run(look(url))
    return (server.process.cpu() - cpu) / _LOOKS, (time.monotonic() - began) / _LOOKS
