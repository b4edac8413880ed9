"""NVML in software: an object for ``pynvml.nvmlLib``, so that the real binding runs above it.

Every row of ``FUNCTIONS`` becomes an attribute, unless the scenario's driver is too old for it. All calls
pass one gate, which counts them, applies the current faults and finds the device. The functions about the
node are here: start, versions, and finding devices. The others:

* ``gpu``: identity, memory, processes, utilization, modes, engines, confidential computing
* ``health``: memory errors and repairs, power, temperature, clocks, fans
* ``links``: PCIe, NVLink, C2C, topology
* ``parts``: MIG devices, vGPUs and their licenses
* ``fields``: field values, which are readings by number
* ``gpm``: profiling counters
* ``accounting``: the driver's accounts of processes
* ``events``: events of GPUs

``call`` has the kinds of functions, and their arguments; ``board`` the devices by handle.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from exporter.demo.cgroup_memory import DriverLimits
from exporter.demo.machine import GpuState
from exporter.demo.nvml import accounting, call, events, fields, gpm, gpu, health, links, parts
from exporter.demo.nvml.board import GPU_INSTANCE, Board, Device, GpuDevice, GpuList, MigDevice
from exporter.demo.nvml.call import Argument, Code, Function, RefusedError, known, numbers, refuse, require
from exporter.demo.scenario import NvmlError, NvmlFault, NvmlHang, XidEvent
from exporter.demo.scenario.gpus import Gpu, Node
from exporter.model.readings import RecoveryAction
from exporter.model.xids import RECOVERY_SINCE, XidClass, explain


def _mig_by_index(device: GpuDevice, index: Argument, reference: Argument) -> None:
    require(0 <= index.number < known(device.spec.mig).max_slices, Code.INVALID_ARGUMENT)
    require(index.number in device.migs, Code.NOT_FOUND)
    reference.put_handle(device.migs[index.number].address)


_CUDA = numbers("node", lambda driver: driver.node.cuda_version)

FUNCTIONS: dict[str, Function] = {
    "nvmlInit_v2": Function("node", lambda driver: driver.open()),
    "nvmlInitWithFlags": Function("node", lambda driver, _flags: driver.open()),
    "nvmlShutdown": Function("node", lambda driver: driver.close()),
    "nvmlSystemGetDriverVersion": call.text("node", lambda driver: driver.node.driver_version),
    "nvmlSystemGetNVMLVersion": call.text("node", lambda driver: driver.node.nvml_version),
    "nvmlSystemGetCudaDriverVersion": _CUDA,
    "nvmlSystemGetCudaDriverVersion_v2": _CUDA,
    "nvmlDeviceGetCount_v2": numbers("node", lambda driver: len(driver.board.gpus)),
    "nvmlDeviceGetHandleByIndex_v2": Function(
        "index", lambda device, reference: reference.put_handle(device.address)
    ),
    "nvmlDeviceGetMigDeviceHandleByIndex": Function("gpu", _mig_by_index),
}

FUNCTIONS |= gpu.FUNCTIONS | parts.FUNCTIONS | fields.FUNCTIONS | events.FUNCTIONS
FUNCTIONS |= health.FUNCTIONS | links.FUNCTIONS | gpm.FUNCTIONS | accounting.FUNCTIONS
# The branch of the driver that a function came with.
_SINCE = {
    "nvmlDeviceGetNvLinkRemoteDeviceType": 470,
    "nvmlDeviceGetJpgUtilization": 535,
    "nvmlDeviceGetOfaUtilization": 535,
    "nvmlDeviceGetMarginTemperature": 570,
    "nvmlDeviceGetRunningProcessDetailList": 535,
    "nvmlSystemGetConfComputeSettings": 550,
    "nvmlDeviceGetProcessesUtilizationInfo": 550,
    "nvmlDeviceGetVgpuInstancesUtilizationInfo": 550,
    "nvmlDeviceGetRepairStatus": 580,
    "nvmlDeviceGetAccountingStats_v2": 610,
    "nvmlDeviceGetMemoryLimits_v1": 615,
}
_AFTER_XIDS: Mapping[XidClass, RecoveryAction] = {"reset": "reset", "reboot": "reboot"}
_NVLINK_XIDS = range(144, 151)
# Older drivers report host pids to every caller.
FIRST_WITH_PID_VIEWS = 535
_INIT = frozenset({"nvmlInit_v2", "nvmlInitWithFlags"})
# The calls that work before the library is initialised.
_BEFORE_INIT = _INIT | {"nvmlShutdown"}
# The calls that work without the kernel module.
_WITHOUT_MODULE = _BEFORE_INIT | {"nvmlEventSetFree", "nvmlGpmSampleFree"}


class FakeNvml:
    """The driver's library on a fake node. Safe to call from any thread.

    ``calls`` counts by (function, device uuid), with "" for calls about no device. ``missing`` are
    functions that this driver does not have, ``host_pid`` is whether the caller sees the host's pids.
    """

    def __init__(self, node: Node, missing: Collection[str] = (), *, host_pid: bool = True) -> None:
        self.node = node
        self.opened = 0
        self.limits = DriverLimits()  # of cgroups
        self.board = Board()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.events = events.EventSets()
        self.gpm = gpm.Pool()
        major = node.driver_version.partition(".")[0]
        self.branch = int(major) if major.isdigit() else FIRST_WITH_PID_VIEWS
        sees_pids = host_pid or self.branch < FIRST_WITH_PID_VIEWS
        mode = node.confidential
        hidden = mode is not None and mode.enabled and not mode.developer_tools
        # False: process lists are empty.
        self.lists_pids = sees_pids and not hidden
        self._gpu_list = GpuList()
        self._module_loaded = True
        # False: the kernel module was reloaded since the library was initialised.
        self._module_unchanged = True
        self._reported: set[XidEvent] = set()
        # By uuid of the GPU, the recovery action since its XIDs.
        self._asked: dict[str, RecoveryAction] = {}
        self._faults: tuple[NvmlError | NvmlHang, ...] = ()
        self._hangs: dict[NvmlHang, threading.Event] = {}
        self._lock = threading.Lock()
        for name, function in FUNCTIONS.items():
            if name not in missing and self.branch >= _SINCE.get(name, 0):
                setattr(self, name, self._symbol(name, function))
        # The binding sets restype on this one, which only a plain function allows.
        self.nvmlErrorString = lambda code: call.name_of(Argument(code).number).encode()

    @property
    def total_calls(self) -> int:
        """The number of calls of all functions but the wait for events, which is called all the time."""
        with self._lock:
            counts = list(self.calls.items())
        return sum(count for (name, _), count in counts if FUNCTIONS[name].scope != "wait")

    def show(
        self, gpus: tuple[GpuState, ...], faults: tuple[NvmlFault, ...] = (), *, loaded: bool = True
    ) -> None:
        """Replace GPUs and faults; calls that hang in a fault that is over return.

        Changed MIG layouts and new XIDs are reported as events. If the kernel module is not ``loaded``, the
        library has to be initialised again.
        """
        with self._lock:
            self._module_loaded = loaded
            if not loaded:
                self._module_unchanged = False
                self._asked.clear()
                self.events.forget()
            earlier, self.board = self.board, self._gpu_list.show(gpus)
            self._faults = tuple(fault for fault in faults if not isinstance(fault, XidEvent))
            over = [self._hangs.pop(fault) for fault in list(self._hangs) if fault not in faults]
            for fault in faults:
                if isinstance(fault, NvmlHang):
                    self._hangs.setdefault(fault, threading.Event())
        for event in over:
            event.set()
        self._report(earlier, [fault for fault in faults if isinstance(fault, XidEvent)])

    def open(self) -> None:
        """Initialise the library; the first of several calls keeps to the GPUs that are present then."""
        if not self.opened:
            self.list_again()
        self.opened += 1

    def list_again(self) -> None:
        """Keep to the GPUs that are present now."""
        self._module_unchanged = True
        self.board = self._gpu_list.open()

    def close(self) -> None:
        """Shut the library down; the last of as many calls as of ``open`` drops list and event sets."""
        require(self.opened, Code.UNINITIALIZED)
        self.opened -= 1
        if not self.opened:
            self._gpu_list.close()
            self.events.close()

    def recovery_action(self, gpu: Gpu) -> RecoveryAction:
        """Return the action that the scenario gives, or else the one since an XID."""
        action = gpu.health.recovery_action
        return self._asked.get(gpu.uuid, action) if action == "none" else action

    def release(self) -> None:
        """End every fault, and return from every call that hangs or waits for events."""
        with self._lock:
            self._faults = ()
            hangs, self._hangs = list(self._hangs.values()), {}
        for event in hangs:
            event.set()
        self.events.release()

    def _report(self, earlier: Board, xids: list[XidEvent]) -> None:
        for change in events.layout_changes(earlier, self.board):
            self.events.happen(change)
        # XIDs that are over are dropped, or they would add up on a node that runs for days.
        self._reported.intersection_update(xids)
        for xid in xids:
            event = events.happening(self.board, xid)
            if event is not None and xid not in self._reported:
                self._reported.add(xid)
                self._ask_for_recovery(self.board.by_address[event.device], xid.xid)
                self.events.happen(event)

    def _ask_for_recovery(self, device: Device, xid: int) -> None:
        """Ask for what an XID needs. What those of NVLink need depends on details, and here it is nothing."""
        action = _AFTER_XIDS.get(explain(xid).kind)
        covered = xid not in _NVLINK_XIDS and self.branch >= RECOVERY_SINCE.get(xid, math.inf)
        if action is not None and covered:
            self._asked[device.spec.uuid] = action

    def _symbol(self, name: str, function: Function) -> Callable[..., int]:
        def symbol(*arguments: Any) -> int:
            try:
                self._call(name, function, tuple(map(Argument, arguments)))
            except RefusedError as refusal:
                return refusal.code
            return Code.SUCCESS

        return symbol

    def _call(self, name: str, function: Function, arguments: tuple[Argument, ...]) -> None:
        device = self._device(function, arguments)
        with self._lock:
            self.calls[name, "" if device is None else device.spec.uuid] += 1
        self._misbehave(name, device)
        self._require_init(name)
        if function.scope == "node":
            with self._lock:
                function.run(self, *arguments)
        elif function.scope == "wait":
            function.run(self, *arguments)
        elif device is None:
            refuse(Code.INVALID_ARGUMENT)
        else:
            require(device.gpu.gpu.uuid not in self.board.lost, Code.GPU_IS_LOST)
            self._answer(device, name, function, arguments[1:])

    def _require_init(self, name: str) -> None:
        """Refuse a call that needs the library initialised, with the kernel module that is loaded now."""
        require(name not in _INIT or self._module_loaded, Code.DRIVER_NOT_LOADED)
        usable = self.opened and (self._module_unchanged or name in _WITHOUT_MODULE)
        require(name in _BEFORE_INIT or usable, Code.UNINITIALIZED)

    def _answer(self, device: Device, name: str, function: Function, arguments: tuple[Argument, ...]) -> None:
        """Answer with the numbers that the scenario gives, or else as the device does."""
        scope, spec = function.scope, device.spec
        question = ":".join((name, *map(str, call.inputs(arguments))))
        require(name not in spec.unsupported and question not in spec.unsupported)
        if isinstance(device, MigDevice):
            require(scope in ("mig", "any", "gpu instance"))
        elif scope == "mig":
            refuse(Code.NOT_SUPPORTED if device.spec.mig is None else Code.INVALID_ARGUMENT)
        if function.write is not None and question in spec.answers:
            function.write(arguments, spec.answers[question])
            return
        require(scope != "whole gpu" or not device.gpu.gpu.mig_enabled)
        if scope == "pair":
            other = self.board.by_address.get(arguments[0].address)
            require(isinstance(other, GpuDevice), Code.INVALID_ARGUMENT)
            function.run(device, other, *arguments[1:])
        elif function.with_driver:
            function.run(device, self, *arguments)
        else:
            function.run(device, *arguments)

    def _device(self, function: Function, arguments: tuple[Argument, ...]) -> Device | None:
        """Return the device that the call is about, None if there is none."""
        if function.scope in ("node", "wait"):
            return None
        if function.scope == "index":
            index, gpus = arguments[0].number, self.board.gpus
            return gpus[index] if 0 <= index < len(gpus) else None
        shift = GPU_INSTANCE if function.scope == "gpu instance" else 0
        return self.board.by_address.get(arguments[0].address - shift)

    def _misbehave(self, name: str, device: Device | None) -> None:
        uuids = set() if device is None else {device.spec.uuid, device.gpu.gpu.uuid}
        for fault in self._faults:
            if fault.function in (None, name) and (fault.device is None or fault.device in uuids):
                if isinstance(fault, NvmlError):
                    refuse(call.code_of(fault.code) or Code.SUCCESS)
                with self._lock:
                    event = self._hangs.get(fault)
                if event is not None:
                    event.wait(fault.seconds)
