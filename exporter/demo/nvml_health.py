"""Functions of the fake driver about errors of the memories, and about what was taken out of use for them."""

from collections.abc import Mapping
from typing import Any

from exporter.demo.boards import AMPERE, TURING
from exporter.demo.machine import GpuState
from exporter.demo.nvml_board import Device, GpuDevice, MigDevice
from exporter.demo.nvml_call import Function, number, numbers, put, record, target
from exporter.demo.nvml_codes import INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, refuse

SEVERITIES = ("corrected", "uncorrected")
SCOPES = ("volatile", "aggregate")
LOCATIONS = (
    "l1_cache",
    "l2_cache",
    "dram",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
    "sram",
)
CAUSES = ("single_bit", "double_bit")
BANKS = ("max", "high", "partial", "low", "none")
UNCORRECTED, VOLATILE = 1, 0
DRAM, SRAM = 2, 7
# Where retired pages lie; which ones they are is nobody's concern.
FIRST_PAGE, PAGE = 0x3A0000, 0x1000


def ecc_mode(state: GpuState) -> int:
    """Return 1 for a board with its ECC switched on, 0 for off."""
    ecc = state.gpu.health.ecc
    return refuse(NOT_SUPPORTED) if ecc is None else int(ecc)


def ecc_total(state: GpuState, severity: int, scope: int) -> int:
    """Return the errors in all memories. A GPU that is cut counts since the driver's load nowhere."""
    _refuse_no_counts(state, scope)
    kind = f"{_word(SEVERITIES, severity)}/{_word(SCOPES, scope)}/"
    return sum(count for place, count in state.gpu.health.errors.items() if place.startswith(kind))


def rows(state: GpuState) -> tuple[int, int, int, int]:
    """Return the rows remapped for corrected and uncorrected errors, and whether more are due or failed."""
    if state.gpu.architecture < AMPERE or state.instances:
        return refuse(NOT_SUPPORTED)
    health = state.gpu.health
    corrected, uncorrected = (health.remapped_rows.get(severity, 0) for severity in SEVERITIES)
    return corrected, uncorrected, int(health.row_remap_pending), int(health.row_remap_failure)


def pages(state: GpuState, cause: int) -> int:
    """Return the number of pages retired for this cause, on boards from before rows could be remapped."""
    if state.gpu.architecture >= AMPERE:
        return refuse(NOT_SUPPORTED)
    return state.gpu.health.retired_pages.get(_word(CAUSES, cause), 0)


def pages_pending(state: GpuState) -> int:
    """Return 1 if pages wait for a reboot to be retired."""
    if state.gpu.architecture >= AMPERE:
        return refuse(NOT_SUPPORTED)
    return int(state.gpu.health.retired_pages_pending)


def _errors(device: Device, severity: int, scope: int, location: int) -> int:
    """Return the errors in one place: caches and the like up to Volta, later all that is no DRAM as one."""
    place = f"{_word(SEVERITIES, severity)}/{_word(SCOPES, scope)}/{_word(LOCATIONS, location)}"
    gpu = device.gpu.gpu if isinstance(device, MigDevice) else device.state.gpu
    if location != DRAM and (location == SRAM) != (gpu.architecture >= TURING):
        refuse(NOT_SUPPORTED)
    if isinstance(device, MigDevice):
        if (severity, scope) != (UNCORRECTED, VOLATILE) or location == DRAM or not gpu.health.ecc:
            refuse(NOT_SUPPORTED)
        return 0
    _refuse_no_counts(device.state, scope)
    return gpu.health.errors.get(place, 0)


def _refuse_no_counts(state: GpuState, scope: int) -> None:
    if not state.gpu.health.ecc or (state.is_cut and scope == VOLATILE):
        refuse(NOT_SUPPORTED)


def _banks(device: GpuDevice) -> tuple[int, ...]:
    rows(device.state)
    return tuple(device.state.gpu.health.row_banks.get(left, 0) for left in BANKS)


def _retired(device: GpuDevice, cause: Any, count: Any, addresses: Any, times: Any = None) -> int | None:
    found = pages(device.state, number(cause))
    room = 0 if addresses is None else number(target(count))
    put(count, found)
    if found > room:
        return INSUFFICIENT_SIZE
    for place in range(found):
        addresses[place] = FIRST_PAGE + place * PAGE
        if times is not None:
            times[place] = 0
    return None


def _word(words: tuple[str, ...], place: int) -> str:
    return words[place] if 0 <= place < len(words) else refuse(INVALID_ARGUMENT)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetEccMode": numbers("gpu", lambda device: (ecc_mode(device.state),) * 2),
    "nvmlDeviceGetTotalEccErrors": numbers(
        "gpu", lambda device, severity, scope: ecc_total(device.state, severity, scope)
    ),
    "nvmlDeviceGetMemoryErrorCounter": numbers("any", _errors),
    "nvmlDeviceGetRemappedRows": numbers("gpu", lambda device: rows(device.state)),
    "nvmlDeviceGetRowRemapperHistogram": record("gpu", BANKS, _banks),
    "nvmlDeviceGetRetiredPages": Function("gpu", _retired),
    "nvmlDeviceGetRetiredPages_v2": Function("gpu", _retired),
    "nvmlDeviceGetRetiredPagesPendingStatus": numbers("gpu", lambda device: pages_pending(device.state)),
}
