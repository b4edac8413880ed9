"""The units in which sharing systems limit a container, and the smallest step of each."""

from collections.abc import Mapping
from typing import NamedTuple

from exporter.model.mig_profiles import GIBIBYTE, MEBIBYTE


class MemoryUnit(NamedTuple):
    """How a request for memory is written."""

    resource: str
    step: int  # bytes
    form: str = "{} MiB"
    of: int = MEBIBYTE  # bytes of one unit in the form


class ComputeUnit(NamedTuple):
    """How a request for compute is written."""

    resource: str
    step: float = 0.01  # share of a GPU


class LimitUnits(NamedTuple):
    """The units of a system."""

    memory: MemoryUnit
    compute: ComputeUnit | None = None


class FractionUnit(NamedTuple):
    """One number for both memory and compute, as a share of a GPU."""

    resource: str  # or annotation


def _gibibytes(resource: str) -> MemoryUnit:
    return MemoryUnit(resource, GIBIBYTE, "{} GiB", GIBIBYTE)


_FIVE_PERCENT = 0.05

UNITS: Mapping[str, LimitUnits | FractionUnit] = {
    # The client limits of MPS: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
    "mps": LimitUnits(
        MemoryUnit("pinned device memory of each client", MEBIBYTE),
        ComputeUnit("active threads", _FIVE_PERCENT),
    ),
    "hami": LimitUnits(MemoryUnit("nvidia.com/gpumem", MEBIBYTE), ComputeUnit("nvidia.com/gpucores")),
    "hami-dra": LimitUnits(MemoryUnit("memory of the claim", MEBIBYTE), ComputeUnit("cores of the claim")),
    "volcano-vgpu": LimitUnits(
        MemoryUnit("volcano.sh/vgpu-memory", MEBIBYTE), ComputeUnit("volcano.sh/vgpu-cores")
    ),
    "vgpu-manager": LimitUnits(
        MemoryUnit("nvidia.com/vgpu-memory", MEBIBYTE), ComputeUnit("nvidia.com/vgpu-cores")
    ),
    "gpu-manager": LimitUnits(
        MemoryUnit("tencent.com/vcuda-memory", 256 * MEBIBYTE, "{} blocks of 256 MiB", 256 * MEBIBYTE),
        ComputeUnit("tencent.com/vcuda-core"),
    ),
    "qgpu": LimitUnits(
        _gibibytes("tke.cloud.tencent.com/qgpu-memory"),
        ComputeUnit("tke.cloud.tencent.com/qgpu-core", _FIVE_PERCENT),
    ),
    "elastic-gpu": LimitUnits(
        _gibibytes("elasticgpu.io/qgpu-memory"), ComputeUnit("elasticgpu.io/qgpu-core", _FIVE_PERCENT)
    ),
    "mgpu": LimitUnits(
        MemoryUnit("vke.volcengine.com/mgpu-memory", MEBIBYTE), ComputeUnit("vke.volcengine.com/mgpu-core")
    ),
    "koordinator": LimitUnits(
        MemoryUnit("koordinator.sh/gpu-memory", MEBIBYTE), ComputeUnit("koordinator.sh/gpu-core")
    ),
    "gpushare": LimitUnits(_gibibytes("aliyun.com/gpu-mem")),
    "cgpu": LimitUnits(_gibibytes("aliyun.com/gpu-mem"), ComputeUnit("aliyun.com/gpu-core.percentage")),
    "volcano-gpushare": LimitUnits(MemoryUnit("volcano.sh/gpu-memory", MEBIBYTE)),
    "kai": FractionUnit("gpu-fraction"),
    "runai": FractionUnit("gpu-fraction"),
    "tensor-fusion": LimitUnits(
        MemoryUnit("tensor-fusion.ai/vram-request", MEBIBYTE, "{}Mi"),
        ComputeUnit("tensor-fusion.ai/compute-percent-request"),
    ),
    "dra": LimitUnits(MemoryUnit("memory capacity of the request", MEBIBYTE)),
}
"""By the value of the label ``sharing``."""
