"""What can be found of the drivers as a whole."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor.report import Check, Finding
from exporter.formats.wording import plural
from exporter.model import CollectorHealth, Snapshot
from exporter.model.poll_result import NVIDIA_MODULE, PollResult

_GPUS: Final = "everything about NVIDIA's GPUs"
_AMD: Final = "run as root on the host, or privileged in a pod: deploy/components/amd"

POLL_FAILS: Final = Finding(
    "poll-fails", "missing", "everything", "restart the exporter, and report the traceback that is in its log"
)

LIBRARY_NOT_MOUNTED: Final = Finding(
    "library-not-mounted",
    "missing",
    _GPUS,
    "the node has a driver and this container does not get it: runtimeClassName: nvidia"
    " (deploy/components/nvidia-runtime) and NVIDIA_VISIBLE_DEVICES=all; on GKE deploy/components/gke;"
    " elsewhere mount the driver's library and name it with --nvml-library",
)
DRIVER_NOT_INSTALLED: Final = Finding(
    "driver-not-installed",
    "missing",
    _GPUS,
    "install the NVIDIA driver on this node, or keep the exporter off nodes without GPUs; to see a node that"
    " has one: gpuslice-exporter demo",
)
LIBRARY_UNUSABLE: Final = Finding(
    "library-unusable",
    "missing",
    _GPUS,
    "let --nvml-library name the libnvidia-ml.so.1 of the driver that this node runs, as a path in this"
    " container; without the option the usual places are searched",
)
LIBRARY_TOO_OLD: Final = Finding(
    "library-too-old",
    "missing",
    _GPUS,
    "name the driver's own libnvidia-ml.so.1 with --nvml-library; a stub of CUDA's is none",
)
DRIVER_NOT_LOADED: Final = Finding(
    "driver-not-loaded",
    "missing",
    _GPUS,
    "load the kernel module on the node (modprobe nvidia), or wait until the GPU Operator's driver pod is"
    " ready; to see a node that has one: gpuslice-exporter demo",
)
DEVICE_NODES_MISSING: Final = Finding(
    "device-nodes-missing",
    "missing",
    _GPUS,
    "give this container the device nodes (/dev/nvidiactl, /dev/nvidia0 and so on): runtimeClassName: nvidia"
    " (deploy/components/nvidia-runtime) and NVIDIA_VISIBLE_DEVICES=all; on GKE deploy/components/gke",
)
DEVICE_NODES_REVOKED: Final = Finding(
    "device-nodes-revoked",
    "missing",
    _GPUS,
    "delete this pod, so that a new one gets them; where it fails at once again, its container may not open"
    " them: NVIDIA's runtime (deploy/components/nvidia-runtime), or privileged (deploy/components/gke)",
)
DRIVER_MISMATCH: Final = Finding(
    "driver-mismatch",
    "missing",
    _GPUS,
    "delete this pod, so that a new one loads the new library; where the versions still differ, reboot the"
    " node so that the kernel loads the module that is installed",
)
DRIVER_DENIES: Final = Finding(
    "driver-denies",
    "missing",
    _GPUS,
    "run as uid 0 (runAsUser: 0) and let the container open the device nodes: NVIDIA's runtime"
    " (deploy/components/nvidia-runtime), or privileged (deploy/components/gke)",
)
DRIVER_HANGS: Final = Finding(
    "driver-hangs",
    "missing",
    "fresh readings; older ones go after --stale-after",
    "in the first half minute wait, and enable persistence mode on the node; later look for XIDs in the"
    " kernel log, drain the node, and reset the GPU or reboot",
)
DRIVER_RELEASED: Final = Finding(
    "driver-released",
    "missing",
    "the readings of all NVIDIA GPUs",
    "wait until who asked for it has done its work, or see docs/deploy.md: release windows",
)
DRIVER_NOT_RELEASED: Final = Finding(
    "driver-not-released",
    "missing",
    "the readings of all NVIDIA GPUs, and who waits for the driver waits in vain",
    "delete this pod, which lets go of the driver; look for XIDs in the kernel log",
)
DRIVER_FAILS: Final = Finding(
    "driver-fails",
    "missing",
    _GPUS,
    "see whether nvidia-smi works on the node, and what the kernel log says (NVRM)",
)
NO_GPU_VISIBLE: Final = Finding(
    "no-gpu-visible",
    "missing",
    _GPUS,
    "give this container all GPUs: NVIDIA_VISIBLE_DEVICES=all with runtimeClassName: nvidia"
    " (deploy/components/nvidia-runtime); where nvidia-smi -L on the node lists none, see its kernel log",
)
NO_NVIDIA_GPU: Final = Finding("no-nvidia-gpu", "absent")
GPU_UNIDENTIFIED: Final = Finding(
    "gpu-unidentified",
    "degraded",
    "everything about the others",
    "where nvidia-smi on the node shows them well, give this container all GPUs (NVIDIA_VISIBLE_DEVICES=all);"
    " else they are lost: drain the node and power-cycle it",
)
AMD_FAILS: Final = Finding("amd-fails", "missing", "everything about AMD's GPUs", _AMD)
DCGM_SILENT: Final = Finding(
    "dcgm-silent",
    "degraded",
    "profiling meters before Hopper",
    "see that a dcgm-exporter runs on this node and that --dcgm-exporter-url leads to it: docs/deploy.md,"
    " profiling from a dcgm-exporter",
)


_CAUSES: Final[Mapping[str, Finding]] = {
    "LibRmVersionMismatch": DRIVER_MISMATCH,
    "FunctionNotFound": LIBRARY_TOO_OLD,
    "NoPermission": DRIVER_DENIES,
    "Unknown": DEVICE_NODES_REVOKED,
    "deadline": DRIVER_HANGS,
    "NotReleased": DRIVER_NOT_RELEASED,
}


def driver_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Judge the drivers of the vendors that have hardware here, and a dcgm-exporter where one is named."""
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
        yield NO_NVIDIA_GPU.check("driver", "no GPU of NVIDIA's is here, only of other makers")
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
        yield GPU_UNIDENTIFIED.check("driver", f"{text}, of which {len(known)} can be told apart")
    else:
        yield Check("driver", "OK", text)


def _broken(snapshot: Snapshot, health: CollectorHealth, evidence: PollResult, settings: Settings) -> Check:
    if snapshot.node.released:
        return DRIVER_RELEASED.check("driver", health.message)
    missing = f"no kernel module ({settings.sys_root / NVIDIA_MODULE} is not there)"
    loaded = {
        True: "the kernel module is loaded",
        False: missing,
        None: "whether its module is loaded is not known",
    }
    message = health.message or "the last answer is too old"
    cause = _cause(health.reason, evidence, settings)
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
