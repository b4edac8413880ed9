"""Advice: which slice would fit a workload, and what that would free. It reads windows and never acts.

The verdict on a window is here: what would fit, by the sharing system of the devices held, or why there is
none. Memory must never run out, so its peak counts. Too little compute only slows: 5 % of the steps may need
more.
"""

from dataclasses import replace

from exporter.advice import limits, slices
from exporter.advice.guards import DAY, WELL_COVERED, Refusal, need_of, never_computed, refusal
from exporter.advice.limits import UNITS
from exporter.advice.model import Advice, Need, Option, Use, Window
from exporter.wording import mode_word, plural

_WEEK = 7 * DAY
# What these say of memory does not matter to a workload that never computes.
_NO_MATTER_IF_IDLE = frozenset({"limit_hit", "preallocated", "self_fitting", "not_measured"})
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
    # Verdict and target.
    if earlier.options and earlier.options[0][:2] == advice.options[0][:2]:
        return advice
    why = "a day ago another slice would have fitted"
    return replace(advice, options=(), confidence=None, reason="unsettled", why=why)


def _judge(window: Window) -> Advice:
    need, refused = need_of(window), refusal(window)
    blank = Advice(window=window, now=slices.held_words(window), need=need)
    if refused is None or refused.reason in _NO_MATTER_IF_IDLE:
        released = _released(window)
        if released is not None:
            return _sure(replace(blank, options=(released,)), window.coverage("compute"))
    coverage = window.coverage("memory")
    if refused is None:
        options, refused = _options(window, need)
    if refused is not None:
        return replace(blank, reason=refused.reason, why=refused.why, coverage=coverage)
    if window.device.unattributed is None:
        # It could forbid the advice.
        unknown = "memory of the device that no container accounts for is unknown"
        options = tuple(option._replace(notes=(*option.notes, unknown)) for option in options)
    if need is not None and need.compute is not None:
        coverage = min(coverage, window.coverage("compute"))
    return _sure(replace(blank, options=options or (Option("keep", blank.now, 0.0),)), coverage)


def _sure(advice: Advice, coverage: float) -> Advice:
    """Return the advice with its coverage, and the word for that and the days."""
    long = advice.window.span >= _WEEK and coverage >= WELL_COVERED
    known = advice.need is not None and (advice.need.compute is not None or not advice.window.computing)
    return replace(advice, coverage=coverage, confidence="high" if long and known else "medium")


def _released(window: Window) -> Option | None:
    """Return the advice to release what never computed: all devices, or some of each pod."""
    if window.held < DAY:
        return None
    idle: dict[object, list[Use]] = {use.holder: [] for use in window.uses}
    for use in window.uses:
        if never_computed(use):
            idle[use.holder].append(use)
    if sum(map(len, idle.values())) == len(window.uses):
        return Option("release", "nothing: it never computed", window.freed(), would_fit=True)
    count = min(map(len, idle.values()))
    kept = window.devices_of_pod - count
    freed = window.freed(uses=[use for uses in idle.values() for use in uses[:count]])
    return Option("fewer_gpus", plural(kept, "GPU"), freed, would_fit=True) if count and kept else None


def _options(window: Window, need: Need | None) -> slices.Outcome:
    """Return what would fit, the best first, or a reason; neither if what it holds fits best."""
    sharing = window.device.sharing
    if need is None:
        return (), Refusal("not_measured", "no memory use is known")
    if window.device.profile and sharing in ("mig", "dra"):
        return slices.of_mig_device(window, need)
    if sharing == "time-slicing":
        return slices.of_replicas(window)
    if sharing in UNITS and _is_shared(window):
        return limits.of_system(window, need, UNITS[sharing])
    if sharing in _WHOLE or not _is_shared(window):
        return slices.of_whole_gpu(window, need)
    return (), Refusal("no_rule", f"there is no rule for {mode_word(sharing)}")


def _is_shared(window: Window) -> bool:
    """Return whether what is held is less than a whole GPU."""
    return window.entitled_gpus(window.uses[0]) < 1.0
