"""The driver's library: search, opening and closing, the options, and the names of NVML's errors.

The binding has one library for the whole process, in a module global, with a cache of its functions that it
never clears; only this file depends on that.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL, c_char_p, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

SONAME = "libnvidia-ml.so.1"
# Folders of the library outside the loader's path: the driver container of the GPU Operator in its layouts,
# the driver installer of GKE, and WSL.
DRIVER_ROOTS = (
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
CODE_FUNCTION_NOT_FOUND = 13
SLOT = "nvmlDeviceGetMigDeviceHandleByIndex"
# Calls with an argument that selects one of many values. Some drivers answer InvalidArgument for a value that
# the board does not have.
PICKING = frozenset(
    {
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetMemoryErrorCounter",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetGpuInstanceProfileInfo",
    }
)
# Calls that enumerate devices. They are made in every sweep: the answer for one place is none for another.
FINDING = frozenset(
    {
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMaxMigDeviceCount",
        SLOT,
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    }
)
# By name of the error: what is known, and what to do. NVML answers DriverNotLoaded without device nodes, too.
REMEDIES = {
    "Uninitialized": "the library was shut down, as by a reload of the kernel module: it is opened again",
    "NotSupported": "NVML does not support this system: check whether nvidia-smi works on the node",
    "NoPermission": "this user may not open the GPU: run as root with the device nodes visible",
    "NotFound": "the driver finds no GPU: check whether nvidia-smi -L on the node lists any",
    "InsufficientPower": "the power cables of a GPU are not attached properly: check them",
    "DriverNotLoaded": "the library reports that the kernel module is not loaded, as it also does without "
    "device nodes: load the module, give this container the device nodes, or run this on a GPU node",
    "Timeout": "the driver did not answer in time: check the kernel log of the node for XIDs",
    "IrqIssue": "the interrupts of a GPU have a problem: check the kernel log of the node",
    "LibraryNotFound": "a library that NVML needs is missing: mount all libraries of the driver",
    "FunctionNotFound": "the library lacks NVML functions: it is very old or not NVML; set --nvml-library to "
    "the driver's library",
    "CorruptedInforom": "the InfoROM of a GPU is corrupted: contact the hardware vendor",
    "GpuIsLost": "a GPU is not accessible any more: check the kernel log of the node, and power-cycle it",
    "ResetRequired": "a GPU has to be reset before it can be used: drain it and reset it",
    "OperatingSystem": "the operating system blocks the access to the GPUs, such as the device rules of the "
    "container: restart the pod, and use the NVIDIA runtime",
    "LibRmVersionMismatch": "the library and the kernel module are of different versions: if the driver was "
    "upgraded under the exporter, it must be restarted; else reboot the node, or check --nvml-library",
    "InUse": "a GPU is used by another process, which excludes others: end that process",
    "Memory": "the driver has too little memory: check the memory of the node and the limit of the pod",
    "InsufficientResources": "the driver has too few resources: check the kernel log of the node",
    "NotReady": "the driver is not ready yet: it is asked again at the next poll",
    "GpuNotFound": "the driver finds no GPU: check whether nvidia-smi -L on the node lists any",
    "InvalidState": "the driver is in a state in which it does not answer: check the kernel log of the node",
    "Unknown": "the driver answers 'unknown error', as when a running container loses access to its device "
    "nodes: restart the pod",
}


class DriverError(Exception):
    """The driver cannot be used now. ``reason`` is a stable name; the message contains the remedy."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Library:
    """The driver's library: from ``path``, from an object ``library`` with its functions, or searched for."""

    def __init__(self, path: Path | None = None, library: Any = None) -> None:
        self._path = path
        self._library = library
        # Whether NVML is initialised.
        self.is_open = False
        # The binding's library before this one was opened.
        self._previous: Any = None

    def open(self) -> None:
        """Load the library and initialise NVML, unless it is open. Raises DriverError."""
        if self.is_open:
            return
        self._previous = pynvml.nvmlLib
        _use(self._library if self._library is not None else self._load())
        try:
            _initialise()
        except pynvml.NVMLError as error:
            _use(self._previous)
            name = error_name(error)
            raise DriverError(name, f"NVML cannot be initialised ({name}): {remedy(name)}") from None
        self.is_open = True

    def close(self) -> None:
        """Shut NVML down, if it is open."""
        if not self.is_open:
            return
        self.is_open = False
        # An unloaded driver answers with an error.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        _use(self._previous)

    def _load(self) -> Any:
        if self._path is not None:
            try:
                return _load_library(str(self._path))
            except OSError as error:
                text = f"--nvml-library {self._path} cannot be loaded: {error}"
                raise DriverError("LibraryNotFound", text) from None
        if pynvml.nvmlLib is not None:
            # Other code in this process has loaded it; the binding supports only one library at a time.
            return pynvml.nvmlLib
        for candidate in (SONAME, *(f"{root}/{SONAME}" for root in DRIVER_ROOTS)):
            try:
                return _load_library(candidate)
            except OSError:
                continue
        raise DriverError(
            "LibraryNotFound",
            f"{SONAME} not found on the loader's path or in a known driver root: install the NVIDIA driver, "
            "set runtimeClassName nvidia and NVIDIA_VISIBLE_DEVICES=all for the pod, or set --nvml-library",
        )


def _initialise() -> None:
    """Initialise NVML; a library without the function that the binding calls may have an older one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value != CODE_FUNCTION_NOT_FOUND:
            raise
        try:
            code = pynvml.nvmlLib.nvmlInit_v2()
        except AttributeError:
            raise error from None
        if code != 0:
            raise pynvml.NVMLError(code) from None


def _load_library(path: str) -> CDLL:
    """Return a loaded library without blocking other threads during its start-up code. Raises OSError.

    CDLL holds the interpreter lock until that code has run; dlopen, called through ctypes, does not. CDLL
    then finds the library loaded, or fails like dlopen, with a message.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        load = CDLL(None).dlopen
        load.argtypes, load.restype = (c_char_p, c_int), c_void_p
        load(os.fsencode(path), os.RTLD_NOW)
    return CDLL(path)


def _use(library: Any) -> None:
    """Set the binding's library, and clear its cache of the old one's functions."""
    if pynvml.nvmlLib is not library:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way


def error_name(error: Any) -> str:
    """Return the stable name of an NVML error code, such as ``GpuIsLost``; ``Error<code>`` if it has none."""
    for name, code in vars(pynvml).items():
        if name.startswith("NVML_ERROR_") and code == error.value:
            return "".join(part.capitalize() for part in name.removeprefix("NVML_ERROR_").split("_"))
    return f"Error{error.value}"


def remedy(name: str) -> str:
    """Return the meaning and the remedy of an error of the whole driver, in one sentence."""
    otherwise = f"the driver answers {name}: check whether nvidia-smi works, and the kernel log of the node"
    return REMEDIES.get(name, otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """Options of the NVML source."""

    # A call about one device that takes longer is abandoned, in seconds: ``Budget.call_timeout``.
    call_timeout: float
    gpu_budget: float  # time to read one GPU, in seconds
    path: Path | None = None  # file of the library; None: search for it
    library: Any = None  # object with the functions of the library, in place of a file
    sys_root: Path | None = None  # root of sysfs, to detect that GPUs are bound to or unbound from the driver
    pcie_throughput: bool = False  # whether to read PCIe throughput, which takes 40 ms per GPU
    # Readings that are not read: dotted paths of GpuReading, such as ``ecc.by_location``.
    skip: frozenset[str] = frozenset()
    # Clock of process start times, and of readings, in seconds.
    boot_clock: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    machine_pids: Callable[[], bool] = lambda: True  # whether the exporter's pids are those of the machine
    released: Callable[[], str] = lambda: ""  # why the driver must not be open now; "" if it may be
    # By UUID of a GPU, directories of the cgroups whose memory limits the driver is asked for.
    limited_cgroups: Callable[[], Mapping[str, Sequence[str]]] = dict
