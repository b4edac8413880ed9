"""Queries of capacity, held, used and idle amounts of the fleet, from recording rules or from the raw series.

Levels are ``cluster``, ``namespace``, ``node`` and ``model``; all have the label ``cluster``.
"""

from dataclasses import dataclass

from dashboards.clashes import unclashed
from dashboards.promql import CLUSTER, DEVICE, FALLBACK, TARGET, either, node_names, own

GPUS = "suffix: GPUs"
GPU_HOURS = "suffix: GPU-h"

_LEVELS = {
    "cluster": "cluster",
    "namespace": "cluster, namespace",
    "node": "cluster, node",
    "model": "cluster, model",
}

_RAW = f"{CLUSTER}, {FALLBACK}"
_UP = f"gpuslice_gpu_up{{{_RAW}}}"
_SLICES = f"gpuslice_container_slices{{{_RAW}}}"
_LAST_ACTIVE = f"gpuslice_container_last_active_timestamp_seconds{{{_RAW}}}"
_UNITS = {"memory": "bytes", "compute": "gpus"}
_HELD = {
    "memory": f"gpuslice_container_memory_entitled_bytes{{{_RAW}}}",
    "compute": f"gpuslice_container_compute_entitled_ratio{{{_RAW}}}",
}
_USED = {
    "memory": f"gpuslice_container_memory_used_bytes{{{_RAW}}}",
    "compute": f"gpuslice_container_compute_used_ratio{{{_RAW}}}",
}
# 1 for an idle holder, 0 for another, absent if its compute is not measured.
_IDLE = f"(({_LAST_ACTIVE} <= bool (time() - $idle)) * ({_USED['compute']} == bool 0) and {_SLICES} > 0)"
_NODES = node_names(_RAW)
_MODELS = f"max by ({DEVICE}, model) (gpuslice_gpu_info{{{_RAW}}})"


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, as a record and as a sum of raw rows."""

    record: str
    """Name of the record without the level."""
    rows: str
    """PromQL of the rows that are added up."""
    held: bool = False
    """Whether it is 0 for a GPU without holders."""
    zero: "Amount | None" = None
    """Another amount; if that is 0, this one is 0 as well."""


def _own(rows: str) -> str:
    return own(rows, _RAW)


GPUS_THERE = Amount("gpus:count", f"({_UP} * 0 + 1)")
GPUS_UP = Amount("gpus_up:sum", _UP)
MEMORY = Amount("memory_total_bytes:sum", f"gpuslice_gpu_memory_total_bytes{{{_RAW}}}")
HOLDERS = Amount("holders:count", _own(f"({_SLICES} > bool 0)"), held=True)
IDLE_HOLDERS = Amount("idle_holders:count", _own(_IDLE), held=True, zero=HOLDERS)
HELD = {
    quantity: Amount(f"{quantity}_held_{unit}:sum", _own(_HELD[quantity]), held=True, zero=HOLDERS)
    for quantity, unit in _UNITS.items()
}
USED = {
    quantity: Amount(f"{quantity}_used_{unit}:sum", _own(_USED[quantity]))
    for quantity, unit in _UNITS.items()
}
IDLE = {
    quantity: Amount(
        f"idle_{quantity}_held_{unit}:sum",
        _own(f"({_HELD[quantity]} * {_IDLE})"),
        held=True,
        zero=IDLE_HOLDERS,
    )
    for quantity, unit in _UNITS.items()
}
_SECONDS_HELD, _SECONDS_USED = (
    f"increase(gpuslice_container_{what}_gpu_seconds_total{{{_RAW}}}[1h])" for what in ("entitled", "used")
)
_SECONDS_HELD_MEASURED = Amount(
    "gpu_seconds_held_measured:increase1h", _own(f"({_SECONDS_HELD} and {_SECONDS_USED})")
)
_SECONDS_USED_ENTITLED = Amount(
    "gpu_seconds_used_entitled:increase1h", _own(f"({_SECONDS_USED} and {_SECONDS_HELD})")
)
# An efficiency covers the rows with both values.
_HELD_MEASURED = {
    quantity: Amount(
        f"{quantity}_held_measured_{unit}:sum", _own(f"({_HELD[quantity]} and {_USED[quantity]})")
    )
    for quantity, unit in _UNITS.items()
}
_USED_ENTITLED = {
    quantity: Amount(
        f"{quantity}_used_entitled_{unit}:sum", _own(f"({_USED[quantity]} and {_HELD[quantity]})")
    )
    for quantity, unit in _UNITS.items()
}


def by(level: str, amount: Amount) -> str:
    """Return an amount by a level, without its name: queries of one table must have the same labels."""
    return f"max by ({_LEVELS[level]}) ({_at(level, amount)})"


def total(amount: Amount) -> str:
    """Return the sum of an amount over all chosen clusters."""
    return f"sum({_at('cluster', amount)})"


def efficiency(level: str | None, quantity: str) -> str:
    """Return the current ratio of used by held, by a level, or of all chosen clusters together (None)."""
    return _ratio(level, _USED_ENTITLED[quantity], _HELD_MEASURED[quantity])


def efficiency_of_hour(level: str | None) -> str:
    """Return the ratio of GPU-seconds used by held within the last hour, likewise."""
    return _ratio(level, _SECONDS_USED_ENTITLED, _SECONDS_HELD_MEASURED)


def slices(what: str = "") -> str:
    """Return slices by cluster and resource: offered, or held (``_allocated``)."""
    labels = "cluster, resource"
    raw = f"sum by ({labels}) ({_own(f'gpuslice_gpu_slices{what}{{{_RAW}}}')})"
    return f"max by ({labels}) ({either(f'cluster:gpuslice_slices{what}:sum{{{CLUSTER}}}', raw)})"


def gpu_hours(what: str) -> str:
    """Return GPU-hours ``held`` or ``used`` in the time shown, by namespace.

    Prometheus cannot read the counters of a large fleet over days: the records of each minute are added up.
    """
    counter = {"held": "entitled", "used": "used"}[what]
    increase = f"increase(gpuslice_container_{counter}_gpu_seconds_total{{{_RAW}}}[$__range])"
    return either(
        f"sum_over_time(namespace:gpuslice_compute_{what}_gpus:sum{{{CLUSTER}}}[$__range:1m]) / 60",
        f"{_summed('namespace', own(increase, _RAW, '$__range'))} / 3600",
    )


def _at(level: str, amount: Amount) -> str:
    return either(f"{level}:gpuslice_{amount.record}{{{CLUSTER}}}", _from_series(level, amount))


def _from_series(level: str, amount: Amount) -> str:
    rows = amount.rows
    if amount.held and level != "namespace":
        rows = f"({rows} or on ({DEVICE}) (gpuslice_gpu_holders{{{_RAW}}} == 0))"
    added = _summed(level, rows)
    return added if amount.zero is None else f"{added} or ({_from_series(level, amount.zero)}) == 0"


def _summed(level: str, rows: str) -> str:
    if level == "node":
        rows = f"({rows}) * on ({TARGET}) group_left (node) {_NODES}"
    elif level == "model":
        rows = f"({rows}) * on ({DEVICE}) group_left (model) {_MODELS}"
    elif level == "namespace":
        rows = unclashed(f"sum by ({_LEVELS[level]}, exported_namespace) ({rows})", level)
    return f"sum by ({_LEVELS[level]}) ({rows})"


def _ratio(level: str | None, used: Amount, held: Amount) -> str:
    if level is None:
        return f"{total(used)} / ({total(held)} > 0)"
    return f"{by(level, used)} / ({by(level, held)} > 0)"
