"""Finding, opening and closing the driver's library.

The binding keeps one library for the whole process, in a module global, with a cache of its functions
that it never clears; everything that has to know this is in this file.
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

from exporter.hangs import PATIENCE_SECONDS

SONAME = "libnvidia-ml.so.1"
# Where the library lies when it is not on the loader's path: the driver container of the GPU Operator,
# its older layout, the same roots mounted below /host, and the driver installer of GKE.
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
    """The driver cannot be used now. ``reason`` is the error's stable name, the text says what to do."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Library:
    """The driver's library: ``path`` overrides the search, ``library`` is an object with its functions."""

    def __init__(self, path: Path | None = None, library: Any = None) -> None:
        self._path = path
        self._library = library
        self._open = False
        self._before: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the driver has been initialised and not shut down since."""
        return self._open

    def open(self) -> None:
        """Load the library where needed and initialise the driver; raise DriverError if it cannot be."""
        if self._open:
            return
        self._before = pynvml.nvmlLib
        _use(self._library if self._library is not None else self._load())
        try:
            _initialise()
        except pynvml.NVMLError as error:
            _use(self._before)
            name = error_name(error)
            raise DriverError(name, f"NVML cannot be initialised: {ADVICE.get(name, name)}") from None
        self._open = True

    def close(self) -> None:
        """Shut the driver down once for the one time that it was initialised."""
        if not self._open:
            return
        self._open = False
        # A driver that is gone cannot be told goodbye.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        _use(self._before)

    def _load(self) -> Any:
        if self._path is not None:
            return _load_path(self._path)
        if pynvml.nvmlLib is not None:
            # Somebody else in this process has loaded one; the binding knows only one at a time.
            return pynvml.nvmlLib
        candidates = [SONAME, *(f"{root}/{SONAME}" for root in DRIVER_ROOTS)]
        for candidate in candidates:
            try:
                return _loaded(candidate)
            except OSError:
                continue
        raise DriverError(
            "LibraryNotFound",
            f"no {SONAME} on the loader's path nor below the known driver roots: install the NVIDIA driver, "
            "give the pod runtimeClassName nvidia with NVIDIA_VISIBLE_DEVICES=all, or name the file with "
            "--nvml-library",
        )


def _initialise() -> None:
    """Initialise the driver; a library that lacks what the binding calls may have an older function."""
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


def _loaded(path: str) -> CDLL:
    """Load a library, or raise OSError; the other threads go on while its own start-up code runs.

    CDLL lets no other thread run until that code is done. The C library's function, called through ctypes,
    does, and CDLL only looks up afterwards what is loaded already. Where the function fails, CDLL fails
    too, and says why.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        load = CDLL(None).dlopen
        load.argtypes, load.restype = (c_char_p, c_int), c_void_p
        load(os.fsencode(path), os.RTLD_NOW)
    return CDLL(path)


def _load_path(path: Path) -> CDLL:
    try:
        return _loaded(str(path))
    except OSError as error:
        raise DriverError("LibraryNotFound", f"--nvml-library {path} cannot be loaded: {error}") from None


def _use(library: Any) -> None:
    """Give the binding another library; it would go on calling the old one's functions from its cache."""
    if pynvml.nvmlLib is not library:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way


ADVICE = {
    "DriverNotLoaded": "the NVIDIA kernel module is not loaded: load it, or run this on a GPU node",
    "LibRmVersionMismatch": "the driver was upgraded under this process: it must be restarted",
    "FunctionNotFound": "the library lacks NVML's functions: it is another one or very old, so name the "
    "driver's own with --nvml-library",
    "NoPermission": "this user may not open the GPU: run as root with the device nodes visible",
    "Unknown": "the driver answers 'unknown error', as it does when the device nodes were taken away from "
    "a running container: restart the pod",
}


def error_name(error: Any) -> str:
    """Return the stable name of an NVML error code, such as ``GpuIsLost``; ``Error<code>`` if it has none."""
    for name, code in vars(pynvml).items():
        if name.startswith("NVML_ERROR_") and code == error.value:
            return "".join(part.capitalize() for part in name.removeprefix("NVML_ERROR_").split("_"))
    return f"Error{error.value}"


def advice(name: str) -> str:
    """Return one sentence: what an error of the whole driver means, and what to do."""
    return ADVICE.get(name, f"the driver answers {name}")


SLOT = "nvmlDeviceGetMigDeviceHandleByIndex"
# Their argument picks one of many things; some drivers call an argument invalid that this board has not.
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
    }
)
# What finds devices is asked at every sweep: the answer for one place says nothing of the next.
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
    """Where the driver's library is, what to ask it, and when to leave it alone.

    ``path`` names another library file, ``library`` is an object with the library's functions. ``sys_root``
    is the sysfs that shows GPUs being plugged in and out. ``pcie_throughput`` asks for PCIe throughput too,
    which takes 40 ms per GPU. ``boot_clock`` is the clock of process start times and ``clock`` that of
    readings, both in seconds. ``machine_pids`` says whether our pids are those of the machine. ``released``
    says why the driver must not be open now, "" where it may. A call about one device that takes longer than
    ``patience`` seconds hangs.
    """

    path: Path | None = None
    library: Any = None
    sys_root: Path | None = None
    pcie_throughput: bool = False
    boot_clock: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    machine_pids: Callable[[], bool] = lambda: True
    released: Callable[[], str] = lambda: ""
    patience: float = PATIENCE_SECONDS
