"""What can be found of GPUs, their parts and their readings."""

from typing import Final

from exporter.doctor.findings.finding import Finding

_AMD: Final = "run as root on the host, or privileged in a pod: deploy/components/amd"

GPU_NOT_READ: Final = Finding("gpu-not-read", "absent")
GPU_BEHIND_DRIVER: Final = Finding(
    "gpu-behind-driver",
    "missing",
    "its readings",
    "mend what is said of the driver; this GPU needs nothing yet",
)
GPU_HANGS: Final = Finding(
    "gpu-hangs",
    "missing",
    "its readings",
    "look for its XIDs in the kernel log; drain it, and reset it (nvidia-smi --gpu-reset) or reboot the node",
)
GPU_LOST: Final = Finding(
    "gpu-lost",
    "missing",
    "its readings",
    "look for its XIDs in the kernel log; drain the node and power-cycle it: docs/xids.md",
)
GPU_NEEDS_RESET: Final = Finding(
    "gpu-needs-reset",
    "missing",
    "its readings",
    "drain it, open a release window (docs/deploy.md) and reset it: nvidia-smi --gpu-reset",
)
GPU_UNREAD: Final = Finding(
    "gpu-unread",
    "degraded",
    remedy="NoPermission: run as uid 0, and in MIG mode with deploy/components/mig-monitor; ResetRequired:"
    " drain the GPU and reset it; any other error: see the kernel log and the GPU's XIDs",
)
AMD_LOST: Final = Finding(
    "amd-lost",
    "missing",
    "its readings",
    "see what the kernel log says of amdgpu; reset it or reboot the node",
)
AMD_SUSPENDED: Final = Finding(
    "amd-suspended", "degraded", remedy="nothing: it is read again as soon as somebody uses it"
)
AMD_UNREAD: Final = Finding("amd-unread", "degraded", remedy=_AMD)
MIG_UNREAD: Final = Finding(
    "mig-unread",
    "degraded",
    "all of its MIG devices",
    "give the pod the right to monitor MIG: deploy/components/mig-monitor"
    " (NVIDIA_MIG_MONITOR_DEVICES=all with the capability SYS_ADMIN)",
)
READINGS_DENIED: Final = Finding(
    "readings-denied",
    "degraded",
    remedy="run as uid 0, and in MIG mode with deploy/components/mig-monitor; the calls are counted in"
    " gpuslice_nvml_errors_total",
)
READINGS_FAIL: Final = Finding(
    "readings-fail",
    "degraded",
    remedy="see the kernel log and the GPU's XIDs; the calls are counted in gpuslice_nvml_errors_total",
)
READINGS_NOT_HERE: Final = Finding("readings-not-here", "absent")
