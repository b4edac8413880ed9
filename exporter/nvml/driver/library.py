"""The driver's library: search, opening and closing, the options, and the names of NVML's errors.

Calls into it are in ``calls.py``; those that hang are abandoned by ``exporter/concurrency.py``.

The binding has one library for the whole process, in a module global, with a cache of its functions that it
never clears; only this file depends on that.
"""

import contextlib
import os
import time
from collections.abc import Callable
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
        self.is_open = False
        """Whether NVML is initialised."""
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
            raise DriverError(name, f"NVML cannot be initialised: {ADVICE.get(name, name)}") from None
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


ADVICE = {
    "DriverNotLoaded": "the NVIDIA kernel module is not loaded: load it, or run this on a GPU node",
    "LibRmVersionMismatch": "the driver was upgraded while the exporter was running: it must be restarted",
    "FunctionNotFound": "the library lacks NVML functions: it is very old or not NVML; set --nvml-library to "
    "the driver's library",
    "NoPermission": "this user may not open the GPU: run as root with the device nodes visible",
    "Unknown": "the driver answers 'unknown error', as when a running container loses access to its device "
    "nodes: restart the pod",
}


def error_name(error: Any) -> str:
    """Return the stable name of an NVML error code, such as ``GpuIsLost``; ``Error<code>`` if it has none."""
    for name, code in vars(pynvml).items():
        if name.startswith("NVML_ERROR_") and code == error.value:
            return "".join(part.capitalize() for part in name.removeprefix("NVML_ERROR_").split("_"))
    return f"Error{error.value}"


def advice(name: str) -> str:
    """Return the meaning and the remedy of an error of the whole driver, in one sentence."""
    return ADVICE.get(name, f"the driver answers {name}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """Options of the NVML source."""

    # A call about one device that takes longer is abandoned, in seconds: ``Budget.call_timeout``.
    call_timeout: float
    # Time to read one GPU, in seconds.
    gpu_budget: float
    # File of the library; None: search for it.
    path: Path | None = None
    # Object with the functions of the library, in place of a file.
    library: Any = None
    # Root of sysfs, to detect that GPUs are bound to or unbound from the driver.
    sys_root: Path | None = None
    # Whether to read PCIe throughput, which takes 40 ms per GPU.
    pcie_throughput: bool = False
    # Readings that nothing needs, and that are not read: keys of NEEDED_BY in exporter.metrics.selection.
    skip: frozenset[str] = frozenset()
    # Clock of process start times, and of readings, in seconds.
    boot_clock: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    # Whether the exporter's pids are those of the machine.
    machine_pids: Callable[[], bool] = lambda: True
    # Why the driver must not be open now; "" if it may be.
    released: Callable[[], str] = lambda: ""
