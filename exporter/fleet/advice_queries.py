"""The queries for the windows of advice: seven days of each holder, read from records of an hour.

The records are those of ``alerts/rules/gpuslice-recording.yaml``.
"""

import json
from collections.abc import Collection

from exporter.fleet.queries import REMEMBERED, of

DAYS = 7
LABEL_OFF = 'gpuslice_pod_labels{label_gpuslice_exporter_advice="off"}'
PROFILE_VALUES = ("memory_bytes", "multiprocessors", "instances")

_WEEK, _HOURLY, _STEPS = f"[{DAYS}d]", f"[{DAYS}d:1h]", f"[{DAYS}d:5m]"
_HELD = "container:gpuslice_held_seconds:increase1h"
_USED = "container:gpuslice_used_gpu_seconds:increase1h"
# A record of an hour is older than Prometheus looks back for a value.
_LATELY = "[2h]"
_DEVICE, _GPU, _POD = "cluster, node, uuid, mig_uuid", "cluster, node, uuid", "cluster, namespace, pod"
_SENT = "gpuslice_gpu_nvlink_transmit_bytes_total"


def of_namespace(namespace: str) -> str:
    """Return a selector of the holders of a namespace; of all if it is empty."""
    return f"{{namespace={json.dumps(namespace)}}}" if namespace else ""


def of_gpus(uuids: Collection[str], namespace: str) -> str:
    """Return a selector of the holders of some GPUs that are in other namespaces."""
    return of("", "uuid", uuids).replace("}", f", namespace!={json.dumps(namespace)}}}")


def holder_questions(chosen: str) -> dict[str, str]:
    """Return the queries for the holders that a selector chooses."""

    def week(function: str, record: str) -> str:
        return f"{function}_over_time(container:gpuslice_{record}{chosen}{_WEEK})"

    return {
        "held": week("sum", "held_seconds:increase1h"),
        "since": f"min_over_time(timestamp(last_over_time({_HELD}{chosen}[1h])){_HOURLY})",
        "peak": week("max", "peak_bytes:max1h"),
        "memory_known": week("sum", "memory_measured_seconds:increase1h"),
        "compute_known": week("sum", "compute_measured_seconds:increase1h"),
        "flat": week("avg", "flat_memory:bool1h"),
        # Recorded every 5 minutes; one that was left out does not lose the hour.
        "used": f"sum_over_time(last_over_time({_USED}{chosen}[10m]){_HOURLY})",
        "held_bytes": f"max_over_time(container:gpuslice_held_bytes:max{chosen}{_HOURLY})",
        "held_gpus": f"max_over_time(container:gpuslice_held_gpus:max{chosen}{_HOURLY})",
        "p95": f"last_over_time(container:gpuslice_computing:p95_7d{chosen}{_LATELY})",
        "steps": f"last_over_time(container:gpuslice_computing_steps:count7d{chosen}{_LATELY})",
    }


def device_questions() -> dict[str, str]:
    """Return the queries for devices, the label that turns advice off, and owners of pods."""
    media = " or ".join(
        f"max_over_time(gpuslice_gpu_{engine}_utilization_ratio{_HOURLY})"
        for engine in ("encoder", "decoder", "jpeg")
    )
    rest = " or ".join(
        f"gpuslice_{level}_unattributed_memory_bytes / gpuslice_{level}_memory_total_bytes"
        for level in ("gpu", "mig")
    )
    shared = f"max_over_time((count by ({_DEVICE}) (container:gpuslice_held_slices:max > 0) > 1){_HOURLY})"
    filled = f"max_over_time(gpu:gpuslice_filled_memory:ratio{_STEPS})"
    return {
        "opted_out": f"group by ({_POD}) (last_over_time({LABEL_OFF}{_WEEK}))",
        "owners": f"group by ({_POD}, owner_kind, owner_name) "
        f"(last_over_time(pod:gpuslice_owner:info1h{_WEEK}))",
        "deployments": _owners("kube_replicaset_owner", "replicaset", "Deployment"),
        "cron_jobs": _owners("kube_job_owner", "job_name", "CronJob"),
        # What does not answer now has answered within the week.
        "memory": f"max by ({_DEVICE}, profile) (last_over_time(gpuslice_gpu_memory_total_bytes{_HOURLY})"
        f" or last_over_time(gpuslice_mig_memory_total_bytes{_HOURLY}))",
        "rest": f"avg_over_time((max by ({_DEVICE}) ({rest})){_HOURLY})",
        "sent": f"max by ({_GPU}) (max_over_time({_SENT}{_HOURLY}) - min_over_time({_SENT}{_HOURLY}))",
        "media": f"max by ({_GPU}) ({media})",
        "replicas": f"max by ({_GPU}) (last_over_time(gpuslice_gpu_slices{_HOURLY}))",
        "filled": f"max by ({_DEVICE}) ({filled} and on ({_DEVICE}) {shared})",
        **{
            value: f"min by (cluster, model, profile) "
            f"(last_over_time(gpuslice_node_mig_profile_{value}{_HOURLY}))"
            for value in PROFILE_VALUES
        },
    }


def _owners(series: str, label: str, kind: str) -> str:
    """Return the owners of a kind, and those that were there at one of some times ago."""
    selected = f"{series}{{owner_kind={json.dumps(kind)}}}"
    ever = " or ".join((selected, *(f"{selected} offset {ago}" for ago in REMEMBERED)))
    return f"group by (cluster, namespace, {label}, owner_name) ({ever})"
