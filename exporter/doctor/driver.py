"""Findings and checks of drivers."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.config import Settings
from exporter.doctor import Check, Finding, absent, degraded, missing
from exporter.model import CollectorHealth, Snapshot
from exporter.model.poll_result import NVIDIA_MODULE, PollResult
from exporter.wording import plural

AMD_REMEDY: Final = "run as root on the host, or privileged in a pod: deploy/components/amd"


def _no_gpu_data(code: str, remedy: str) -> Finding:
    return missing(code, "all data of NVIDIA GPUs", remedy)


POLL_FAILS: Final = missing(
    "poll-fails", "everything", "restart the exporter and report the traceback in its log"
)

LIBRARY_NOT_MOUNTED: Final = _no_gpu_data(
    "library-not-mounted",
    "the node has a driver, but this container does not have its library: set runtimeClassName: nvidia "
    "(deploy/components/nvidia-runtime) and NVIDIA_VISIBLE_DEVICES=all; on GKE use deploy/components/gke; "
    "elsewhere mount the driver library and set --nvml-library to its path",
)
DRIVER_NOT_INSTALLED: Final = _no_gpu_data(
    "driver-not-installed",
    "install the NVIDIA driver on this node, or keep the exporter off nodes without GPUs; to see a "
    "simulated GPU node: gpuslice-exporter demo",
)
LIBRARY_UNUSABLE: Final = _no_gpu_data(
    "library-unusable",
    "set --nvml-library to the libnvidia-ml.so.1 of the running driver, as a path in this container; "
    "without the option the usual paths are searched",
)
LIBRARY_TOO_OLD: Final = _no_gpu_data(
    "library-too-old",
    "set --nvml-library to the driver's own libnvidia-ml.so.1; a CUDA stub library does not work",
)
DRIVER_NOT_LOADED: Final = _no_gpu_data(
    "driver-not-loaded",
    "load the kernel module on the node (modprobe nvidia), or wait until the GPU Operator's driver pod is "
    "ready; to see a simulated GPU node: gpuslice-exporter demo",
)
DEVICE_NODES_MISSING: Final = _no_gpu_data(
    "device-nodes-missing",
    "give this container the device nodes (/dev/nvidiactl, /dev/nvidia0 and so on): set runtimeClassName: "
    "nvidia (deploy/components/nvidia-runtime) and NVIDIA_VISIBLE_DEVICES=all; on GKE use "
    "deploy/components/gke",
)
DEVICE_NODES_REVOKED: Final = _no_gpu_data(
    "device-nodes-revoked",
    "delete this pod: its replacement gets the device nodes again; if that one fails at once too, its "
    "container may not open them: use the NVIDIA runtime (deploy/components/nvidia-runtime), or run "
    "privileged (deploy/components/gke)",
)
DRIVER_MISMATCH: Final = _no_gpu_data(
    "driver-mismatch",
    "delete this pod: its replacement loads the new library; if the versions still differ, reboot the node "
    "to load the installed kernel module",
)
DRIVER_DENIES: Final = _no_gpu_data(
    "driver-denies",
    "run as uid 0 (runAsUser: 0) and give the container access to the device nodes: use the NVIDIA runtime "
    "(deploy/components/nvidia-runtime), or run privileged (deploy/components/gke)",
)
DRIVER_HANGS: Final = missing(
    "driver-hangs",
    "new readings; the last ones are dropped after --stale-after",
    "in the first half minute, wait, and enable persistence mode on the node; after that, check the kernel "
    "log for XIDs, drain the node, and reset the GPU or reboot",
)
DRIVER_RELEASED: Final = missing(
    "driver-released",
    "the readings of all NVIDIA GPUs",
    "wait for the requester to finish; see docs/deploy.md: release windows",
)
DRIVER_NOT_RELEASED: Final = missing(
    "driver-not-released",
    "the readings of all NVIDIA GPUs; the requester does not get the driver",
    "delete this pod to release the driver, and check the kernel log for XIDs",
)
DRIVER_FAILS: Final = _no_gpu_data(
    "driver-fails", "check whether nvidia-smi works on the node, and check the kernel log for NVRM messages"
)
NO_GPU_VISIBLE: Final = _no_gpu_data(
    "no-gpu-visible",
    "give this container all GPUs: NVIDIA_VISIBLE_DEVICES=all with runtimeClassName: nvidia "
    "(deploy/components/nvidia-runtime); if nvidia-smi -L on the node lists none either, check its kernel "
    "log",
)
NO_NVIDIA_GPU: Final = absent("no-nvidia-gpu")
GPU_UNIDENTIFIED: Final = degraded(
    "gpu-unidentified",
    "all data of the other GPUs",
    "if nvidia-smi on the node shows them as healthy, give this container all GPUs "
    "(NVIDIA_VISIBLE_DEVICES=all); otherwise they are lost: drain the node and power-cycle it",
)
AMD_FAILS: Final = missing("amd-fails", "all data of AMD GPUs", AMD_REMEDY)
DCGM_SILENT: Final = degraded(
    "dcgm-silent",
    "profiling metrics of GPUs before Hopper",
    "check that a dcgm-exporter runs on this node and that --dcgm-exporter-url points to it: "
    "docs/deploy.md, profiling from a dcgm-exporter",
)


_CAUSES: Final[Mapping[str, Finding]] = {
    "LibRmVersionMismatch": DRIVER_MISMATCH,
    "FunctionNotFound": LIBRARY_TOO_OLD,
    "NoPermission": DRIVER_DENIES,
    "OperatingSystem": DEVICE_NODES_REVOKED,
    "Unknown": DEVICE_NODES_REVOKED,
    "NotFound": NO_GPU_VISIBLE,
    "GpuNotFound": NO_GPU_VISIBLE,
    "deadline": DRIVER_HANGS,
    "NotReleased": DRIVER_NOT_RELEASED,
}


# Reasons that a missing kernel module explains; with others it is loaded, even if its file is not there.
_OF_MODULE: Final = frozenset({"LibraryNotFound", "DriverNotLoaded"})


def driver_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Return the checks of the drivers of this node, and of the dcgm-exporter if one is configured."""
    if "nvml" in health:
        yield from _nvidia(snapshot, health["nvml"], evidence, settings)
    if "amd" in health:
        yield _amd(snapshot, health["amd"], settings)
    if "dcgm" in health:
        yield _dcgm(health["dcgm"])


def _nvidia(
    snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    known = [gpu for gpu in snapshot.gpus if gpu.identity.vendor == "nvidia"]
    if snapshot.gpus and not known and evidence.nvidia_module is False:
        yield NO_NVIDIA_GPU.check("driver", "no NVIDIA GPU, only GPUs of other vendors")
        return
    driver = snapshot.node.driver
    if not health.success or driver is None:
        yield _broken(snapshot, health, evidence, settings)
        return
    others = sum(gpu.identity.vendor == "amd" for gpu in snapshot.gpus)
    gpus = max((snapshot.node.gpu_count or 0) - others, 0)
    text = f"driver {driver.driver_version}, NVML {driver.nvml_version}, {plural(gpus, 'GPU')}"
    if not gpus:
        yield NO_GPU_VISIBLE.check("driver", text)
    elif len(known) < gpus:
        yield GPU_UNIDENTIFIED.check("driver", f"{text}, {len(known)} of them identified")
    else:
        yield Check("driver", "OK", text)


def _broken(snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings) -> Check:
    if snapshot.node.released:
        return DRIVER_RELEASED.check("driver", health.message)
    loaded = {
        True: "the kernel module is loaded",
        False: f"no kernel module ({settings.sys_root / NVIDIA_MODULE} does not exist)",
        None: "unknown whether the kernel module is loaded",
    }
    message = health.message or "the last answer is too old"
    cause = _cause(health.reason, evidence, settings)
    if evidence.nvidia_module is False and health.reason not in _OF_MODULE:
        return cause.check("driver", message)
    return cause.check("driver", f"{message}; {loaded[evidence.nvidia_module]}")


def _cause(reason: str, evidence: PollResult, settings: Settings) -> Finding:
    module = evidence.nvidia_module
    if reason == "LibraryNotFound":
        if settings.nvml_library is not None:
            return LIBRARY_UNUSABLE
        return LIBRARY_NOT_MOUNTED if module else DRIVER_NOT_INSTALLED
    if reason == "DriverNotLoaded":
        return DEVICE_NODES_MISSING if module else DRIVER_NOT_LOADED
    return _CAUSES.get(reason, DRIVER_FAILS)


def _amd(snapshot: Snapshot, health: CollectorHealth, settings: Settings) -> Check:
    if not health.success:
        return AMD_FAILS.check("amdgpu", health.message)
    cards = sum(gpu.identity.vendor == "amd" for gpu in snapshot.gpus)
    return Check("amdgpu", "OK", f"{plural(cards, 'AMD GPU')} in {settings.sys_root}")


def _dcgm(health: CollectorHealth) -> Check:
    # Without the URL, which may have a password in it.
    if not health.success:
        return DCGM_SILENT.check("dcgm-exporter", health.message)
    return Check("dcgm-exporter", "OK", "answers at --dcgm-exporter-url")
