"""Verdicts on the limits of sharing systems: memory and compute, in the units and steps of the system."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from exporter.advice.guards import NEAR_LIMIT, Refusal
from exporter.advice.model import Need, Option, Use, Verdict, Window
from exporter.advice.slices import SLOWER, Outcome
from exporter.model.mig_profiles import GIBIBYTE, MEBIBYTE


class MemoryUnit(NamedTuple):
    """How a request for memory is written."""

    resource: str
    step: int = MEBIBYTE  # bytes
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

# By the value of the label ``sharing``.
UNITS: Mapping[str, LimitUnits | FractionUnit] = {
    # The client limits of MPS: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
    "mps": LimitUnits(
        MemoryUnit("pinned device memory of each client"), ComputeUnit("active threads", _FIVE_PERCENT)
    ),
    "hami": LimitUnits(MemoryUnit("nvidia.com/gpumem"), ComputeUnit("nvidia.com/gpucores")),
    "hami-dra": LimitUnits(MemoryUnit("memory of the claim"), ComputeUnit("cores of the claim")),
    "volcano-vgpu": LimitUnits(MemoryUnit("volcano.sh/vgpu-memory"), ComputeUnit("volcano.sh/vgpu-cores")),
    "vgpu-manager": LimitUnits(MemoryUnit("nvidia.com/vgpu-memory"), ComputeUnit("nvidia.com/vgpu-cores")),
    "vgpu-manager-dra": LimitUnits(MemoryUnit("memory of the claim"), ComputeUnit("cores of the claim")),
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
        MemoryUnit("vke.volcengine.com/mgpu-memory"), ComputeUnit("vke.volcengine.com/mgpu-core")
    ),
    "koordinator": LimitUnits(
        MemoryUnit("koordinator.sh/gpu-memory"), ComputeUnit("koordinator.sh/gpu-core")
    ),
    "gpushare": LimitUnits(_gibibytes("aliyun.com/gpu-mem")),
    "cgpu": LimitUnits(_gibibytes("aliyun.com/gpu-mem"), ComputeUnit("aliyun.com/gpu-core.percentage")),
    "volcano-gpushare": LimitUnits(MemoryUnit("volcano.sh/gpu-memory")),
    "kai": FractionUnit("gpu-fraction"),
    "runai": FractionUnit("gpu-fraction"),
    "tensor-fusion": LimitUnits(
        MemoryUnit("tensor-fusion.ai/vram-request", form="{}Mi"),
        ComputeUnit("tensor-fusion.ai/compute-percent-request"),
    ),
    "dra": LimitUnits(MemoryUnit("memory capacity of the request")),
}


# A smaller change is not worth a restart.
_LEAST_CHANGE, _LEAST_BYTES, _LEAST_COMPUTE = 0.25, 2 << 30, 0.05
_HUNDREDTH = 0.01
_LIMIT_STAYS = "compute unknown, so its limit stays"


def of_system(window: Window, need: Need, units: LimitUnits | FractionUnit) -> Outcome:
    """Return a smaller limit, or a larger one if memory is nearly full; all devices take the same."""
    held = max(window.uses, key=lambda use: use.memory_entitled or 0)
    if held.memory_entitled is None or not window.device.memory:
        return (), Refusal("no_rule", "no limit of memory is set or known")
    if need.memory > window.device.memory:
        return (), Refusal("limit_hit", "it may need more memory than the device has")
    if isinstance(units, FractionUnit):
        return _of_fraction(window, need, held, units.resource)
    memory = -(-need.memory // units.memory.step) * units.memory.step  # rounded up
    raised = _is_full(window)
    compute = None if raised else _compute(need, held, units.compute)
    smaller = held.memory_entitled - memory >= max(_LEAST_CHANGE * held.memory_entitled, _LEAST_BYTES)
    if not raised and not smaller and compute is None:
        return (), None
    parts = []
    if raised or smaller:
        parts.append(
            f"{units.memory.form.format(math.ceil(memory / units.memory.of))} {units.memory.resource}"
        )
    if compute is not None and units.compute is not None:
        parts.append(f"{100 * compute:.0f} % {units.compute.resource}")
    kept_memory = memory if raised or smaller else held.memory_entitled
    kept_compute = compute if compute is not None else held.compute_entitled
    share = max(kept_memory / window.device.memory, kept_compute or 0.0)
    notes = (_LIMIT_STAYS,) if need.compute is None and units.compute is not None else ()
    return (Option(_verdict(raised), " and ".join(parts), window.freed(share), notes),), None


def _is_full(window: Window) -> bool:
    return any(
        use.memory_entitled and (use.memory_peak or 0) >= NEAR_LIMIT * use.memory_entitled
        for use in window.uses
    )


def _compute(need: Need, held: Use, unit: ComputeUnit | None) -> float | None:
    """Return the smaller share of compute to set, None to leave it as it is."""
    if unit is None or need.compute is None or held.compute_entitled is None:
        return None
    share = min(_up_share(need.compute, unit.step), 1.0)
    change = held.compute_entitled - share
    return share if change >= max(_LEAST_CHANGE * held.compute_entitled, unit.step, _LEAST_COMPUTE) else None


def _of_fraction(window: Window, need: Need, held: Use, name: str) -> Outcome:
    """Return another fraction of the GPU, which is of memory and compute at once."""
    total = window.device.memory or 1
    fraction = min(_up_share(max(need.memory / total, need.compute or 0.0), _HUNDREDTH), 1.0)
    now, raised = (held.memory_entitled or 0) / total, _is_full(window)
    if not raised and now - fraction < max(_LEAST_CHANGE * now, _LEAST_BYTES / total):
        return (), None
    notes = (SLOWER,) if need.compute is None else ()
    return (Option(_verdict(raised), f"{name} {fraction:.2f}", window.freed(fraction), notes),), None


def _verdict(raised: bool) -> Verdict:
    return "larger_limit" if raised else "smaller_limit"


def _up_share(share: float, step: float) -> float:
    """Round up to a multiple of the step; a share that is one already stays, whatever floats make of it."""
    return math.ceil(round(share / step, 6)) * step
