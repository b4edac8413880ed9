"""NVIDIA's mock of NVML: nodes from its profiles, busy and failing, and what the exporter reads of them.

The mock is pkg/gpu/mocknvml of github.com/NVIDIA/k8s-test-infra and is built there by ``make``; it is not
part of this project: ``make mock MOCK=FOLDER`` names the folder that has its library and its ``configs``.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.core.commands.program import run_anew

Config: TypeAlias = dict[str, Any]
Series: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]

FOLDER = Path(os.environ["NVML_MOCK"])
LIBRARY = FOLDER / "libnvidia-ml.so.1"
PROFILES = sorted((FOLDER / "configs").glob("mock-nvml-config-*.yaml"))
GIB = 1 << 30


def profile(path: Path) -> Config:
    """Return one of the mock's profiles."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def merged(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return ``base`` with ``changes`` in it; mappings are merged, all else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        known = result.get(key)
        result[key] = (
            merged(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
        )
    return result


def devices(config: Config) -> Iterator[Config]:
    """Return the whole configuration of each GPU: the defaults with its own values."""
    return (merged(config["device_defaults"], device) for device in config["devices"])


def busy(config: Config) -> Config:
    """Return a profile in which every GPU is in use with values of its own."""
    # The mock takes these from the defaults only.
    common = {
        "pcie": {"current_link_width": 8},
        "remapped_rows": {"correctable": 4, "uncorrectable": 5, "pending": True},
    }
    config["device_defaults"] = merged(config["device_defaults"], common)
    for number, device in enumerate(config["devices"], start=1):
        used = number * GIB + number
        memory = config["device_defaults"]["memory"]
        free = memory["total_bytes"] - memory.get("reserved_bytes", 0) - used
        changes = {
            "memory": {"used_bytes": used, "free_bytes": free},
            "bar1_memory": {"used_bytes": number << 20},
            "utilization": {
                "gpu": 10 * number,
                "memory": 9 * number,
                "encoder": number,
                "decoder": 2 * number,
            },
            "power": {
                "current_draw_mw": 50_000 + 1000 * number,
                "total_energy_consumption_mj": 10**9 * number,
            },
            "thermal": {"temperature_gpu_c": 40 + number},
            "clocks": {
                "graphics_current": 500 + number,
                "sm_current": 600 + number,
                "memory_current": 700 + number,
            },
            "clocks_throttle_reasons": {"gpu_idle": False, "sw_power_cap": number % 2 == 0},
        }
        # A device's own block replaces that of the defaults as a whole.
        device.update(
            {key: merged(config["device_defaults"].get(key, {}), block) for key, block in changes.items()}
        )
    return config


def written(config: Config, folder: Path) -> Path:
    """Write a profile to a file and return its path."""
    path = folder / "config.yaml"
    # As JSON, because a serial number such as 0320 without quotes is text here and a number for the mock.
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def on(config: Path) -> dict[str, str]:
    """Return the variables that make a program read a node of the mock."""
    return {"MOCK_NVML_CONFIG": str(config), "GPUSLICE_NVML_LIBRARY": str(LIBRARY)}


def read(config: Path) -> Series:
    """Poll a node of the mock once in a process of its own, and return all series."""
    done = run_anew("snapshot", "--format", "prometheus", **on(config))
    assert done.returncode == 0, done.stderr
    return parsed(done.stdout)


def parsed(page: str) -> Series:
    """Return the samples of a page by name and labels, without the name of the node."""
    return {
        (sample.name, frozenset(label for label in sample.labels.items() if label[0] != "node")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
