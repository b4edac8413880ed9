"""Functions of the fake driver about confidential computing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import Function, known, numbers, record
from exporter.demo.scenario.gpus import Node

if TYPE_CHECKING:
    from exporter.demo.nvml.library import FakeNvml

# In NVML's order: a constant of NVML is the index of its word.
ENVIRONMENTS = ("unavailable", "simulation", "production")
MULTI_GPU_MODES = ("none", "protected_pcie", "nvlink_encryption")
SETTINGS_V1 = 0x01000014


def hides_processes(node: Node) -> bool:
    """Return whether the driver lists no processes."""
    mode = node.confidential
    return mode is not None and mode.enabled and not mode.developer_tools


def _state(driver: "FakeNvml") -> tuple[int, int, int]:
    mode = known(driver.node.confidential)
    return ENVIRONMENTS.index(mode.environment), int(mode.enabled), int(mode.developer_tools)


def _settings(driver: "FakeNvml") -> tuple[int, ...]:
    return *_state(driver), MULTI_GPU_MODES.index(known(driver.node.confidential).multi_gpu)


def _is_ready(driver: "FakeNvml") -> int:
    return int(known(driver.node.confidential).ready)


def _protected_memory(device: GpuDevice) -> tuple[int, int, int]:
    total = known(device.spec.protected_memory)
    used = min(total, device.state.used)
    return total, used, total - used


FUNCTIONS: Mapping[str, Function] = {
    "nvmlSystemGetConfComputeState": record("node", "environment ccFeature devToolsMode", _state),
    "nvmlSystemGetConfComputeSettings": record(
        "node", "environment ccFeature devToolsMode multiGpuMode", _settings, SETTINGS_V1
    ),
    "nvmlSystemGetConfComputeGpusReadyState": numbers("node", _is_ready),
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": record("gpu", "total used free", _protected_memory),
}
