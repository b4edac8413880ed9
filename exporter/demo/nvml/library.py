"""NVML in software: an object for ``pynvml.nvmlLib``, so that the real binding runs above it.

Every function of ``nvml_table.FUNCTIONS`` becomes an attribute; one that is missing is an old driver's.
All calls pass one gate, which counts them, applies the faults in force and finds the device.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from exporter.demo.machine import GpuState
from exporter.demo.nvml import events, fields, gpm, gpu, health, links, mig, node, vgpu
from exporter.demo.nvml.board import GPU_INSTANCE, Board, Device, GpuDevice, Handles, MigDevice
from exporter.demo.nvml.call import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    Function,
    RefusedError,
    address_of,
    code_of,
    inputs,
    refuse,
    require,
)
from exporter.demo.nvml.events import EventSets, happening, recuts
from exporter.demo.nvml.node import FINDERS, Listing, error_string
from exporter.demo.scenario.faults import NvmlError, NvmlFault, NvmlHang, XidEvent
from exporter.demo.scenario.gpus import Node

FUNCTIONS: Mapping[str, Function] = {
    **node.FUNCTIONS,
    **gpu.FUNCTIONS,
    **mig.FUNCTIONS,
    **mig.PROCESS_FUNCTIONS,
    **vgpu.FUNCTIONS,
    **fields.FUNCTIONS,
    **events.FUNCTIONS,
    **health.POWER_FUNCTIONS,
    **gpu.VIDEO_FUNCTIONS,
    **health.FUNCTIONS,
    **links.FUNCTIONS,
    **links.TOPOLOGY_FUNCTIONS,
    **gpm.FUNCTIONS,
}

# The branch of the driver that a function came with; an older driver's library does not have it.
_SINCE = {
    "nvmlDeviceGetNvLinkRemoteDeviceType": 470,
    "nvmlDeviceGetJpgUtilization": 535,
    "nvmlDeviceGetOfaUtilization": 535,
    "nvmlDeviceGetMarginTemperature": 570,
}


def newer_than(driver: int) -> frozenset[str]:
    """Return the functions that this branch of the driver does not have."""
    return frozenset(name for name, since in _SINCE.items() if driver < since)


# Older drivers name the pids of the host to every caller.
FIRST_WITH_PID_VIEWS = 535
_INIT = frozenset({"nvmlInit_v2", "nvmlInitWithFlags"})
# The calls that work while the driver is not open.
_BEFORE = _INIT | {"nvmlShutdown"}
# What the library does by itself, without the kernel module.
_BY_ITSELF = _BEFORE | {"nvmlEventSetFree", "nvmlGpmSampleFree"}


class FakeNvml:
    """The driver's library on a fake node. Safe to call from any thread.

    ``calls`` counts by (function, device uuid), with "" for calls about no device. ``missing`` are
    functions that this driver does not have, ``host_pid`` says whether the caller sees the host's pids.
    """

    def __init__(self, node: Node, missing: Collection[str] = (), *, host_pid: bool = True) -> None:
        self.node = node
        self.opened = 0
        self.board = Board()
        self.calls: Counter[tuple[str, str]] = Counter()
        major = node.driver_version.partition(".")[0]
        driver = int(major) if major.isdigit() else FIRST_WITH_PID_VIEWS
        self._handles = Handles(driver=driver, lists_pids=host_pid or driver < FIRST_WITH_PID_VIEWS)
        self._listing = Listing()
        # Whether the kernel module is there, and whether it is the one that the library was opened with.
        self._loaded, self._same = True, True
        self.events = EventSets()
        self._reported: set[XidEvent] = set()
        self._faults: tuple[NvmlError | NvmlHang, ...] = ()
        self._hangs: dict[NvmlHang, threading.Event] = {}
        self._lock = threading.Lock()
        for name in FUNCTIONS.keys() - newer_than(driver) - set(missing):
            setattr(self, name, self._symbol(name, FUNCTIONS[name]))
        # The binding sets restype on this one; only a plain function lets it.
        self.nvmlErrorString = error_string

    @property
    def total_calls(self) -> int:
        """How many calls there were, of any function but the wait for events, which never rests."""
        with self._lock:
            counts = list(self.calls.items())
        return sum(count for (name, _), count in counts if FUNCTIONS[name].scope != "wait")

    def show(
        self, gpus: tuple[GpuState, ...], faults: tuple[NvmlFault, ...] = (), *, loaded: bool = True
    ) -> None:
        """Show these GPUs from now on, with these faults; calls that hang in a fault that is over return.

        A GPU that is cut otherwise than before, and an XID that is new, are reported as events. Once the
        kernel module is not ``loaded`` the library has to be opened anew.
        """
        with self._lock:
            self._loaded = loaded
            if not loaded:
                self._same = False
                self.events.forget()
            self._listing.show(gpus)
            before = self._make_board()
            self._faults = tuple(fault for fault in faults if not isinstance(fault, XidEvent))
            over = [self._hangs.pop(fault) for fault in list(self._hangs) if fault not in faults]
            for fault in faults:
                if isinstance(fault, NvmlHang):
                    self._hangs.setdefault(fault, threading.Event())
        for event in over:
            event.set()
        self._report(before, [fault for fault in faults if isinstance(fault, XidEvent)])

    def opens(self) -> None:
        """Count the GPUs that are there now; called when the library is initialised."""
        self._same = True
        self._listing.open()
        self._make_board()

    def closes(self) -> None:
        """Count nothing any more; called when the library is shut down."""
        self._listing.close()
        self.events.close()

    def release(self) -> None:
        """End every fault, let every hanging call return, and no call for events wait any more."""
        with self._lock:
            self._faults = ()
            events, self._hangs = list(self._hangs.values()), {}
        for event in events:
            event.set()
        self.events.release()

    def _make_board(self) -> Board:
        before = self.board
        self.board = self._handles.board(self._listing.gpus, self._listing.lost)
        return before

    def _report(self, before: Board, xids: list[XidEvent]) -> None:
        for recut in recuts(before, self.board):
            self.events.happen(recut)
        # One that is over is not told again; kept for ever, they would add up on a node that runs for days.
        self._reported.intersection_update(xids)
        for xid in xids:
            event = happening(self.board, xid)
            if event is not None and xid not in self._reported:
                self._reported.add(xid)
                self.events.happen(event)

    def _symbol(self, name: str, function: Function) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                self._call(name, function, arguments)
            except RefusedError as refusal:
                return refusal.code
            return SUCCESS

        return call

    def _call(self, name: str, function: Function, arguments: tuple[Any, ...]) -> None:
        device = self._device(name, function, arguments)
        uuid = device.spec.uuid if isinstance(device, Device) else ""
        with self._lock:
            self.calls[name, uuid] += 1
        self._misbehave(name, device)
        self._require_driver(name)
        if function.scope == "node":
            with self._lock:
                function.run(self, *arguments)
        elif function.scope == "wait":
            function.run(self, *arguments)
        elif isinstance(device, int):
            refuse(device)
        else:
            require(not self.board.is_lost(device), GPU_IS_LOST)
            _require_known(device, name, function)
            if function.scope == "lookup":
                function.run(device, *arguments)
            else:
                self._answer(device, name, function, arguments[1:])

    def _require_driver(self, name: str) -> None:
        """Refuse a call that needs the library opened, and the kernel module as it was then."""
        require(name not in _INIT or self._loaded, DRIVER_NOT_LOADED)
        open_now = self.opened and (self._same or name in _BY_ITSELF)
        require(name in _BEFORE or open_now, UNINITIALIZED)

    def _answer(self, device: Device, name: str, function: Function, arguments: tuple[Any, ...]) -> None:
        """Answer as the scenario wants it, or as the device would."""
        call = ":".join((name, *map(str, inputs(arguments))))
        require(call not in device.spec.unsupported)
        if function.write is not None and call in device.spec.answers:
            function.write(arguments, device.spec.answers[call])
        elif function.scope == "pair":
            other = self.board.by_address.get(address_of(arguments[0]))
            require(isinstance(other, GpuDevice), INVALID_ARGUMENT)
            function.run(device, other, *arguments[1:])
        elif function.scope == "registration":
            function.run(device, self, *arguments)
        else:
            function.run(device, *arguments)

    def _device(self, name: str, function: Function, arguments: tuple[Any, ...]) -> Device | int:
        """Return what the call is about, or the code of the error that there is no such device."""
        if function.scope in ("node", "wait"):
            return SUCCESS
        if function.scope == "lookup":
            return FINDERS[name](self.board, arguments[0])
        shift = GPU_INSTANCE if function.scope == "gpu instance" else 0
        return self.board.by_address.get(address_of(arguments[0]) - shift, INVALID_ARGUMENT)

    def _misbehave(self, name: str, device: Device | int) -> None:
        about = _uuids(device)
        for fault in self._faults:
            if fault.function in (None, name) and (fault.device is None or fault.device in about):
                if isinstance(fault, NvmlError):
                    refuse(code_of(fault.code) or SUCCESS)
                self._hang(fault)

    def _hang(self, fault: NvmlHang) -> None:
        with self._lock:
            event = self._hangs.get(fault)
        if event is not None:
            event.wait(fault.seconds)


def _uuids(device: Device | int) -> set[str]:
    if isinstance(device, int):
        return set()
    return {device.spec.uuid, device.gpu.gpu.uuid} if isinstance(device, MigDevice) else {device.spec.uuid}


def _require_known(device: Device, name: str, function: Function) -> None:
    """Refuse a call that this kind of device does not know."""
    require(name not in device.spec.unsupported)
    require(function.scope not in ("gpu", "pair", "registration") or not isinstance(device, MigDevice))
    if function.scope == "mig" and not isinstance(device, MigDevice):
        refuse(NOT_SUPPORTED if device.spec.mig is None else INVALID_ARGUMENT)
