"""Runs inside the container: the program with the driver of a fake node whose other parts are outside.

``python -m tests.product.deploy.inside SCENARIO SECONDS serve|report``: settings come from the environment.
``report`` prints an object: the output of ``snapshot`` as JSON and as series, that of ``doctor --json``, and
the ``bounds`` that the kernel sets for this process.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.commands.node import Node
from exporter.commands.snapshot import FORMATS, poll_once
from exporter.config import load_settings
from exporter.demo.machine import Machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import load
from exporter.doctor.checks import examine
from exporter.output import set_up_logging


def driver(scenario: Scenario, second: float) -> FakeNvml:
    """Return the driver's library as it is at that second; its time does not pass."""
    library = FakeNvml(scenario.node, scenario.missing_functions, host_pid=scenario.host_pid)
    now = present(scenario, second)
    library.show(Machine(0).step(now, time.time()), now.nvml_faults, loaded=now.loaded)
    return library


async def report(node: Node) -> dict[str, Any]:
    """Poll once, and return each form of the result."""
    snapshot, evidence = await poll_once(node)
    everything = replace(node.settings, metric_set="full", dcgm_names="all")
    return {
        "snapshot": json.loads(FORMATS["json"](snapshot, node.settings)),
        "metrics": FORMATS["prometheus"](snapshot, everything),
        "bounds": bounds(),
        "doctor": examine(snapshot, evidence, node.settings).as_dict(),
    }


def bounds() -> dict[str, Any]:
    """Return what the kernel allows this process: rights, system calls, and where it may write."""
    lines = (line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    status = {
        name: value for name, value in lines if name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid")
    }
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return {
        "status": status,
        "writable": [place for _, place, _, how, *_ in mounts if "rw" in how.split(",")],
        # The program does none of this, but an attacker who takes it over could.
        "processes": sum(entry.name.isdecimal() for entry in Path("/proc").iterdir()),
        "can signal pid 1": _can(lambda: os.kill(1, 0)),
        "can read the environment of pid 1": _can(Path("/proc/1/environ").read_bytes),
        "can read logs": [_can(log.read_bytes) for log in Path("/var/log/pods").glob("*/*/*.log")],
    }


def _can(do: Callable[[], object]) -> bool:
    try:
        do()
    except PermissionError:
        return False
    return True


def _announce(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


def main(name: str, second: str, command: str) -> None:
    """Run a command; a scenario without a name is a node without a driver."""
    settings = load_settings({}, os.environ)
    set_up_logging("error", "text")
    library = driver(load(name), float(second)) if name else None
    node = Node(settings=settings, nvml_library=library)
    if command == "serve":
        from exporter.commands.serve import serve  # noqa: PLC0415 - the other command needs no web server

        asyncio.run(serve(node, _announce))
    else:
        json.dump(asyncio.run(report(node)), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
