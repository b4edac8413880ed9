"""Functions of the fake driver that concern the node: start, versions, and finding devices."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from exporter.demo.machine import GpuState
from exporter.demo.nvml.board import Board, Device, GpuDevice
from exporter.demo.nvml.call import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    UNINITIALIZED,
    Function,
    known,
    name_of,
    number,
    numbers,
    put_handle,
    require,
    text,
    text_of,
)
from exporter.demo.scenario.gpus import Node


class Driver(Protocol):
    """What these functions need of the library."""

    node: Node
    board: Board
    opened: int

    def opens(self) -> None:
        """Count the GPUs that are there now."""

    def closes(self) -> None:
        """Drop what the library has handed out."""


def _open(driver: Driver, *_flags: Any) -> None:
    if not driver.opened:
        driver.opens()
    driver.opened += 1


def _shut(driver: Driver) -> None:
    require(driver.opened, UNINITIALIZED)
    driver.opened -= 1
    if not driver.opened:
        driver.closes()


def by_index(board: Board, index: Any) -> Device | int:
    """Find a GPU by its NVML index."""
    place = number(index)
    return board.gpus[place] if 0 <= place < len(board.gpus) else INVALID_ARGUMENT


def by_uuid(board: Board, uuid: Any) -> Device | int:
    """Find a GPU or a MIG device by uuid."""
    wanted = text_of(uuid)
    return next((device for device in board.by_address.values() if device.spec.uuid == wanted), NOT_FOUND)


def _give(device: Device, _key: Any, reference: Any) -> None:
    put_handle(reference, device.address)


def _mig_by_index(device: GpuDevice, index: Any, reference: Any) -> None:
    slot = number(index)
    require(0 <= slot < known(device.spec.mig).max_slices, INVALID_ARGUMENT)
    require(slot in device.migs, NOT_FOUND)
    put_handle(reference, device.migs[slot].address)


FINDERS = {
    "nvmlDeviceGetHandleByIndex_v2": by_index,
    "nvmlDeviceGetHandleByUUID": by_uuid,
}

FUNCTIONS: Mapping[str, Function] = {
    "nvmlInit_v2": Function("node", _open),
    "nvmlInitWithFlags": Function("node", _open),
    "nvmlShutdown": Function("node", _shut),
    "nvmlSystemGetDriverVersion": text("node", lambda driver: driver.node.driver_version),
    "nvmlSystemGetNVMLVersion": text("node", lambda driver: driver.node.nvml_version),
    "nvmlSystemGetCudaDriverVersion": numbers("node", lambda driver: driver.node.cuda_version),
    "nvmlSystemGetCudaDriverVersion_v2": numbers("node", lambda driver: driver.node.cuda_version),
    "nvmlDeviceGetCount_v2": numbers("node", lambda driver: len(driver.board.gpus)),
    **dict.fromkeys(FINDERS, Function("lookup", _give)),
    "nvmlDeviceGetMigDeviceHandleByIndex": Function("gpu", _mig_by_index),
}


def error_string(code: Any) -> bytes:
    """Return what an error code means; works before the driver is opened."""
    return name_of(number(code)).encode()


class Listing:
    """Keeps the order of one library's GPUs, and what was last seen of each."""

    def __init__(self) -> None:
        self.lost: frozenset[str] = frozenset()
        self._there: dict[str, GpuState] = {}
        self._listed: dict[str, GpuState] | None = None

    @property
    def gpus(self) -> Collection[GpuState]:
        """The GPUs that are counted, in order, with those of ``lost`` as they were."""
        return (self._there if self._listed is None else self._listed).values()

    def show(self, gpus: tuple[GpuState, ...]) -> None:
        """Have these GPUs from now on."""
        self._there = {state.gpu.uuid: state for state in gpus}
        if self._listed is not None:
            self.lost |= self._listed.keys() - self._there.keys()
            for uuid in self._listed.keys() - self.lost:
                self._listed[uuid] = self._there[uuid]

    def open(self) -> None:
        """Count the GPUs that are there now, and stay with them."""
        self._listed, self.lost = dict(self._there), frozenset()

    def close(self) -> None:
        """Count whatever is there."""
        self._listed, self.lost = None, frozenset()
