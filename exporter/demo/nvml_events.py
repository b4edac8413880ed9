"""Functions of the fake driver about events: sets of them, registration, and the wait."""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pynvml

from exporter.demo.nvml_board import Board, GpuDevice, MigDevice
from exporter.demo.nvml_call import Function, address_of, number, numbers, put_handle, target
from exporter.demo.nvml_codes import INVALID_ARGUMENT, NOT_SUPPORTED, refuse
from exporter.demo.nvml_event_sets import EventSets, Happening
from exporter.demo.schema_faults import XidEvent

XID, MIG_CONFIG = 0x8, 0x100
# Every bit that the driver knows: errors, and changes of clocks, performance state and power source.
ALL = 0xFF9F


class Driver(Protocol):
    """What these functions need of the library."""

    events: EventSets


def _supported(device: GpuDevice) -> int:
    return ALL if device.state.gpu.mig is not None else ALL & ~MIG_CONFIG


def _create(driver: Driver, reference: Any) -> None:
    put_handle(reference, driver.events.create())


def _register(device: GpuDevice, driver: Driver, mask: Any, event_set: Any) -> None:
    wanted = number(mask)
    if wanted & ~ALL:
        refuse(INVALID_ARGUMENT)
    if wanted & ~_supported(device):
        refuse(NOT_SUPPORTED)
    driver.events.register(address_of(event_set), device.address, wanted)


def _wait(driver: Driver, event_set: Any, reference: Any, milliseconds: Any) -> None:
    happening = driver.events.wait(address_of(event_set), number(milliseconds) / 1000)
    answer = target(reference)
    answer.device = ctypes.cast(happening.device, pynvml.c_nvmlDevice_t)
    answer.eventType, answer.eventData = happening.type, happening.data
    answer.gpuInstanceId, answer.computeInstanceId = happening.gi, happening.ci


def _free(driver: Driver, event_set: Any) -> None:
    driver.events.free(address_of(event_set))


FUNCTIONS: Mapping[str, Function] = {
    "nvmlEventSetCreate": Function("node", _create),
    "nvmlDeviceGetSupportedEventTypes": numbers("gpu", _supported),
    "nvmlDeviceRegisterEvents": Function("registration", _register),
    "nvmlEventSetWait_v2": Function("wait", _wait),
    "nvmlEventSetFree": Function("node", _free),
}


def happening(board: Board, event: XidEvent) -> Happening | None:
    """Tell an XID as the driver does, by the handle of its GPU; None when the device is not there."""
    device = next((each for each in board.by_address.values() if each.uuid == event.device), None)
    if isinstance(device, MigDevice):
        cut = device.state.instance
        return Happening(device=device.parent_address, type=XID, data=event.xid, gi=cut.gi, ci=cut.ci)
    return None if device is None else Happening(device=device.address, type=XID, data=event.xid)


def recuts(before: Board, after: Board) -> Iterator[Happening]:
    """Tell which GPUs of both boards are cut otherwise on the later one."""
    layouts = {device.address: _layout(device) for device in before.gpus}
    for device in after.gpus:
        if layouts.get(device.address, _layout(device)) != _layout(device):
            yield Happening(device=device.address, type=MIG_CONFIG)


def _layout(device: GpuDevice) -> frozenset[int]:
    return frozenset(mig.address for mig in device.migs.values())
