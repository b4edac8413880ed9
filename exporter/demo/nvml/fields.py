"""The field values of the fake driver: many readings in one call, each with its own return code."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from exporter.demo.machine import Flow, GpuState
from exporter.demo.nvml import health, links
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import Argument, Code, Function, RefusedError, refuse, require
from exporter.demo.scenario import derive
from exporter.demo.scenario.gpus import Gpu
from exporter.model.readings import RECOVERY_ACTIONS, RecoveryAction

LATENCY_MICROSECONDS = 4
# The field that depends on what has happened.
RECOVERY_ACTION = 230
# The code of a bit error ratio for none.
NO_BIT_ERRORS = 0xFFF
KIB = 1024
WHOLE_GPU, MODULE, MEMORY = 0, 1, 2
# Power of a module's processor, and the memory's part of a GPU's power.
PROCESSOR_MILLIWATTS, MEMORY_PART = 120_000, 0.12

# nvmlValueType_t, and its member of the union nvmlValue_t.
FLAG, COUNT, UNSUPPORTED, DEGREES = (1, "uiVal"), (3, "ullVal"), (4, "sllVal"), (5, "siVal")


class FieldValue:
    """A field value: its type, and the function that reads it.

    ``read`` gets the state, the scope of the field, such as a link, and what is ``given`` here.
    """

    def __init__(self, kind: tuple[int, str], read: Callable[..., int], *given: object) -> None:
        self.type, self.member = kind
        self.read = read
        self.given = given


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


def _total(state: GpuState, _scope: int, flow: Flow) -> int:
    return state.totals[flow]


def _kibibytes(state: GpuState, link: int, flow: Flow) -> int:
    return links.link_bytes(state, link, flow) // KIB


def _successful_recoveries(state: GpuState, link: int) -> int:
    recoveries = links.blackwell_errors(state, link, "recovery")
    return recoveries - links.blackwell_errors(state, link, "recovery_failed")


def _no_bit_errors(state: GpuState, link: int) -> int:
    links.blackwell_errors(state, link, "")  # refuses the same boards
    return NO_BIT_ERRORS


def _c2c_speed(state: GpuState, link: int) -> int:
    return links.C2C_MEGABYTES_PER_SECOND if links.c2c_active(state.gpu, link) else 0


def _nvlink_speed(state: GpuState, _scope: int) -> int:
    return derive.nvlink_speed(state.gpu) if links.is_active(state.gpu, 0) else 0


_ZERO = FieldValue(COUNT, lambda _state, _scope: 0)
_UNKNOWN = FieldValue(UNSUPPORTED, lambda _state, _scope: refuse())
# By NVML's numbers (NVML_FI_DEV_*).
FIELDS: Mapping[int, FieldValue] = {
    3: FieldValue(COUNT, health.ecc_total, 0, 0),
    4: FieldValue(COUNT, health.ecc_total, 1, 0),
    5: FieldValue(COUNT, health.ecc_total, 0, 1),
    6: FieldValue(COUNT, health.ecc_total, 1, 1),
    29: FieldValue(COUNT, health.pages, 0),
    30: FieldValue(COUNT, health.pages, 1),
    31: FieldValue(FLAG, health.pages_pending),
    38: FieldValue(COUNT, links.link_errors, "crc_flit"),
    45: FieldValue(COUNT, links.link_errors, "crc_data"),
    52: FieldValue(COUNT, links.link_errors, "replay"),
    59: FieldValue(COUNT, links.link_errors, "recovery"),
    74: FieldValue(COUNT, _total, "power"),
    75: FieldValue(COUNT, _total, "software_thermal"),
    **dict.fromkeys(range(76, 82), _ZERO),
    82: FieldValue(FLAG, health.memory_temperature),
    90: FieldValue(FLAG, _nvlink_speed),
    91: FieldValue(FLAG, lambda state, _: state.gpu.links.nvlinks or refuse()),
    138: FieldValue(COUNT, _kibibytes, "nvlink_transmit"),
    139: FieldValue(COUNT, _kibibytes, "nvlink_receive"),
    142: FieldValue(COUNT, health.rows, 0),
    143: FieldValue(COUNT, health.rows, 1),
    144: FieldValue(COUNT, health.rows, 2),
    145: FieldValue(COUNT, health.rows, 3),
    165: FieldValue(FLAG, lambda state, link: links.is_active(state.gpu, link)),
    170: FieldValue(FLAG, lambda state, _: state.gpu.links.c2c_links or refuse()),
    171: FieldValue(FLAG, lambda state, link: links.c2c_active(state.gpu, link)),
    172: FieldValue(FLAG, _c2c_speed),
    185: FieldValue(FLAG, _average_power),
    186: FieldValue(FLAG, _power),
    193: FieldValue(DEGREES, health.margin_at, health.SHUTDOWN),
    194: FieldValue(DEGREES, health.margin_at, health.SLOWDOWN),
    195: FieldValue(DEGREES, health.margin_at, health.MEMORY_MAX),
    196: FieldValue(DEGREES, health.margin_at, health.GPU_MAX),
    197: FieldValue(COUNT, _total, "pcie_transmit"),
    198: FieldValue(COUNT, _total, "pcie_receive"),
    202: FieldValue(COUNT, links.blackwell_bytes, "nvlink_transmit"),
    204: FieldValue(COUNT, links.blackwell_bytes, "nvlink_receive"),
    206: FieldValue(COUNT, links.blackwell_errors, "malformed"),
    207: FieldValue(COUNT, links.blackwell_errors, "buffer_overrun"),
    208: FieldValue(COUNT, links.blackwell_errors, "received"),
    209: FieldValue(COUNT, links.blackwell_errors, "remote"),
    210: FieldValue(COUNT, links.blackwell_errors, "general"),
    211: FieldValue(COUNT, links.blackwell_errors, "link_integrity"),
    212: FieldValue(COUNT, links.blackwell_errors, "discarded"),
    213: FieldValue(COUNT, _successful_recoveries),
    214: FieldValue(COUNT, links.blackwell_errors, "recovery_failed"),
    215: FieldValue(COUNT, links.blackwell_errors, "recovery"),
    219: FieldValue(COUNT, links.blackwell_errors, "effective"),
    220: FieldValue(FLAG, _no_bit_errors),
    221: FieldValue(COUNT, links.blackwell_errors, "symbol"),
    222: FieldValue(FLAG, _no_bit_errors),
    231: FieldValue(COUNT, links.c2c_errors, "crc"),
    232: FieldValue(COUNT, links.c2c_errors, "replay"),
    233: FieldValue(COUNT, links.c2c_errors, "replay_back_to_back"),
    269: FieldValue(COUNT, _total, "software_thermal"),
    270: FieldValue(COUNT, _total, "hardware_thermal"),
    271: _ZERO,
}


# An H200 with driver 580.159.04 does not answer the latter in a call that asks for any of the former, because
# it has no C2C links.
C2C_FIELDS = frozenset({170, 231, 232, 233})
NOT_BESIDE_C2C = frozenset({193, 194, 195, 196, 270, 271})


class _Driver(Protocol):
    branch: int

    def recovery_action(self, gpu: Gpu) -> RecoveryAction: ...


def _values(device: GpuDevice, driver: _Driver, count: Argument, values: Argument) -> None:
    entries = [values.target[place] for place in range(count.number)]
    no_c2c = not device.state.gpu.links.c2c_links
    left_out = NOT_BESIDE_C2C if no_c2c and any(entry.fieldId in C2C_FIELDS for entry in entries) else ()
    for entry in entries:
        if entry.fieldId not in left_out:
            _fill(entry, device, driver)


def _fill(entry: Any, device: GpuDevice, driver: _Driver) -> None:
    entry.timestamp, entry.latencyUsec = round(device.state.wall * 1e6), LATENCY_MICROSECONDS
    field = FIELDS.get(entry.fieldId, _UNKNOWN)
    if entry.fieldId == RECOVERY_ACTION:
        field = FieldValue(FLAG, lambda state, _: RECOVERY_ACTIONS.index(driver.recovery_action(state.gpu)))
    entry.valueType = field.type
    try:
        setattr(entry.value, field.member, _value(device, driver.branch, field, entry.fieldId, entry.scopeId))
        entry.nvmlReturn = Code.SUCCESS
    except RefusedError as refusal:
        entry.nvmlReturn = refusal.code


def _value(device: GpuDevice, branch: int, field: FieldValue, field_id: int, scope: int) -> int:
    """Return the value that the scenario gives, or else that of the device."""
    any_scope = f"field:{field_id}"
    name = f"{any_scope}:{scope}" if scope else any_scope
    require(not {any_scope, name}.intersection(device.spec.unsupported))
    if name in device.spec.answers:
        return device.spec.answers[name][0]
    require(derive.knows_field(branch, field_id))
    return field.read(device.state, scope, *field.given)


FUNCTIONS: dict[str, Function] = {"nvmlDeviceGetFieldValues": Function("gpu", _values, with_driver=True)}
