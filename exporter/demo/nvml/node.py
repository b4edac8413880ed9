"""Functions of the fake driver about the node: start, versions, and finding devices."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exporter.demo.nvml.board import Board, Device, GpuDevice
from exporter.demo.nvml.call import Code, Function, known, number, numbers, put_handle, require, text, text_of

if TYPE_CHECKING:
    from exporter.demo.nvml.library import FakeNvml


def _init(driver: "FakeNvml", *_flags: Any) -> None:
    if not driver.opened:
        driver.opens()
    driver.opened += 1


def _shutdown(driver: "FakeNvml") -> None:
    require(driver.opened, Code.UNINITIALIZED)
    driver.opened -= 1
    if not driver.opened:
        driver.closes()


def by_index(board: Board, index: Any) -> Device | int:
    """Return a GPU by its NVML index, or an error code."""
    place = number(index)
    return board.gpus[place] if 0 <= place < len(board.gpus) else Code.INVALID_ARGUMENT


def by_uuid(board: Board, uuid: Any) -> Device | int:
    """Return a GPU or a MIG device by uuid, or an error code."""
    given = text_of(uuid)
    devices = (device for device in board.by_address.values() if device.spec.uuid == given)
    return next(devices, Code.NOT_FOUND)


def _mig_by_index(device: GpuDevice, index: Any, reference: Any) -> None:
    require(0 <= number(index) < known(device.spec.mig).max_slices, Code.INVALID_ARGUMENT)
    require(number(index) in device.migs, Code.NOT_FOUND)
    put_handle(reference, device.migs[number(index)].address)


FINDERS = {"nvmlDeviceGetHandleByIndex_v2": by_index, "nvmlDeviceGetHandleByUUID": by_uuid}
_HANDLE = Function("lookup", lambda device, _key, reference: put_handle(reference, device.address))
_CUDA = numbers("node", lambda driver: driver.node.cuda_version)

FUNCTIONS: Mapping[str, Function] = {
    "nvmlInit_v2": Function("node", _init),
    "nvmlInitWithFlags": Function("node", _init),
    "nvmlShutdown": Function("node", _shutdown),
    "nvmlSystemGetDriverVersion": text("node", lambda driver: driver.node.driver_version),
    "nvmlSystemGetNVMLVersion": text("node", lambda driver: driver.node.nvml_version),
    "nvmlSystemGetCudaDriverVersion": _CUDA,
    "nvmlSystemGetCudaDriverVersion_v2": _CUDA,
    "nvmlDeviceGetCount_v2": numbers("node", lambda driver: len(driver.board.gpus)),
    **dict.fromkeys(FINDERS, _HANDLE),
    "nvmlDeviceGetMigDeviceHandleByIndex": Function("gpu", _mig_by_index),
}
