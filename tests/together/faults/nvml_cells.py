"""Cells of NVML: where calls fail, and the series that stand for more than one device."""

import re
from dataclasses import dataclass

from exporter.nvml.driver.library import FINDING, PICKING
from tests.together.faults.compare import RESTS
from tests.together.faults.nvml_claims import Kind

# Seconds between polls: more than ENERGY_SECONDS, so that each reads all energy and its counter grows evenly.
SOURCE, STEP = "NVML", 16.0
ONE, ALL, PART, NODE = "one GPU", "all GPUs", "one MIG device", "the driver"
# Asked once in the life of the process: nothing makes it ask again.
ONCE = frozenset({"nvmlVgpuTypeGetName", "nvmlVgpuTypeGetFramebufferSize"})
# After these the driver is reopened: calls that a device does not support are not made again before that.
REMEMBERED = frozenset({Kind.UNSUPPORTED, Kind.INVALID, Kind.NOTHING})
# The binding's name of the only call that it names longer than the library does.
C2C = {"nvmlDeviceGetC2cModeInfoV1": "nvmlDeviceGetC2cModeInfoV"}
WAIT = "nvmlEventSetWait_v2"
# A condition looks at the reasons of the last minute, and another thread waits for events. Fields that change
# slowly and fail in two polls are next read when they are due.
OVER_TIME = frozenset(
    {
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetFieldValues",
        WAIT,
    }
)
OF_EVENTS = frozenset(
    {
        "gpuslice_gpu_xid_errors_total",
        "gpuslice_gpu_condition",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_EXP_XID_ERRORS_COUNT",
    }
)
"""Series that are absent while events are not watched."""
STATES = frozenset(
    {
        "gpuslice_collector_success",
        "gpuslice_gpu_condition",
        "gpuslice_gpu_events_watched",
        "gpuslice_gpu_up",
        "gpuslice_nvml_unsupported",
    }
)
# Without any list of processes an exclusive holder has what the device says that is in use.
RUNNING, VIEW = "RunningProcesses", "gpuslice_process_attribution_available"
OF_DEVICE = RESTS | {VIEW, "gpuslice_container_memory_used_bytes"}
# How these are not supported is remembered by argument, or not at all as they are asked to find devices.
# The form of a call that is asked where the newer one of the same name is not supported already.
OLDER_FORM = "nvmlDeviceGetMemoryInfo"
BY_ARGUMENT = PICKING | FINDING | {"nvmlDeviceGetFieldValues"}
# The energy of a GPU is split by the use of its MIG devices; while one is unknown, no container gets any.
SPLIT = "gpuslice_container_energy_joules_total"
# They have no GPU's uuid. A GPU without a name is of no model, and one without a MIG mode has no profiles.
PROFILES = "gpuslice_node_mig_profile_"
REPORT = "nvmlDeviceGetGpuInstanceProfileInfoV"
OF_MODEL = frozenset(PROFILES + each for each in ("memory_bytes", "multiprocessors", "instances"))
OF_MODELS = frozenset({REPORT, "nvmlDeviceGetMigMode", "nvmlDeviceGetName"})
OF_NODE = re.compile(
    r'gpuslice_(node_info\b|node_gpus\b|node_mig_profile_|collector_success\{.*collector="nvml")'
)


@dataclass(frozen=True, slots=True)
class Case:
    """A cell: the function, how it fails, where, and the uuid of the device, "" for none in particular.

    ``how`` is the name of a code, or how long the call hangs.
    """

    function: str
    how: str
    where: str
    device: str
