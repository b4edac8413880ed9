"""Parts of scenarios, and a bench to put them on: machine and driver, with time set by hand."""

import json
from typing import Any

from exporter.demo.machine import GpuState, Machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import parse

MIB = 1 << 20
WALL = 1_700_000_000.0


class Bench:
    """A machine and its driver's library, without kubelet and files."""

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        self.scenario = scenario
        self.machine = Machine(seed)
        self.nvml = FakeNvml(scenario.node, scenario.missing_functions, host_pid=scenario.host_pid)
        self.gpus: tuple[GpuState, ...] = ()
        self.step(0)

    def step(self, t: float) -> tuple[GpuState, ...]:
        """Bring machine and driver to a time."""
        now = present(self.scenario, t)
        self.gpus = self.machine.step(now, WALL + t)
        self.nvml.show(self.gpus, now.nvml_faults, loaded=now.loaded)
        return self.gpus


def gpu(**changes: Any) -> dict[str, Any]:
    """Return a plausible board: 16 GiB, 512 MiB reserved, 100 MiB that no process accounts for."""
    board = {
        "model": "NVIDIA Test",
        "architecture": 7,
        "memory_total": "16 GiB",
        "memory_reserved": "512 MiB",
        "overhead": "100 MiB",
        "power_idle_mw": 20_000,
        "power_max_mw": 120_000,
        "temperature_base": 30,
        "clocks": {"sm_idle": 210, "sm_max": 1410, "memory": 1215, "video_max": 1290},
    }
    return board | changes


def instance(gi: int, start: int, **changes: Any) -> dict[str, Any]:
    """Return one 1g.2gb instance."""
    cut = {
        "gi": gi,
        "start": start,
        "profile": "1g.2gb",
        "memory_bytes": "2 GiB",
        "multiprocessors": 14,
    }
    return cut | changes


def pod(name: str, /, *processes: dict[str, Any], **container: Any) -> dict[str, Any]:
    """Return a pod of one container."""
    return {
        "namespace": "ml",
        "name": name,
        "containers": [{"name": "main", "processes": list(processes)} | container],
    }


def document(**parts: Any) -> dict[str, Any]:
    """Return a scenario of one GPU and no pods, with parts replaced."""
    node = node_of(550) | {"driver_version": "550.90.07", "nvml_version": "12.550.90.07"}
    return {"name": "test", "node": node, "gpus": [gpu()]} | parts


def node_of(branch: int) -> dict[str, Any]:
    """Return a node with a driver of a branch."""
    return {
        "name": "node-1",
        "driver_version": f"{branch}.10.01",
        "nvml_version": f"12.{branch}.10.01",
        "cuda_version": 12040,
    }


def made(**parts: Any) -> Scenario:
    """Return the scenario of a document with these parts."""
    return parse(json.dumps(document(**parts)), "test.json")
