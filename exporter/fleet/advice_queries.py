"""The queries for advice: seven days of each holder, from the records of an hour, and of its devices."""

import json
from collections.abc import Collection

from exporter.fleet.owners import owner_questions
from exporter.fleet.queries import selector

DAYS = 7
# By the end of the name of a series of MIG profiles, the field of a profile that it is.
PROFILE_VALUES = {"memory_bytes": "memory", "multiprocessors": "multiprocessors", "instances": "instances"}

_LABEL_OFF = 'gpuslice_pod_labels{label_gpuslice_exporter_advice="off"}'
# The newest record of the week may be so old; a pod that is in it must have its owner and its label.
_NEWEST = "2h"
_THIS_WEEK = f"[{DAYS}d{_NEWEST}]"
# Devices, at some moments of the week; of the last day, because a device may not answer now.
_MOMENTS, _LATELY = f"[{DAYS}d:6h]", "[1d:6h]"
_DEVICE, _GPU, _POD = "cluster, node, uuid, mig_uuid", "cluster, node, uuid", "cluster, namespace, pod"

# The namespaces in the records for advice, with one without a name: that of the records of devices.
NAMESPACES_RECORDED = f"group by (namespace) (last_over_time(container:gpuslice_last_week:value[{_NEWEST}]))"


def of_namespace(namespace: str) -> str:
    """Return a selector of the holders of a namespace; of all if it is empty."""
    return f"{{namespace={json.dumps(namespace)}}}" if namespace else '{namespace!=""}'


def of_gpus(uuids: Collection[str], namespace: str) -> str:
    """Return a selector of the holders of some GPUs that are in other namespaces."""
    gpus = selector("", "uuid", uuids).removesuffix("}")
    return f'{gpus}, namespace!="", namespace!={json.dumps(namespace)}}}'


def holder_questions(chosen: str) -> dict[str, str]:
    """Return the queries for the last week of the holders that a selector chooses, and which hold a slice."""
    return {
        "week": f"last_over_time(container:gpuslice_last_week:value{chosen}[{_NEWEST}])",
        "running": f"group by ({_DEVICE}, namespace, pod, container) (gpuslice_container_slices{chosen} > 0)",
    }


def held_question(namespace: str) -> str:
    """Return the query for whether slices were held in a namespace, or in any, in some moments of a week."""
    slices = f"gpuslice_container_slices{of_namespace(namespace)}"
    return f"group(max_over_time({slices}{_MOMENTS}) > 0 or {slices} > 0)"


def known_question(namespace: str) -> str:
    """Return the query for whether a namespace has a holder now, or is one of the cluster.

    The latter needs kube-state-metrics.
    """
    series = ("gpuslice_container_info", "kube_namespace_created", "kube_namespace_status_phase")
    return f"group({' or '.join(f'{name}{of_namespace(namespace)}' for name in series)})"


def device_questions() -> dict[str, str]:
    """Return the queries for devices of a week, the label that turns advice off, and owners of pods."""
    media = " or ".join(
        f"max_over_time(gpuslice_gpu_{engine}_utilization_ratio{_MOMENTS})"
        for engine in ("encoder", "decoder", "jpeg")
    )
    return {
        "opted_out": f"group by ({_POD}) (last_over_time({_LABEL_OFF}{_THIS_WEEK}))",
        "owners": f"group by ({_POD}, owner_kind, owner_name) "
        f"(last_over_time(pod:gpuslice_owner:info1h{_THIS_WEEK}))",
        **owner_questions(),
        "memory": f"max by ({_DEVICE}, profile) (last_over_time(gpuslice_gpu_memory_total_bytes{_LATELY})"
        f" or last_over_time(gpuslice_mig_memory_total_bytes{_LATELY}))",
        "week": holder_questions('{namespace=""}')["week"],
        "media": f"max by ({_GPU}) ({media})",
        "replicas": f"max by ({_GPU}) (last_over_time(gpuslice_gpu_slices{_LATELY}))",
        **{
            value: f"min by (cluster, model, profile) "
            f"(last_over_time(gpuslice_node_mig_profile_{value}{_LATELY}))"
            for value in PROFILE_VALUES
        },
    }
