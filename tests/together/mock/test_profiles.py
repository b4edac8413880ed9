"""Every profile of NVIDIA's mock driver: what the exporter reports is what the profile says."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.together.mock.nodes import PROFILES, Series, busy, devices, profile, read, written

SEVERITY = {"single_bit": "corrected", "double_bit": "uncorrected"}
# A series of a GPU and its labels: where the profile has its value, and what one unit of that is.
FACTS: Mapping[tuple[str, tuple[tuple[str, str], ...]], tuple[str, float]] = {
    ("memory_total_bytes", ()): ("memory.total_bytes", 1),
    ("memory_used_bytes", ()): ("memory.used_bytes", 1),
    ("memory_free_bytes", ()): ("memory.free_bytes", 1),
    ("memory_reserved_bytes", ()): ("memory.reserved_bytes", 1),
    ("bar1_total_bytes", ()): ("bar1_memory.total_bytes", 1),
    ("bar1_used_bytes", ()): ("bar1_memory.used_bytes", 1),
    ("utilization_ratio", ()): ("utilization.gpu", 0.01),
    ("memory_copy_utilization_ratio", ()): ("utilization.memory", 0.01),
    # The mock answers 0 for encoders and decoders, PCIe replays and retired pages, whatever the profile says.
    ("jpeg_utilization_ratio", ()): ("utilization.jpeg", 0.01),
    ("ofa_utilization_ratio", ()): ("utilization.ofa", 0.01),
    ("power_watts", ()): ("power.current_draw_mw", 0.001),
    ("power_limit_watts", ()): ("power.enforced_limit_mw", 0.001),
    ("power_limit_setting_watts", (("limit", "default"),)): ("power.default_limit_mw", 0.001),
    ("power_limit_setting_watts", (("limit", "min"),)): ("power.min_limit_mw", 0.001),
    ("power_limit_setting_watts", (("limit", "max"),)): ("power.max_limit_mw", 0.001),
    ("energy_joules_total", ()): ("power.total_energy_consumption_mj", 0.001),
    ("temperature_celsius", ()): ("thermal.temperature_gpu_c", 1),
    ("memory_temperature_celsius", ()): ("thermal.temperature_memory_c", 1),
    ("temperature_threshold_celsius", (("threshold", "shutdown"),)): ("thermal.shutdown_threshold_c", 1),
    ("temperature_threshold_celsius", (("threshold", "slowdown"),)): ("thermal.slowdown_threshold_c", 1),
    ("clock_hertz", (("clock", "graphics"),)): ("clocks.graphics_current", 1e6),
    ("clock_hertz", (("clock", "sm"),)): ("clocks.sm_current", 1e6),
    ("clock_hertz", (("clock", "memory"),)): ("clocks.memory_current", 1e6),
    ("clock_max_hertz", (("clock", "graphics"),)): ("clocks.graphics_max", 1e6),
    ("clock_max_hertz", (("clock", "sm"),)): ("clocks.sm_max", 1e6),
    ("clock_event_active", (("reason", "idle"),)): ("clocks_throttle_reasons.gpu_idle", 1),
    ("clock_event_active", (("reason", "power_cap"),)): ("clocks_throttle_reasons.sw_power_cap", 1),
    ("clock_event_active", (("reason", "hardware_slowdown"),)): ("clocks_throttle_reasons.hw_slowdown", 1),
    ("pcie_link_generation", ()): ("pcie.current_link_gen", 1),
    ("pcie_link_generation_max", ()): ("pcie.max_link_gen", 1),
    ("pcie_link_width", ()): ("pcie.current_link_width", 1),
    ("pcie_link_width_max", ()): ("pcie.max_link_width", 1),
    ("pcie_replays_total", ()): ("pcie.replay_counter", 1),
    ("remapped_rows", (("severity", "corrected"),)): ("remapped_rows.correctable", 1),
    ("remapped_rows", (("severity", "uncorrected"),)): ("remapped_rows.uncorrectable", 1),
    ("row_remap_pending", ()): ("remapped_rows.pending", 1),
    ("row_remap_failure", ()): ("remapped_rows.failure_occurred", 1),
    ("retired_pages", (("cause", "single_bit"),)): ("retired_pages.single_bit_retirement.count", 1),
    ("retired_pages", (("cause", "double_bit"),)): ("retired_pages.double_bit_retirement.count", 1),
} | {
    ("ecc_errors_total", (("severity", severity), ("scope", scope))): (
        f"ecc.errors.{scope}.{bits}.total",
        1,
    )
    for bits, severity in SEVERITY.items()
    for scope in ("volatile", "aggregate")
}


@cache
def _read(path: Path) -> Series:
    return read(path)


def _at(device: Mapping[str, Any], path: str) -> Any:
    """Return what a profile says at a path such as ``memory.total_bytes``; None if it says nothing."""
    value: Any = device
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value == "N/A" else value


def differences(config: dict[str, Any], series: Series) -> tuple[list[str], int]:
    """Return how the series differ from a profile, and how many values were compared."""
    different, compared = [], 0
    for device in devices(config):
        for (name, labels), (path, unit) in FACTS.items():
            expected = _at(device, path)
            key = (
                f"gpuslice_gpu_{name}",
                frozenset({("uuid", device["uuid"]), ("gpu", str(device["index"])), *labels}),
            )
            if expected is None or key not in series:
                continue
            compared += 1
            if series[key] != pytest.approx(expected * unit):
                different.append(
                    f"GPU {device['index']} {name} {labels}: {series[key]}, not {expected * unit}"
                )
    return different, compared


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_the_values_of_a_profile_are_reported(path: Path) -> None:
    config = profile(path)
    different, compared = differences(config, _read(path))
    assert not different, "; ".join(different[:12])
    assert compared >= 30 * len(config["devices"])


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_the_values_of_a_busy_node_are_reported(path: Path, tmp_path: Path) -> None:
    """Each GPU has its own values: none is taken for another's."""
    config = busy(profile(path))
    different, compared = differences(config, read(written(config, tmp_path)))
    assert not different, "; ".join(different[:12])
    assert compared >= 30 * len(config["devices"])


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_gpu_of_a_profile_is_identified(path: Path) -> None:
    infos = {
        found["uuid"]: found
        for name, labels in _read(path)
        if name == "gpuslice_gpu_info" and (found := dict(labels))
    }
    for device in devices(profile(path)):
        info = infos[device["uuid"]]
        assert info["gpu"] == str(device["index"])
        assert info["model"] == device["name"]
        assert info["serial"] == device["serial"]
        assert info["vbios"] == device["vbios_version"]
        assert info["architecture"].lower() == device["architecture"].removesuffix("_lovelace")
        assert info["pci_bus_id"] == f"0000{device['pci']['bus_id']}".upper()
