"""What an error code of a call must do, and what it must not: the table that the matrix of errors is held to.

The reach of a fault is how much of the node it may cost: nothing at all, readings of the device that the call
is about, that device, or all GPUs of the driver. The counters of failures must name it, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import pynvml

from exporter.demo.nvml.call import code_of
from exporter.nvml.driver.library import error_name


class Kind(StrEnum):
    """The meaning of a code to the caller."""

    UNSUPPORTED = "not supported"
    INVALID = "invalid argument"
    NOTHING = "nothing there"
    FAILED = "failed"
    LOST = "GPU lost"
    GONE = "driver gone"


class Reach(IntEnum):
    """How much of the node a fault costs."""

    NOTHING = 0
    READINGS = 1
    DEVICE = 2
    DRIVER = 3


KINDS: Mapping[str, Kind] = {
    "UNINITIALIZED": Kind.GONE,
    "INVALID_ARGUMENT": Kind.INVALID,
    "NOT_SUPPORTED": Kind.UNSUPPORTED,
    "NO_PERMISSION": Kind.FAILED,
    "NOT_FOUND": Kind.NOTHING,
    "INSUFFICIENT_SIZE": Kind.FAILED,
    "DRIVER_NOT_LOADED": Kind.GONE,
    "TIMEOUT": Kind.FAILED,
    "LIBRARY_NOT_FOUND": Kind.FAILED,
    "FUNCTION_NOT_FOUND": Kind.UNSUPPORTED,
    "GPU_IS_LOST": Kind.LOST,
    "RESET_REQUIRED": Kind.FAILED,
    "OPERATING_SYSTEM": Kind.FAILED,
    "LIB_RM_VERSION_MISMATCH": Kind.GONE,
    "IN_USE": Kind.FAILED,
    "MEMORY": Kind.FAILED,
    "NO_DATA": Kind.FAILED,
    "ARGUMENT_VERSION_MISMATCH": Kind.UNSUPPORTED,
    "DEPRECATED": Kind.UNSUPPORTED,
    "NOT_READY": Kind.FAILED,
    "GPU_NOT_FOUND": Kind.LOST,
    "INVALID_STATE": Kind.FAILED,
    "UNKNOWN": Kind.FAILED,
}
"""The codes by NVML's name, and what each means to the product."""

QUIET = frozenset({Kind.UNSUPPORTED, Kind.NOTHING})
"""No failures: there is no such reading."""


@dataclass(frozen=True, slots=True)
class Effect:
    """``reach``; whether ``counted`` as a failure of the call, and the ``reason`` the collector fails with.

    ``either``: whether it may be counted or not, as the call was answered before or not.
    """

    reach: Reach
    counted: bool
    reason: str = ""
    either: bool = False


# The calls that every sweep begins a GPU with: without them it is not known which one it is.
FINDERS = frozenset({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"})
# Their own calls show which of the two is lost.
OF_PAIRS = frozenset({"nvmlDeviceGetTopologyCommonAncestor"})
# What is asked for every GPU that has a meter, as all of these nodes have that are asked it, and names none.
OF_METERS = frozenset({"nvmlGpmMetricsGet", "nvmlGpmSampleAlloc"})
# What is asked about no device.
OF_DRIVER = ("nvmlDeviceGetCount", "nvmlSystemGet")
OLDER_INIT = "nvmlInit_v2"
INIT = frozenset({"nvmlInitWithFlags", OLDER_INIT})
# These free what is no longer needed.
GIVING_BACK = frozenset({"nvmlShutdown", "nvmlEventSetFree", "nvmlGpmSampleFree"})
# A driver without events is not gone: other calls show that.
EVENTS = frozenset(
    {
        "nvmlEventSetCreate",
        "nvmlEventSetWait_v2",
        "nvmlDeviceRegisterEvents",
        "nvmlDeviceGetSupportedEventTypes",
    }
)


def effect(function: str, code: str, *, part: bool, everywhere: bool) -> Effect:
    """Return the effect of an error of a call about a GPU, a MIG device (``part``), all of them, or none."""
    kind, name = KINDS[code], error_name(pynvml.NVMLError(code_of(code)))
    special = _of_library(function, kind, name)
    if special is not None:
        return special
    if kind is Kind.GONE:
        # Beside other GPUs that are read it is said of one GPU alone.
        of_driver = everywhere or function.startswith(OF_DRIVER) or function in OF_METERS
        return Effect(
            Reach.DRIVER if of_driver else Reach.DEVICE, counted=True, reason=name if of_driver else ""
        )
    if function.startswith(OF_DRIVER):
        return _of_driver(function, kind, name)
    finds = function in FINDERS and not part
    if finds and everywhere and name == "Unknown":
        # So it is where the device nodes were taken away from the container.
        return Effect(Reach.DRIVER, counted=True, reason=name)
    lost = kind is Kind.LOST and function not in OF_PAIRS
    reach = Reach.DEVICE if finds or lost else Reach.READINGS
    counted = kind not in QUIET or (function, code) in SAID_AS
    return Effect(reach, counted=counted, either=kind is Kind.INVALID and not finds)


def _of_library(function: str, kind: Kind, name: str) -> Effect | None:
    """Return the effect of an error of a call that opens the library, frees something or is about events."""
    if function in GIVING_BACK:
        return Effect(Reach.NOTHING, counted=False)
    if function in INIT:
        # A library without what the binding calls is asked in the older form.
        if name == "FunctionNotFound" and function != OLDER_INIT:
            return Effect(Reach.NOTHING, counted=False)
        return Effect(Reach.DRIVER, counted=False, reason=name)
    if function in EVENTS:
        return Effect(Reach.READINGS, counted=kind is not Kind.UNSUPPORTED, either=True)
    return None


def _of_driver(function: str, kind: Kind, name: str) -> Effect:
    """Return the effect of an error of a call about no GPU: their number, and versions."""
    counted = kind not in QUIET
    if kind is Kind.LOST:
        return Effect(Reach.DRIVER, counted=counted, reason="GpuIsLost")
    if function.startswith("nvmlSystemGet"):
        return Effect(Reach.READINGS, counted=counted)
    return Effect(Reach.DRIVER, counted=counted, reason="Unknown" if name == "Unknown" else "NoCount")


# With these answers the driver does not fail but says something else: there is none, or nothing new.
SAYS_NONE: Mapping[str, frozenset[Kind]] = {
    "nvmlDeviceGetActiveVgpus": frozenset({Kind.NOTHING}),
    "nvmlVgpuInstanceGetUUID": frozenset({Kind.NOTHING}),
    "nvmlDeviceGetProcessUtilization": frozenset({Kind.NOTHING}),
    "nvmlDeviceGetVgpuUtilization": frozenset({Kind.NOTHING}),
    "nvmlDeviceGetMigMode": frozenset({Kind.UNSUPPORTED, Kind.NOTHING}),
    "nvmlDeviceGetMigDeviceHandleByIndex": frozenset({Kind.NOTHING, Kind.INVALID, Kind.UNSUPPORTED}),
}
# What is counted under another name: a call that finds nothing is taken for one that is refused.
SAID_AS: Mapping[tuple[str, str], str] = {("nvmlDeviceGetFieldValues", "NOT_FOUND"): "INVALID_ARGUMENT"}
# Where a call is not supported an older driver is at work, whose numbers mean less; the page says so.
OLDER: Mapping[str, frozenset[str]] = {
    # What the driver reserves is used.
    "nvmlDeviceGetMemoryInfo_v2": frozenset(
        {
            "gpuslice_gpu_memory_used_bytes",
            "gpuslice_mig_memory_used_bytes",
            "DCGM_FI_DEV_FB_USED",
            "DCGM_FI_DEV_FB_USED_PERCENT",
        }
    ),
    # A link through a switch looks like none to another GPU.
    "nvmlDeviceGetNvLinkRemoteDeviceType": frozenset({"gpuslice_gpu_peer_nvlinks"}),
}
