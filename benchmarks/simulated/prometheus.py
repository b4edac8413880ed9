"""A real Prometheus that scrapes a fleet, and tells what that costs it."""

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.running import free_port

MOST_MEMORY, LEAST_FREE = 11 << 30, 2 << 30
_PATIENCE = 60.0


class Prometheus:
    """A running Prometheus, whose data lies in ``folder``."""

    def __init__(self, port: int, process: Process, folder: Path) -> None:
        self.folder = folder
        self._port = port
        self._process = process

    async def get(self, path: str, method: str = "GET") -> bytes:
        """Fetch something from it; OSError or HTTPException where it does not answer."""
        return await asyncio.to_thread(self._get, path, method)

    def _get(self, path: str, method: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
        try:
            connection.request(method, path)
            return connection.getresponse().read()
        finally:
            connection.close()

    async def metric(self, name: str) -> dict[str, float]:
        """Give one of its own series: the values by the text of its labels."""
        lines = (await self.get("/metrics")).decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if re.match(rf"{name}[{{ ]", line)]
        return {labels.removeprefix(name): float(value) for labels, value in found}

    async def one(self, name: str) -> float:
        """Give one of its own series, added up over its labels."""
        return sum((await self.metric(name)).values())

    async def query(self, expression: str) -> tuple[float, list[dict[str, Any]]]:
        """Evaluate an expression now: the seconds that the answer took, and the series that it has."""
        path = f"/api/v1/query?{urlencode({'query': expression})}"
        start = time.perf_counter()
        answer = await self.get(path)
        seconds = time.perf_counter() - start
        return seconds, json.loads(answer)["data"]["result"]

    async def until(self, name: str, least: float) -> None:
        """Wait until one of its own series has come to be as much; TimeoutError where nothing moves."""
        value, since = -1.0, time.monotonic()
        while value < least:
            self.stop_if_too_large()
            await asyncio.sleep(0.1)
            before, value = value, await self.one(name)
            if value != before:
                since = time.monotonic()
            if time.monotonic() > since + _PATIENCE:
                raise TimeoutError(f"{name} stays at {value:g}, and was to become {least:g}")

    def resident(self) -> int:
        """Give the bytes of memory that it has."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return _bytes("VmRSS", text)

    async def live(self) -> int:
        """Collect its garbage, and give the bytes of its heap that are in use then."""
        await self.get("/debug/pprof/heap?gc=1")
        return int(await self.one("go_memstats_heap_alloc_bytes"))

    def used(self) -> float:
        """Give the seconds of processors that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def block(self) -> dict[str, int]:
        """Have it write what it has in memory as a block on disk: the bytes of its parts."""
        answer = json.loads(await self.get("/api/v1/admin/tsdb/snapshot", "POST"))
        return block_sizes(self.folder / "data/snapshots" / answer["data"]["name"])

    def reload(self) -> None:
        """Have it read its files of rules."""
        self._process.send_signal(signal.SIGHUP)

    def stop_if_too_large(self) -> None:
        """Do not take the memory of others: SystemExit where little is left, or it has too much."""
        text = Path("/proc/meminfo").read_text()
        free = _bytes("MemAvailable", text)
        if self.resident() > MOST_MEMORY or free < LEAST_FREE:
            raise SystemExit(
                f"stopped: it had {self.resident() / 1e9:.1f} GB, and {free / 1e9:.1f} GB were left"
            )


def block_sizes(folder: Path) -> dict[str, int]:
    """Give the bytes of indexes and of chunks in all blocks under a folder."""
    return {
        part: sum(file.stat().st_size for file in folder.glob(f"*/{pattern}"))
        for part, pattern in (("index", "index"), ("chunks", "chunks/*"))
    }


@asynccontextmanager
async def prometheus(
    pages: int,
    nodes: int,
    scrape: float,
    *,
    honor: bool = True,
    labels: Mapping[str, str] | None = None,
) -> AsyncIterator[Prometheus]:
    """Run one that scrapes the nodes served at the port ``pages``, each every ``scrape`` seconds.

    Targets have ``labels`` too. It evaluates the rules in the files ``*.yaml`` that its folder has when it is
    told to reload. RuntimeError where there is none on PATH, or it does not start.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise RuntimeError("prometheus is not on PATH (Debian: apt-get install prometheus)")
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        folder, port = Path(name), free_port()
        targets = [
            {
                "targets": [f"127.0.0.1:{pages}"],
                "labels": {
                    "__metrics_path__": f"/{node}",
                    "instance": f"10.0.{node:06d}:9835",
                    **(labels or {}),
                },
            }
            for node in range(nodes)
        ]
        often = f"{round(scrape * 1000)}ms"
        config = {
            "global": {"scrape_interval": often, "scrape_timeout": often},
            "rule_files": [str(folder / "*.yaml")],
            "scrape_configs": [{"job_name": "gpuslice", "honor_labels": honor, "static_configs": targets}],
        }
        (folder / "prometheus.json").write_text(json.dumps(config))
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={folder}/prometheus.json",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-admin-api",
            "--scrape.discovery-reload-interval=100ms",
            "--log.level=error",
        )
        try:
            server = Prometheus(port, process, folder)
            await _ready(server, process)
            yield server
        finally:
            # Nothing of it is kept, so that it need not tidy up.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _ready(server: Prometheus, process: Process) -> None:
    end = time.monotonic() + _PATIENCE
    while process.returncode is None and time.monotonic() < end:
        with suppress(OSError, HTTPException):
            if b"ready" in (await server.get("/-/ready")).lower():
                return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"prometheus did not start: exit code {process.returncode}")


def _bytes(name: str, text: str) -> int:
    """Give what a file of the kernel says in kB."""
    found = re.search(rf"{name}:\s+(\d+)", text)
    assert found is not None  # noqa: S101 - Linux writes it
    return int(found[1]) << 10
