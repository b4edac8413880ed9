"""The field values of the fake driver: many readings in one call, each with its own return code."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from exporter.demo.machine import Flow, GpuState
from exporter.demo.nvml import health, links
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import Code, Function, RefusedError, number, refuse, require, target
from exporter.demo.scenario import derive
from exporter.demo.scenario.gpus import Gpu
from exporter.model.readings import RECOVERY_ACTIONS

if TYPE_CHECKING:
    from exporter.demo.nvml import FakeNvml

LATENCY_MICROSECONDS = 4
# The field that depends on what has happened.
RECOVERY_ACTION = 230
# The code of a bit error ratio for none.
NO_BIT_ERRORS = 0xFFF
KIB = 1024
WHOLE_GPU, MODULE, MEMORY = 0, 1, 2
# Power of a module's processor, and the memory's part of a GPU's power.
PROCESSOR_MILLIWATTS, MEMORY_PART = 120_000, 0.12

Read = Callable[[GpuState, int], int]


class Field(NamedTuple):
    """A field value."""

    kind: int  # NVML's nvmlValueType_t
    member: str  # of the union nvmlValue_t
    read: Read  # gets the state and the scope of the field, such as a link


_FLAG = partial(Field, 1, "uiVal")
_COUNT = partial(Field, 3, "ullVal")
_DEGREES = partial(Field, 5, "siVal")


def _power(state: GpuState, scope: int) -> int:
    if scope == WHOLE_GPU:
        return state.power_mw
    require(scope == MODULE and derive.is_module(state.gpu))
    return state.power_mw + PROCESSOR_MILLIWATTS


def _average_power(state: GpuState, scope: int) -> int:
    """Return the average power; GA100 boards have none, and memory power starts with Hopper."""
    if scope == MEMORY and state.gpu.architecture >= derive.HOPPER:
        return round(state.power_mw * MEMORY_PART)
    require(state.gpu.architecture >= derive.AMPERE and not derive.is_ga100(state.gpu))
    return _power(state, scope)


def _total(flow: Flow) -> Field:
    return _COUNT(lambda state, _: state.totals[flow])


def _ecc_total(severity: int, scope: int) -> Field:
    return _COUNT(lambda state, _: health.ecc_total(state, severity, scope))


def _rows(place: int) -> Field:
    return _COUNT(lambda state, _: health.rows(state)[place])


def _threshold(kind: int) -> Field:
    return _DEGREES(lambda state, _: health.margin_at(state.gpu, kind))


def _link_kibibytes(flow: Flow) -> Field:
    return _COUNT(lambda state, link: links.link_bytes(state, flow, link) // KIB)


def _link_bytes(flow: Flow) -> Field:
    """Return the counter of one link that came with Blackwell."""

    def read(state: GpuState, link: int) -> int:
        require(state.gpu.architecture >= derive.BLACKWELL)
        return links.link_bytes(state, flow, link)

    return _COUNT(read)


def _errors(count: Callable[[Gpu, str, int], int], error: str) -> Field:
    return _COUNT(lambda state, link: count(state.gpu, error, link))


def _blackwell_errors(error: str) -> Field:
    return _errors(links.blackwell_errors, error)


def _successful_recoveries(state: GpuState, link: int) -> int:
    all_of_them, failed = (
        links.blackwell_errors(state.gpu, error, link) for error in ("recovery", "recovery_failed")
    )
    return all_of_them - failed


def _no_bit_errors(state: GpuState, link: int) -> int:
    links.blackwell_errors(state.gpu, "", link)  # refuses the same boards
    return NO_BIT_ERRORS


def _c2c_speed(state: GpuState, link: int) -> int:
    return links.C2C_MEGABYTES_PER_SECOND if links.c2c_active(state.gpu, link) else 0


def _nvlink_speed(state: GpuState, _scope: int) -> int:
    return derive.nvlink_speed(state.gpu) if links.is_active(state.gpu, 0) else 0


_ZERO = _COUNT(lambda _state, _scope: 0)
_UNKNOWN = Field(4, "sllVal", lambda _state, _scope: refuse())
# By NVML's numbers (NVML_FI_DEV_*).
FIELDS: Mapping[int, Field] = {
    3: _ecc_total(0, 0),
    4: _ecc_total(1, 0),
    5: _ecc_total(0, 1),
    6: _ecc_total(1, 1),
    29: _COUNT(lambda state, _: health.pages(state, 0)),
    30: _COUNT(lambda state, _: health.pages(state, 1)),
    31: _FLAG(lambda state, _: health.pages_pending(state)),
    38: _errors(links.link_errors, "crc_flit"),
    45: _errors(links.link_errors, "crc_data"),
    52: _errors(links.link_errors, "replay"),
    59: _errors(links.link_errors, "recovery"),
    74: _total("power"),
    75: _total("software_thermal"),
    **dict.fromkeys(range(76, 82), _ZERO),
    82: _FLAG(lambda state, _: health.memory_temperature(state)),
    90: _FLAG(_nvlink_speed),
    91: _FLAG(lambda state, _: state.gpu.links.nvlinks or refuse()),
    138: _link_kibibytes("nvlink_transmit"),
    139: _link_kibibytes("nvlink_receive"),
    **{142 + place: _rows(place) for place in range(4)},
    165: _FLAG(lambda state, link: int(links.is_active(state.gpu, link))),
    170: _FLAG(lambda state, _: state.gpu.links.c2c_links or refuse()),
    171: _FLAG(lambda state, link: int(links.c2c_active(state.gpu, link))),
    172: _FLAG(_c2c_speed),
    185: _FLAG(_average_power),
    186: _FLAG(_power),
    193: _threshold(health.SHUTDOWN),
    194: _threshold(health.SLOWDOWN),
    195: _threshold(health.MEMORY_MAX),
    196: _threshold(health.GPU_MAX),
    197: _total("pcie_transmit"),
    198: _total("pcie_receive"),
    202: _link_bytes("nvlink_transmit"),
    204: _link_bytes("nvlink_receive"),
    206: _blackwell_errors("malformed"),
    207: _blackwell_errors("buffer_overrun"),
    208: _blackwell_errors("received"),
    209: _blackwell_errors("remote"),
    210: _blackwell_errors("general"),
    211: _blackwell_errors("link_integrity"),
    212: _blackwell_errors("discarded"),
    213: _COUNT(_successful_recoveries),
    214: _blackwell_errors("recovery_failed"),
    215: _blackwell_errors("recovery"),
    219: _blackwell_errors("effective"),
    220: _FLAG(_no_bit_errors),
    221: _blackwell_errors("symbol"),
    222: _FLAG(_no_bit_errors),
    231: _errors(links.c2c_errors, "crc"),
    232: _errors(links.c2c_errors, "replay"),
    233: _errors(links.c2c_errors, "replay_back_to_back"),
    269: _total("software_thermal"),
    270: _total("hardware_thermal"),
    271: _ZERO,
}


# An H200 with driver 580.159.04 does not answer the latter in a call that asks for any of the former, because
# it has no C2C links.
C2C_FIELDS = frozenset({170, 231, 232, 233})
NOT_BESIDE_C2C = frozenset({193, 194, 195, 196, 270, 271})


def _values(device: GpuDevice, driver: "FakeNvml", count: Any, values: Any) -> None:
    entries = [target(values)[place] for place in range(number(count))]
    no_c2c = not device.state.gpu.links.c2c_links
    left_out = NOT_BESIDE_C2C if no_c2c and any(entry.fieldId in C2C_FIELDS for entry in entries) else ()
    for entry in entries:
        if entry.fieldId not in left_out:
            _fill(entry, device, driver)


def _fill(entry: Any, device: GpuDevice, driver: "FakeNvml") -> None:
    entry.timestamp, entry.latencyUsec = round(device.state.wall * 1e6), LATENCY_MICROSECONDS
    field = FIELDS.get(entry.fieldId, _UNKNOWN) if entry.fieldId != RECOVERY_ACTION else _action(driver)
    entry.valueType = field.kind
    try:
        setattr(entry.value, field.member, _value(device, driver.branch, field, entry.fieldId, entry.scopeId))
        entry.nvmlReturn = Code.SUCCESS
    except RefusedError as refusal:
        entry.nvmlReturn = refusal.code


def _action(driver: "FakeNvml") -> Field:
    return _FLAG(lambda state, _: RECOVERY_ACTIONS.index(driver.recovery_action(state.gpu)))


def _value(device: GpuDevice, branch: int, field: Field, field_id: int, scope: int) -> int:
    """Return the value that the scenario gives, or else that of the device."""
    any_scope = f"field:{field_id}"
    name = f"{any_scope}:{scope}" if scope else any_scope
    require(not {any_scope, name}.intersection(device.spec.unsupported))
    if name in device.spec.answers:
        return device.spec.answers[name][0]
    require(derive.knows_field(branch, field_id))
    return field.read(device.state, scope)


FUNCTIONS: Mapping[str, Function] = {"nvmlDeviceGetFieldValues": Function("gpu", _values, with_driver=True)}
