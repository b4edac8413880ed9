"""The recording rules that advice reads: each holder by hours, and what is too much to read of a whole week.

Hours are recorded once an hour, and the week of these too, so that a look reads one sample of each value.
What a holder computes is recorded in steps of 5 minutes, for the 95th percentile of its 5-minute means.
"""

from collections.abc import Iterator, Mapping

from alerts.model import Group, Record
from alerts.records import (
    DEVICE,
    FILLED,
    GPU,
    HELD_BYTES,
    HELD_GPUS,
    HOLDER,
    SHARED,
    SLICES,
    USED_GPUS,
    USED_SECONDS,
)

COMPUTING = "container:gpuslice_computing:avg5m"
HELD = "container:gpuslice_held_seconds:increase1h"
MEMORY_KNOWN = "container:gpuslice_memory_measured_seconds:increase1h"
COMPUTE_KNOWN = "container:gpuslice_compute_measured_seconds:increase1h"
OWNER = "pod:gpuslice_owner:info1h"
PEAK, FLAT = "container:gpuslice_peak_bytes:max1h", "container:gpuslice_flat_memory:bool1h"
WEEK = "container:gpuslice_last_week:value"

_STEP, _HOUR = "5m", "60m"
_HELD = f"count by ({DEVICE}) ({SLICES} > 0)"
_REST = "gpuslice_{0}_unattributed_memory_bytes / gpuslice_{0}_memory_total_bytes"
_SENT = "gpuslice_gpu_nvlink_transmit_bytes_total"
_SM = "avg_over_time(gpuslice_{0}_sm_active_ratio[5m])"
_MEASURED = (
    "increase(gpuslice_container_held_seconds_total[1h])"
    " * increase(gpuslice_container_compute_measured_gpu_seconds_total[1h])"
    " / (increase(gpuslice_container_entitled_gpu_seconds_total[1h]) > 0)"
)


def advice_groups() -> tuple[Group, ...]:
    """Return the groups; they use records of containers."""
    return (
        Group(name="gpuslice-advice-steps", interval=_STEP, rules=(_computing(),)),
        Group(name="gpuslice-advice-hours", interval=_HOUR, rules=tuple(_hours())),
        Group(name="gpuslice-advice-week", interval=_HOUR, rules=tuple(_week())),
    )


def _computing() -> Record:
    activity = f"max by ({DEVICE}) ({_SM.format('gpu')} or {_SM.format('mig')})"
    used = f"({USED_GPUS} and {SLICES} > 0)"
    rows = {
        "gpus": f"{used} > 0",
        # The meter is one of the device, so it tells of a container only if that holds the device alone.
        "sm": f"({used} > 0) * 0 + on ({DEVICE}) group_left () ({activity} and on ({DEVICE}) {_HELD} == 1)",
        # Where the use of a holder is unknown, so is the sum.
        "together": f"sum by ({DEVICE}) ({used}) > 0 and on ({DEVICE})"
        f" (count by ({DEVICE}) ({used}) == {_HELD} > 1)",
    }
    return Record(
        name=COMPUTING,
        expr=_valued(rows),
        why="Means of 5 minutes in which a holder computed, by `value`: `gpus` is the compute used, `sm` the "
        "SM activity of a device with one holder, `together` the compute used by all holders of a device.",
    )


def _hours() -> Iterator[Record]:
    kind = "model, sharing, isolation"
    held = _sum("increase(gpuslice_container_held_seconds_total[1h])")
    # What it is may change within the hour; several of one holder could not be matched.
    info = (
        f"topk by ({HOLDER}) (1, group by ({HOLDER}, {kind}) (last_over_time(gpuslice_container_info[1h])))"
    )
    yield Record(
        name=HELD,
        expr=f"({held} > 0)\n* on ({HOLDER}) group_left ({kind}) {info}",
        why="Seconds held within the hour, by `model`, `sharing` and `isolation`.",
    )
    yield Record(
        name=MEMORY_KNOWN,
        expr=_sum("increase(gpuslice_container_memory_measured_seconds_total[1h])"),
        why="Seconds held within the hour in which memory use was known.",
    )
    yield Record(
        name=COMPUTE_KNOWN,
        expr=_sum(_MEASURED),
        why="Seconds held within the hour in which compute use was known.",
    )
    peak = f"max by ({HOLDER}) (max_over_time(gpuslice_container_memory_peak_bytes[1h]))"
    least = f"max by ({HOLDER}) (min_over_time(gpuslice_container_memory_used_bytes[1h]))"
    yield Record(
        name=PEAK,
        expr=peak,
        why="Peak of memory up to the hour, since the exporter first saw the container.",
    )
    yield Record(
        name=FLAT,
        expr=f"{least} >= bool 0.98 * {peak}",
        why="1 if memory stayed within 2 % of its peak for the hour, else 0.",
    )
    pod = "cluster, namespace, pod"
    yield Record(
        name=OWNER,
        expr=f"group by ({pod}, owner_kind, owner_name) (last_over_time(kube_pod_owner[1h])\n"
        f"and on ({pod}) last_over_time(gpuslice_container_held_seconds_total[1h]))",
        why="1 for each pod that held a slice within the hour, with its owner, from kube-state-metrics.",
    )


def _sum(rows: str) -> str:
    # The counters of a replaced exporter are another target's, and add up.
    return f"sum by ({HOLDER}) (max by ({HOLDER}, instance) ({rows}))"


def _week() -> Iterator[Record]:
    rows = {
        "held": f"sum_over_time({HELD}[7d])",
        "since": f"min_over_time(timestamp(last_over_time({HELD}[1h]))[7d:1h])",
        "memory_known": f"sum_over_time({MEMORY_KNOWN}[7d])",
        "compute_known": f"sum_over_time({COMPUTE_KNOWN}[7d])",
        "peak": f"max_over_time({PEAK}[7d])",
        "flat": f"avg_over_time({FLAT}[7d])",
        # Recorded every 4 minutes; one that was left out does not lose the hour.
        "used": f"sum_over_time(last_over_time({USED_SECONDS}[10m])[7d:1h])",
        "held_bytes": f"max_over_time({HELD_BYTES}[7d:1h])",
        "held_gpus": f"max_over_time({HELD_GPUS}[7d:1h])",
        "steps": f'count_over_time({COMPUTING}{{value="gpus"}}[7d])',
        **{
            f"p95_{value}": f'quantile_over_time(0.95, {COMPUTING}{{value="{value}"}}[7d])'
            for value in ("gpus", "sm", "together")
        },
        "filled": f"max_over_time({FILLED}[7d:5m]) and on ({DEVICE}) last_over_time(({SHARED})[7d:1h])",
        "rest": f"avg_over_time((max by ({DEVICE}) ({_REST.format('gpu')} or {_REST.format('mig')}))[7d:1h])",
        "sent": f"max by ({GPU}) (max_over_time({_SENT}[7d:1h]) - min_over_time({_SENT}[7d:1h]))",
    }
    yield Record(
        name=WEEK,
        expr=_valued(rows),
        why="The last 7 days by `value`, for advice. Of a holder: seconds `held`, `since` when, with "
        "`memory_known` and `compute_known`; `peak` of memory, share of hours in which it was `flat`; "
        "GPU-seconds `used`, `steps` of 5 minutes with compute, 95th percentiles of these (`p95_gpus`, "
        "`p95_sm`); the largest share held (`held_bytes`, `held_gpus`). Of a device: `p95_together` of its "
        "holders, the most memory in use if it is shared (`filled`), the mean that no container accounts for "
        "(`rest`), as shares, and bytes `sent` over NVLink.",
    )


def _valued(rows: Mapping[str, str]) -> str:
    return "\nor ".join(f'label_replace({expr}, "value", "{value}", "", "")' for value, expr in rows.items())
