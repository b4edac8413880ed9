"""The queries for the windows of advice: seven days of each holder, read from records of an hour.

The records are those of ``alerts/rules/gpuslice-recording.yaml``.
"""

import json
from collections.abc import Collection

from exporter.fleet.queries import REMEMBERED, of

DAYS = 7
LABEL_OFF = 'gpuslice_pod_labels{label_gpuslice_exporter_advice="off"}'
PROFILE_VALUES = {"memory_bytes": "memory", "multiprocessors": "multiprocessors", "instances": "instances"}
"""The ends of the series of MIG profiles, and the fields of a profile that they are."""

# The newest record of the week may be so old; a pod that is in it must have its owner and its label.
_NEWEST = "2h"
_WEEK = f"[{DAYS}d{_NEWEST}]"
# Devices, some moments of the week; what does not answer now has answered within the day.
_MOMENTS, _LATELY = f"[{DAYS}d:6h]", "[1d:6h]"
_DEVICE, _GPU, _POD = "cluster, node, uuid, mig_uuid", "cluster, node, uuid", "cluster, namespace, pod"


def of_namespace(namespace: str) -> str:
    """Return a selector of the holders of a namespace; of all if it is empty."""
    return f"{{namespace={json.dumps(namespace)}}}" if namespace else '{namespace!=""}'


def of_gpus(uuids: Collection[str], namespace: str) -> str:
    """Return a selector of the holders of some GPUs that are in other namespaces."""
    others = f', namespace!="", namespace!={json.dumps(namespace)}}}'
    return of("", "uuid", uuids).replace("}", others)


def running_question(chosen: str) -> str:
    """Return the query for the holders among what a selector chooses that hold a slice now."""
    return f"group by ({_DEVICE}, namespace, pod, container) (gpuslice_container_slices{chosen} > 0)"


def week_question(chosen: str) -> str:
    """Return the query for what a selector chooses of the last week, which is recorded every hour."""
    return f"last_over_time(container:gpuslice_last_week:value{chosen}[{_NEWEST}])"


def device_questions() -> dict[str, str]:
    """Return the queries for devices, the label that turns advice off, and owners of pods."""
    media = " or ".join(
        f"max_over_time(gpuslice_gpu_{engine}_utilization_ratio{_MOMENTS})"
        for engine in ("encoder", "decoder", "jpeg")
    )
    return {
        "opted_out": f"group by ({_POD}) (last_over_time({LABEL_OFF}{_WEEK}))",
        "owners": f"group by ({_POD}, owner_kind, owner_name) "
        f"(last_over_time(pod:gpuslice_owner:info1h{_WEEK}))",
        "deployments": _owners("kube_replicaset_owner", "replicaset", "Deployment"),
        "cron_jobs": _owners("kube_job_owner", "job_name", "CronJob"),
        "memory": f"max by ({_DEVICE}, profile) (last_over_time(gpuslice_gpu_memory_total_bytes{_LATELY})"
        f" or last_over_time(gpuslice_mig_memory_total_bytes{_LATELY}))",
        "week": week_question('{namespace=""}'),
        "media": f"max by ({_GPU}) ({media})",
        "replicas": f"max by ({_GPU}) (last_over_time(gpuslice_gpu_slices{_LATELY}))",
        **{
            value: f"min by (cluster, model, profile) "
            f"(last_over_time(gpuslice_node_mig_profile_{value}{_LATELY}))"
            for value in PROFILE_VALUES
        },
    }


def _owners(series: str, label: str, kind: str) -> str:
    """Return the owners of a kind, and those that were there at one of some times ago."""
    selected = f"{series}{{owner_kind={json.dumps(kind)}}}"
    ever = " or ".join((selected, *(f"{selected} offset {ago}" for ago in REMEMBERED)))
    return f"group by (cluster, namespace, {label}, owner_name) ({ever})"
