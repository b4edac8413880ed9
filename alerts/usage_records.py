"""The recording rules that usage and bills read: full hours and full days, both in UTC.

A record of an hour repeats the last full hour until the next one, and a record of a day the last full day,
so that one evaluation that is left out loses nothing. A range of one step in a subquery gives its last full
hour or day: Prometheus puts steps at multiples of their length in Unix time.
"""

from collections.abc import Iterator, Mapping

from alerts.advice_records import OWNER
from alerts.model import Group, Record
from alerts.records import GPU, HELD_GPUS, HOLDER

HOUR_OF_NODES = "node:gpuslice_usage_seconds:increase1h"
HOUR_OF_GPUS = "gpu:gpuslice_observed_seconds:increase1h"
HOUR_OF_HOLDERS = "container:gpuslice_usage:increase1h"
LABELS = "pod:gpuslice_labels:info1h"

_OFTEN, _SELDOM = "15m", "4h"
_UUID, _DEVICE = "cluster, node, uuid", "cluster, node, uuid, mig_uuid"
_POD, _KIND = "cluster, namespace, pod", "model, profile, value"
_OWNER = "cluster, namespace, owner_kind, owner_name"
_BALANCE = "model, value, class"
_ALLOCATION = "gpuslice_gpu_allocation_seconds_total"
_INTEGRALS = {
    "held": "entitled_gpu_seconds",
    "measured": "compute_measured_gpu_seconds",
    "used": "used_gpu_seconds",
    "joules": "energy_joules",
}


def usage_groups() -> tuple[Group, ...]:
    """Return the groups, each after those that it uses."""
    return (
        Group(name="gpuslice-usage-hours", interval=_OFTEN, rules=tuple(_hours())),
        Group(name="gpuslice-usage-groups", interval=_OFTEN, rules=tuple(_grouped())),
        Group(name="gpuslice-usage-days", interval=_SELDOM, rules=tuple(_days())),
    )


def _hours() -> Iterator[Record]:
    shares = f'max by ({HOLDER}) ({HELD_GPUS}{{mig_uuid=""}})'
    beyond = f"clamp_min(sum by ({_UUID}) ({shares}) - 1, 0)"
    classes = {
        "allocation": _of_node(_increase(_ALLOCATION, f"{_UUID}, class")),
        "use": _of_node(_increase("gpuslice_gpu_use_seconds_total", f"{_UUID}, class")),
        # Half a minute less than an hour: its first moment is a step too in some versions.
        "overcommitted": f"sum by (cluster, node) (60 * sum_over_time({beyond}[59m30s:1m]))",
    }
    yield Record(
        name=HOUR_OF_NODES,
        expr=_last_hour(_valued(classes)),
        why="GPU-seconds of the last full hour of UTC, by `value`: `allocation` and `use` are the two "
        "balances by `class`, `overcommitted` the shares beyond a GPU.",
    )
    observed = _increase(_ALLOCATION, _UUID, "class, instance")
    yield Record(
        name=HOUR_OF_GPUS,
        expr=_last_hour(f"({observed}) * on ({_UUID}) group_left (model) {_models()}"),
        why="Seconds of the last full hour of UTC in which the GPU was observed.",
    )
    holders = {
        value: _increase(f"gpuslice_container_{name}_total", HOLDER) for value, name in _INTEGRALS.items()
    }
    holders["held"] += f"\nor {_by_memory()} unless {holders['held']}"
    holders["unshared"] = f"{_increase('gpuslice_container_held_seconds_total', HOLDER)} > 0\n"
    holders["unshared"] += f"unless ({holders['held']})"
    yield Record(
        name=HOUR_OF_HOLDERS,
        expr=_last_hour(f"({_valued(holders)})\n* on ({HOLDER}) group_left (model, profile) ({_kinds()})"),
        why="The last full hour of UTC of a holder, also of one that has ended, by `value`: GPU-seconds "
        "`held`, `measured` (held while use was known) and `used`, and `joules`; `unshared` are the seconds "
        "for which it held a device with an unknown share.",
    )
    yield Record(
        name=LABELS,
        expr="group without (job, instance) (last_over_time(gpuslice_pod_labels[1h]))",
        why="1 for each pod that was there within the hour, with its labels.",
    )


def _grouped() -> Iterator[Record]:
    """Yield the sums over holders of an hour."""
    pods = f"sum by ({_POD}, {_KIND}) ({_every_value()})"
    owners = f'last_over_time({OWNER}{{owner_name!=""}}[2h] offset -1h)'
    # Owners are recorded once an hour, perhaps too late for a pod of the last minutes.
    owners += ' or last_over_time(kube_pod_owner{owner_name!=""}[20m])'
    owner = f"topk by ({_POD}) (1, group by ({_POD}, owner_kind, owner_name) ({owners}))"
    owned = f"{pods} * on ({_POD}) group_left (owner_kind, owner_name) {owner}"
    yield Record(
        name="owner:gpuslice_usage:increase1h",
        expr=_last_hour(f"sum by ({_OWNER}, {_KIND}) ({owned}\nor on ({_POD}, {_KIND}) {pods})"),
        why="The same of all pods of an owner, by `model` and MIG `profile`; without a known owner of those "
        "of a namespace. `uncompared` was used by holders that have no `measured`.",
    )
    yield Record(
        name="labels:gpuslice_usage:increase1h",
        expr=_last_hour(_by_labels()),
        why="The same of all pods of a namespace with equal labels; a pod with devices of several kinds "
        "counts as the kind that it holds most of.",
    )
    yield Record(
        name="node:gpuslice_usage:increase1h",
        expr=_last_hour(f"sum by (cluster, node, {_KIND}) ({_every_value()})"),
        why="The same of all holders on a node.",
    )


def _holders(value: str = "") -> str:
    """Return the hour of holders; ``value`` is one value or several, separated by "|"."""
    chosen = f'{{value=~"{value}"}}' if value else ""
    return f"max by ({HOLDER}, {_KIND}) ({_hour_of(HOUR_OF_HOLDERS + chosen)})"


def _uncompared() -> str:
    return f"({_holders('used')} unless on ({HOLDER}) ({_holders('measured')} > 0))"


def _every_value() -> str:
    return f'{_holders()} or label_replace({_uncompared()}, "value", "uncompared", "", "")'


def _hour_of(record: str) -> str:
    # The hour that ended at a step is recorded in the hour after it.
    return f"last_over_time({record}[59m] offset -59m30s)"


def _by_labels() -> str:
    """Return sums with all labels of pods, whatever their names: the left side of a join keeps its labels."""
    kinds = f"{_POD}, model, profile"
    # What a pod holds or uses with an unknown share is of its kind, too.
    others = f"sum by ({kinds}) ({_holders('unshared|used')})"
    sums = f"sum by ({kinds}) ({_holders('held')}) or on ({_POD}) {others}"
    kind = f"group by ({kinds}) (topk by ({_POD}) (1, {sums}))"
    labels = f"topk by ({_POD}) (1, last_over_time({LABELS}[2h] offset -1h))"
    pods = f"{labels} * on ({_POD}) group_left (model, profile) {kind}"
    values = {value: _holders(value) for value in (*_INTEGRALS, "unshared")} | {"uncompared": _uncompared()}
    rows = {
        value: f"{pods} * on ({_POD}) group_left () sum by ({_POD}) ({holders})"
        for value, holders in values.items()
    }
    return f"sum without (pod, pod_uid, node) ({_valued(rows)})"


def _days() -> Iterator[Record]:
    nodes = _hours_of(HOUR_OF_NODES, f"cluster, node, {_BALANCE}")
    yield Record(
        name="cluster:gpuslice_usage_seconds:increase1d",
        expr=_last_day(f"sum by (cluster, {_BALANCE}) ({nodes})"),
        why="The same of the last full day of UTC, of all nodes.",
    )
    yield Record(
        name="gpu:gpuslice_observed_seconds:increase1d",
        expr=_last_day(_hours_of(HOUR_OF_GPUS, f"{_UUID}, model")),
        why="Seconds of the last full day of UTC in which the GPU was observed.",
    )
    owners = _hours_of("owner:gpuslice_usage:increase1h", f"{_OWNER}, {_KIND}")
    for level, expr in {
        "namespace": f"sum by (cluster, namespace, {_KIND}) ({owners})",
        "owner": owners,
        "node": _hours_of("node:gpuslice_usage:increase1h", f"cluster, node, {_KIND}"),
        "labels": _sum_of_hours("labels:gpuslice_usage:increase1h"),
    }.items():
        yield Record(
            name=f"{level}:gpuslice_usage:increase1d",
            expr=_last_day(expr),
            why=f"The same of the last full day of UTC, by {level}.",
        )


def _last_hour(expr: str) -> str:
    return f"last_over_time((\n{expr}\n)[1h:1h])"


def _last_day(expr: str) -> str:
    return f"last_over_time((\n{expr}\n)[1d:1d] offset 1h)"


def _hours_of(record: str, labels: str) -> str:
    """Return the sum of the hours of a day by all labels of a record, without that of a replica."""
    return f"max by ({labels}) ({_sum_of_hours(record)})"


def _sum_of_hours(record: str) -> str:
    return f"sum_over_time({_hour_of(record)}[23h59m30s:1h])"


def _increase(counter: str, labels: str, further: str = "instance") -> str:
    # Replicas count once. The counters of a replaced exporter are another target's, and add up.
    return f"sum by ({labels}) (max by ({labels}, {further}) (increase({counter}[1h])))"


def _of_node(rows: str) -> str:
    rows = f"({rows}) * on ({_UUID}) group_left (model) {_models()}"
    return f"sum by (cluster, node, model, class) ({rows})"


def _models() -> str:
    """Return 1 for each GPU with its model; without a model if that has never been read."""
    known = f"group by ({_UUID}, model) (last_over_time(gpuslice_gpu_info[1h]))"
    every = f'group by ({_UUID}) (last_over_time({_ALLOCATION}{{class="held"}}[1h]))'
    return f"topk by ({_UUID}) (1, {known} or on ({_UUID}) {every})"


def _kinds() -> str:
    """Return 1 for each holder with the model of its device, and the profile if that is a MIG device."""
    infos = "group by ({}) (last_over_time(gpuslice_container_info[1h]))"
    holders = f"topk by ({HOLDER}) (1, {infos.format(f'{HOLDER}, model')})"
    migs = f"group by ({_DEVICE}, profile) (last_over_time(gpuslice_mig_memory_total_bytes[1h]))"
    profiles = f"topk by ({_DEVICE}) (1, {migs})"
    return f"{holders} * on ({_DEVICE}) group_left (profile) {profiles} or on ({HOLDER}) {holders}"


def _by_memory() -> str:
    """Return the GPU-seconds held by containers with a share of the memory alone."""
    held = _increase('gpuslice_container_held_seconds_total{mig_uuid=""}', HOLDER)
    share = f"max by ({HOLDER}) (avg_over_time(gpuslice_container_memory_entitled_bytes[1h]))"
    whole = f"max by ({GPU}) (last_over_time(gpuslice_gpu_memory_total_bytes[1h]))"
    return f"({held}) * ({share}) / on ({GPU}) group_left () {whole}"


def _valued(rows: Mapping[str, str]) -> str:
    return "\nor ".join(f'label_replace({expr}, "value", "{value}", "", "")' for value, expr in rows.items())
