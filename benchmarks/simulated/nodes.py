"""Nodes that are told of as the exporter does it, but only by the series that rules read."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GPUS, HOLDERS = 8, 16
_OF_A_TARGET = 50
_TEAMS = 20
_NUMBER, _TEAM, _COUNTER, _NOW, _USED = "@@@@@@", "#team#", "#counter#", "#now#", "#used#"
_OF_TARGET = f'namespace="monitoring",pod="exporter-{_NUMBER}",container="exporter"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Pages of nodes that hold what the rules read; ``page(k)`` is that of the k-th target."""

    template: str
    count: int
    start: float

    @property
    def targets(self) -> int:
        """Say how many targets they are told by."""
        return -(-self.count // _OF_A_TARGET)

    def page(self, target: int) -> bytes:
        """Make the page as it is now."""
        now = time.time()
        values = {
            _COUNTER: f"{now - self.start:.3f}",
            _NOW: f"{now:.3f}",
            _USED: str(3 << 30 | int(now) % 977 << 12),
        }
        page = self.template
        for token, value in values.items():
            page = page.replace(token, value)
        numbers = range(target * _OF_A_TARGET, min((target + 1) * _OF_A_TARGET, self.count))
        return "".join([_numbered(page, number) for number in numbers]).encode()


def _numbered(page: str, node: int) -> str:
    return page.replace(_NUMBER, f"{node:06d}").replace(_TEAM, str(node % _TEAMS))


def template(read: set[str], *, clash: bool) -> str:
    """Make the page of one node: what a demo node of 8 GPUs says of itself, with other holders.

    ``read`` are the names of the series that stand on it. With ``clash`` the target has labels called as
    ours are, and ours were renamed.
    """
    command = [
        sys.executable,
        "-m",
        "exporter",
        "snapshot",
        "--scenario",
        "h100-exclusive",
        "--format",
        "prometheus",
    ]
    page = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - ourselves
    page = re.sub(r"(GPU-[0-9a-f-]{24})[0-9a-f]{6}([0-9a-f]{6})", rf"\1{_NUMBER}\2", page)
    page = re.sub(r'node="[^"]*"', f'node="node-{_NUMBER}"', page)
    uuids = re.findall(r'^gpuslice_gpu_up{uuid="([^"]*)"', page, re.MULTILINE)
    lines = [line for line in page.splitlines() if not line.startswith(("#", "gpuslice_container_"))]
    lines += [line for number in range(HOLDERS) for line in _holder(number, uuids[number % GPUS])]
    wanted = [line for line in lines if re.split(r"[{ ]", line, maxsplit=1)[0] in read]
    return "".join(_with_target(line, clash=clash) + "\n" for line in wanted)


def _holder(number: int, uuid: str) -> Iterator[str]:
    """Give the series of a holder; every fourth is idle, and of every eighth the compute is not known."""
    idle, unknown = number % 4 == 0, number % 8 == 1
    team = (
        f'namespace="team-{_TEAM}-{number}",pod="inference-7d9f8b6c4-{_NUMBER}{number:x}",container="server"'
    )
    values: dict[str, str | int | float] = {
        "slices": 1,
        "memory_entitled_bytes": 8 << 30,
        "memory_used_bytes": _USED,
        "compute_entitled_ratio": 0.1,
        "processes": 1,
        "entitled_gpu_seconds_total": _COUNTER,
        "energy_joules_total": _COUNTER,
    }
    if not unknown:
        values |= {
            "compute_used_ratio": 0 if idle else 0.07,
            "used_gpu_seconds_total": 0 if idle else _COUNTER,
            "last_active_timestamp_seconds": 1.7e9 if idle else _NOW,
        }
    of_info = (
        'resource="nvidia.com/gpu",sharing="mps",isolation="soft",memory_source="process",'
        'compute_source="process",model="NVIDIA H100 80GB HBM3",'
        f'pod_uid="5b032c84-293c-50b4-{_NUMBER}{number:06d}"'
    )
    yield f'gpuslice_container_info{{{team},uuid="{uuid}",{of_info}}} 1'
    for name, value in values.items():
        yield f'gpuslice_container_{name}{{{team},uuid="{uuid}"}} {value}'


def _with_target(line: str, *, clash: bool) -> str:
    """Add the labels of the target, which Prometheus would have added were it one of its own."""
    instance = f'instance="10.0.{_NUMBER}:9835"'
    if clash:
        line = re.sub(r"\b(namespace|pod|container)=", r"exported_\1=", line)
        instance = f"{instance},{_OF_TARGET}"
    name, rest = line.rsplit(" ", 1)
    return f"{name[:-1]},{instance}}} {rest}" if name.endswith("}") else f"{name}{{{instance}}} {rest}"


@contextmanager
def served(nodes: Nodes) -> Iterator[int]:
    """Serve the pages as /0, /1, ... and give the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = nodes.page(int(self.path.strip("/")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # A scrape that took too long was given up.
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
