"""The needs of a workload, and the reasons not to derive a verdict from them."""

from typing import NamedTuple

from exporter.advice.model import Need, Reason, Use, Window
from exporter.model import ADVICE_LABEL
from exporter.wording import duration, gibibytes

DAY, STEP = 86400.0, 300.0  # seconds of a day, and of a step of the means that advice goes by
# A window is too young below so many seconds held (or so many pods) and so many computing.
YOUNG, COMPUTED, JOBS = DAY, 3 * 3600.0, 5
COVERED, WELL_COVERED = 0.8, 0.95
MEMORY_MARGIN, _LEAST_MEMORY_MARGIN, COMPUTE_MARGIN = 1.15, 512 << 20, 1.2
LIMIT_HIT, NEAR_LIMIT = 0.98, 0.95
_REST = 0.05
# Shares of a device that engines take by default or by custom: JAX and XLA 0.75, vLLM and SGLang about 0.9.
_TAKEN, _TAKEN_WITHIN = (0.75, 0.90, 0.92, 0.95), 0.01
# Engines that take memory in advance, by the first letters of the names of their processes.
ENGINES = {
    "vllm": "vLLM",
    "VLLM::": "vLLM",
    "sglang": "SGLang",
    "tritonserver": "Triton",
    "trtllm": "TensorRT-LLM",
}
_VARIED = 0.9
# Drivers report use in whole percents.
_RESOLUTION = 0.01
# A program that fits itself takes the same share of devices of different sizes.
_SIZES_APART, _SAME_SHARE, _LARGE_SHARE = 1.3, 0.03, 0.5


class Refusal(NamedTuple):
    """A reason, and its facts in words."""

    reason: Reason
    why: str


def need_of(window: Window) -> Need | None:
    """Return what each device must have, by the largest replica; None if no memory use is known."""
    peaks = [use.memory_peak for use in window.uses if use.memory_peak is not None]
    if not peaks:
        return None
    peak = max(peaks)
    computing = [use for use in window.uses if use.computing]
    return Need(
        memory=int(max(peak * MEMORY_MARGIN, peak + _LEAST_MEMORY_MARGIN)),
        compute=_largest([use.compute_p95 if use.compute_coverage >= COVERED else None for use in computing]),
        sm=_largest([use.sm_p95 if use.compute_coverage >= COVERED else None for use in computing]),
    )


def _largest(shares: list[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return max(known) * COMPUTE_MARGIN if known and len(known) == len(shares) else None


def never_computed(use: Use) -> bool:
    """Return whether a device was measured nearly all the time, and did not compute in it."""
    return use.compute_coverage >= WELL_COVERED and not use.computing and use.compute_mean == 0


def refusal(window: Window) -> Refusal | None:
    """Return why no verdict can be derived from a window; None if one can."""
    return next(filter(None, (guard(window) for guard in _GUARDS)), None)


def _opted_out(window: Window) -> Refusal | None:
    return Refusal("opted_out", f"a pod has the label {ADVICE_LABEL}: off") if window.opted_out else None


def _young(window: Window) -> Refusal | None:
    # Holders that take turns on a GPU are judged together, over the time in which they were seen.
    seconds = window.held if window.workload else window.span
    if seconds >= YOUNG or (window.workload and window.pods >= JOBS):
        return None
    # What is held is added at the ends of steps, so before the first it is unknown.
    if seconds < STEP:
        return Refusal("young", "seen for less than 5 minutes")
    return Refusal("young", f"held for {duration(seconds)}, which is less than a day")


def _little_computing(window: Window) -> Refusal | None:
    if 0 < window.computing < COMPUTED:
        return Refusal("young", f"computed for {duration(window.computing)}, which is less than 3 hours")
    return None


def _rest(window: Window) -> Refusal | None:
    rest = window.device.unattributed
    if rest is None or rest <= _REST:
        return None
    return Refusal(
        "shared_rest", f"{100 * rest:.0f} % of the memory of the device is used by no known container"
    )


def _not_measured(window: Window) -> Refusal | None:
    if window.device.memory is None:
        return Refusal("not_measured", "the memory of the device is not known")
    share = window.coverage("memory")
    if share >= COVERED:
        return None
    return Refusal("not_measured", f"memory use was known for {100 * share:.0f} % of the time held")


def _preallocated(window: Window) -> Refusal | None:
    if window.engine:
        why = f"{window.engine} takes memory in advance, so used is more than needed"
        return Refusal("preallocated", why)
    for use in window.uses:
        if use.memory_peak and _is_flat(use):
            return Refusal("preallocated", "its memory does not change while its compute does")
        if use.memory_peak and (share := _taken(use, window)) is not None:
            why = f"its peak is {share:.2f} of the memory, as of programs that take it"
            return Refusal("preallocated", why)
    return None


def _is_flat(use: Use) -> bool:
    varied = (
        use.compute_p95 is not None
        and use.compute_mean is not None
        and use.compute_mean < _VARIED * (use.compute_p95 - _RESOLUTION)
    )
    return varied and use.memory_flat and use.held >= YOUNG


def _taken(use: Use, window: Window) -> float | None:
    """Return the share of the device's memory at the peak, if programs usually take that in advance."""
    limit = limit_of(use, window) or window.device.memory
    if not limit or use.memory_peak is None:
        return None
    share = use.memory_peak / limit
    return share if any(abs(share - taken) <= _TAKEN_WITHIN for taken in _TAKEN) else None


def _self_fitting(window: Window) -> Refusal | None:
    peaks = [use.memory_peak for use in window.uses if use.memory_peak is not None]
    usable = window.device.memory
    if not peaks or not usable:
        return None
    here = max(peaks) / usable
    for size, peak in window.sizes.items():
        apart = max(size, usable) / min(size, usable) >= _SIZES_APART
        if apart and here >= _LARGE_SHARE and abs(peak / size - here) <= _SAME_SHARE:
            return Refusal("self_fitting", "its peak grows with the memory of the device")
    return None


def limit_of(use: Use, window: Window) -> int | None:
    """Return the memory that a container cannot exceed: its enforced share, else that of the device."""
    if window.device.isolation != "none" and use.memory_entitled is not None:
        return use.memory_entitled
    return window.device.memory


def _limit_hit(window: Window) -> Refusal | None:
    for use in window.uses:
        limit = limit_of(use, window)
        if limit and use.memory_peak is not None and use.memory_peak >= LIMIT_HIT * limit:
            why = (
                f"its peak of {gibibytes(use.memory_peak)} GiB is at the limit: give it more, and look again"
            )
            return Refusal("limit_hit", why)
    return None


# In this order: the first that refuses is the reason.
_GUARDS = (
    _opted_out,
    _young,
    _rest,
    _not_measured,
    _little_computing,
    _limit_hit,
    _preallocated,
    _self_fitting,
)
