"""The field values of the fake driver: many readings in one call, each with its own return code."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from exporter.demo.load import Flow
from exporter.demo.machine import GpuState
from exporter.demo.nvml import health, links
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import (
    NOT_SUPPORTED,
    SUCCESS,
    Function,
    RefusedError,
    number,
    refuse,
    require,
    target,
)
from exporter.demo.scenario.derive import (
    AMPERE,
    BLACKWELL,
    HOPPER,
    is_ga100,
    is_module,
    knows_field,
    nvlink_speed,
)
from exporter.model.readings import RECOVERY_ACTIONS

LATENCY_MICROSECONDS = 4
KIB = 1024
WHOLE_GPU, MODULE, MEMORY = 0, 1, 2
# What a module's processor draws beside its GPUs, and the part of a GPU's draw that is its memory's.
PROCESSOR_MILLIWATTS, MEMORY_PART = 120_000, 0.12

Read = Callable[[GpuState, int], int]


class Field(NamedTuple):
    """A field value: NVML's number of its type, the member of the union, and its reading by scope."""

    kind: int
    member: str
    read: Read


_FLAG = partial(Field, 1, "uiVal")
_COUNT = partial(Field, 3, "ullVal")
_DEGREES = partial(Field, 5, "siVal")
_ANYTHING = partial(Field, 4, "sllVal")


def _power(state: GpuState, scope: int) -> int:
    if scope == WHOLE_GPU:
        return state.power_mw
    if scope == MODULE and is_module(state.gpu):
        return state.power_mw + PROCESSOR_MILLIWATTS
    return refuse(NOT_SUPPORTED)


def _average_power(state: GpuState, scope: int) -> int:
    """Return the draw of late; the first Amperes do not average, and only large boards tell of memory."""
    if scope == MEMORY and state.gpu.architecture >= HOPPER:
        return round(state.power_mw * MEMORY_PART)
    require(state.gpu.architecture >= AMPERE and not is_ga100(state.gpu))
    return _power(state, scope)


def _held_back(flow: Flow) -> Field:
    return _COUNT(lambda state, _: state.totals[flow])


def _never(_state: GpuState, _scope: int) -> int:
    return 0


def _ecc_total(severity: int, scope: int) -> Field:
    return _COUNT(lambda state, _: health.ecc_total(state, severity, scope))


def _row(place: int) -> Field:
    return _COUNT(lambda state, _: health.rows(state)[place])


def _threshold(kind: int) -> Field:
    return _DEGREES(lambda state, _: health.margin_at(state.gpu, kind))


def _throughput(flow: Flow) -> Field:
    return _COUNT(lambda state, link: links.link_bytes(state, flow, link) // KIB)


def _link_bytes(flow: Flow) -> Field:
    """Return the counter of one link that came with the fifth generation."""

    def read(state: GpuState, link: int) -> int:
        require(state.gpu.architecture >= BLACKWELL)
        return links.link_bytes(state, flow, link)

    return _COUNT(read)


def _link_errors(error: str) -> Field:
    """Return the errors over all links."""
    return _COUNT(lambda state, _: links.link_errors(state.gpu, error))


def _later_recoveries(state: GpuState, link: int) -> int:
    """Return how often a link, or any of them, had to recover, as it is told from the fifth generation on."""
    require(state.gpu.architecture >= BLACKWELL)
    links.refuse_link(state.gpu, 0 if link == links.ALL_LINKS else link)
    return state.gpu.links.errors.get("recovery", 0) if link in (0, links.ALL_LINKS) else 0


FIELDS: Mapping[int, Field] = {
    3: _ecc_total(0, 0),
    4: _ecc_total(1, 0),
    5: _ecc_total(0, 1),
    6: _ecc_total(1, 1),
    29: _COUNT(lambda state, _: health.pages(state, 0)),
    30: _COUNT(lambda state, _: health.pages(state, 1)),
    31: _FLAG(lambda state, _: health.pages_pending(state)),
    38: _link_errors("crc_flit"),
    45: _link_errors("crc_data"),
    52: _link_errors("replay"),
    59: _link_errors("recovery"),
    74: _held_back("power"),
    75: _held_back("software_thermal"),
    **dict.fromkeys(range(76, 82), _COUNT(_never)),
    82: _FLAG(lambda state, _: health.memory_temperature(state)),
    90: _FLAG(lambda state, _: nvlink_speed(state.gpu) if links.is_active(state.gpu, 0) else 0),
    91: _FLAG(lambda state, _: state.gpu.links.nvlinks or refuse(NOT_SUPPORTED)),
    138: _throughput("nvlink_transmit"),
    139: _throughput("nvlink_receive"),
    **{142 + place: _row(place) for place in range(4)},
    165: _FLAG(lambda state, link: int(links.is_active(state.gpu, link))),
    185: _FLAG(_average_power),
    186: _FLAG(_power),
    193: _threshold(health.SHUTDOWN),
    194: _threshold(health.SLOWDOWN),
    195: _threshold(health.MEMORY_MAX),
    196: _threshold(health.GPU_MAX),
    197: _COUNT(lambda state, _: state.totals["pcie_transmit"]),
    198: _COUNT(lambda state, _: state.totals["pcie_receive"]),
    202: _link_bytes("nvlink_transmit"),
    204: _link_bytes("nvlink_receive"),
    215: _COUNT(_later_recoveries),
    230: _FLAG(lambda state, _: RECOVERY_ACTIONS.index(state.gpu.health.recovery_action)),
    269: _held_back("software_thermal"),
    270: _held_back("hardware_thermal"),
    271: _COUNT(_never),
}


def _values(device: GpuDevice, count: Any, values: Any) -> None:
    entries = target(values)
    for place in range(number(count)):
        _fill(entries[place], device)


def _fill(entry: Any, device: GpuDevice) -> None:
    entry.timestamp, entry.latencyUsec = round(device.state.wall * 1e6), LATENCY_MICROSECONDS
    field = FIELDS.get(entry.fieldId, _ANYTHING(_unknown))
    entry.valueType = field.kind
    try:
        setattr(entry.value, field.member, _value(device, field, entry.fieldId, entry.scopeId))
        entry.nvmlReturn = SUCCESS
    except RefusedError as refusal:
        entry.nvmlReturn = refusal.code


def _value(device: GpuDevice, field: Field, number_of_field: int, scope: int) -> int:
    """Return the value that the scenario wants, or the device's own."""
    whole = f"field:{number_of_field}"
    name = f"{whole}:{scope}" if scope else whole
    require(not {whole, name}.intersection(device.spec.unsupported))
    if name in device.spec.answers:
        return device.spec.answers[name][0]
    return field.read(device.state, scope) if knows_field(device.driver, number_of_field) else _unknown()


def _unknown(*_: object) -> int:
    return refuse(NOT_SUPPORTED)


FUNCTIONS: Mapping[str, Function] = {"nvmlDeviceGetFieldValues": Function("gpu", _values)}
