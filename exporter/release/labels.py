"""What the labels of a node say about its GPUs: whether their driver is wanted by somebody else."""

from collections.abc import Mapping
from typing import Final

_MIG_STATE: Final = "nvidia.com/mig.config.state"
_AT_WORK: Final = ("pending", "rebooting")
# The GPU Operator and its managers of drivers, MIG and vGPU take the operator's pods off a node by these,
# with values such as paused-for-driver-upgrade, paused-for-mig-change and paused-for-vgpu-change.
_DEPLOY: Final = "nvidia.com/gpu.deploy."
_PAUSED: Final = "paused-for-"
# For GPU clients that are not the operator's own. The others are "false" for good where somebody does not
# want one of the operator's parts, which says nothing about us.
_CLIENT: Final = f"{_DEPLOY}client"


def reason_of(labels: Mapping[str, str]) -> str:
    """Return why the labels ask for the driver, such as ``nvidia.com/mig.config.state is pending``, or ""."""
    reasons = (f"{name} is {value}" for name, value in sorted(labels.items()) if _asks(name, value))
    return next(reasons, "")


def _asks(name: str, value: str) -> bool:
    if name == _MIG_STATE:
        return value in _AT_WORK
    return (name.startswith(_DEPLOY) and value.startswith(_PAUSED)) or (name == _CLIENT and value == "false")
