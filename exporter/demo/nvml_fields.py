"""The field values of the fake driver: many readings in one call, each with its own return code."""

from collections.abc import Callable, Mapping
from typing import Any

from exporter.demo.machine import GpuState
from exporter.demo.nvml_board import GpuDevice
from exporter.demo.nvml_call import Function, number, target
from exporter.demo.nvml_codes import NOT_SUPPORTED, SUCCESS
from exporter.demo.nvml_gpu import memory_temperature

UNSIGNED_INT, UNSIGNED_LONG_LONG = 1, 3
LATENCY_MICROSECONDS = 4

# Field id: type of the value, member of the union that holds it, and the reading.
FIELDS: Mapping[int, tuple[int, str, Callable[[GpuState], int | None]]] = {
    82: (UNSIGNED_INT, "uiVal", memory_temperature),
    83: (UNSIGNED_LONG_LONG, "ullVal", lambda state: state.energy_mj),
    94: (UNSIGNED_INT, "uiVal", lambda state: state.gpu.pcie_replays),
}


def _values(device: GpuDevice, count: Any, values: Any) -> None:
    entries = target(values)
    for place in range(number(count)):
        _fill(entries[place], device.state)


def _fill(entry: Any, state: GpuState) -> None:
    kind, member, read = FIELDS.get(entry.fieldId, (UNSIGNED_INT, "uiVal", _nothing))
    value = read(state)
    entry.timestamp, entry.latencyUsec = round(state.wall * 1e6), LATENCY_MICROSECONDS
    entry.valueType = kind
    entry.nvmlReturn = NOT_SUPPORTED if value is None else SUCCESS
    if value is not None:
        setattr(entry.value, member, value)


def _nothing(_state: GpuState) -> None:
    return None


FUNCTIONS: Mapping[str, Function] = {"nvmlDeviceGetFieldValues": Function("gpu", _values)}
