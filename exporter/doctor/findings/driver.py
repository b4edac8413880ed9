"""What can be found of the drivers as a whole."""

from typing import Final

from exporter.doctor.findings.finding import Finding

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
