"""The verdict on a window: what would fit, by the sharing system of the devices held, or why there is none.

Memory must never run out, so its peak counts. Too little compute only slows: 5 % of the steps may need more.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from exporter.advice import limits, slices
from exporter.advice.guards import (
    COVERED,
    DAY,
    WELL_COVERED,
    Refusal,
    compute_coverage_of,
    computed,
    coverage_of,
    need_of,
    never_computed,
    refusal,
)
from exporter.advice.model import Advice, Confidence, Need, Option, Window
from exporter.advice.units import UNITS
from exporter.advice.weights import average_gpus, entitled_gpus
from exporter.formats.wording import plural

_WEEK = 7  # days
_WHOLE = frozenset({"exclusive", "none", "dra"})


def advise(window: Window, before: Window | None = None) -> Advice:
    """Return the advice for a window.

    ``before`` is the part of the window up to a day or more before its end; advice that it contradicts is
    withheld as unsettled.
    """
    advice = _judge(window)
    earlier = _judge(before) if before is not None and advice.options else None
    if earlier is None or earlier.reason == "young":
        return advice
    if earlier.options and _same(earlier.options[0], advice.options[0]):
        return advice
    return replace(
        advice,
        options=(),
        confidence=None,
        reason="unsettled",
        why="a day ago another slice would have fitted",
    )


def _same(one: Option, other: Option) -> bool:
    return (one.verdict, one.target) == (other.verdict, other.target)


def _judge(window: Window) -> Advice:
    need = need_of(window)
    coverage = min(coverage_of(window), compute_coverage_of(window) if computed(window) else 1.0)
    blank = Advice(
        window=window,
        now=slices.held_words(window),
        need=need,
        days=(window.end - window.start) / DAY,
        coverage=coverage,
        pods=window.pods,
    )
    refused = refusal(window)
    if refused is None or _may_be_released(window, refused):
        released = tuple(_released(window))
        if released:
            return replace(blank, options=released, confidence=_confidence(blank))
    if refused is None and need is not None:
        options, refused = _options(window, need)
        if options:
            return replace(blank, options=options, confidence=_confidence(blank))
    if refused is not None:
        return replace(blank, reason=refused.reason, why=refused.why)
    return replace(blank, options=(Option("keep", blank.now, 0.0),), confidence=_confidence(blank))


def _may_be_released(window: Window, refused: Refusal) -> bool:
    """Return whether what refuses a size does not matter to a workload that never computes."""
    return (
        refused.reason in ("limit_hit", "preallocated", "self_fitting", "not_measured") and window.held >= DAY
    )


def _released(window: Window) -> Iterator[Option]:
    """Yield the advice to release what never computed: all devices, or some of each pod."""
    idle = [use for use in window.uses if never_computed(use)]
    if not idle or window.held < DAY:
        return
    freed = average_gpus(window, idle)
    if len(idle) == len(window.uses):
        yield Option("release", "nothing: it never computed", freed, would_fit=True)
        return
    by_pod = Counter(use.holder for use in idle)
    kept = window.devices_of_pod - min(by_pod.values())
    if kept > 0 and len(by_pod) == len({use.holder for use in window.uses}):
        yield Option("fewer_gpus", plural(kept, "GPU"), freed, would_fit=True)


def _options(window: Window, need: Need) -> tuple[tuple[Option, ...], Refusal | None]:
    """Return what would fit, the best first, and if nothing does and it cannot be told why, the reason."""
    sharing = window.device.sharing
    if window.device.profile and sharing in ("mig", "dra"):
        return slices.of_mig_device(window, need)
    if sharing == "time-slicing":
        return slices.of_replicas(window)
    if sharing in UNITS and _is_shared(window):
        return limits.of_system(window, need, UNITS[sharing])
    if sharing in _WHOLE or not _is_shared(window):
        return slices.of_whole_gpu(window, need)
    return (), None


def _is_shared(window: Window) -> bool:
    """Return whether what is held is less than a whole GPU."""
    return entitled_gpus(window, window.uses[0]) < 1.0


def _confidence(advice: Advice) -> Confidence | None:
    """Return a word for days, coverage and number of pods."""
    if advice.coverage < COVERED:
        # Compute is unknown, and the options say so.
        return "medium"
    if advice.days >= _WEEK and advice.coverage >= WELL_COVERED:
        return "high"
    return "medium"
