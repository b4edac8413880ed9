"""Alerts on slices and memory: exhausted, overcommitted, or missing."""

from alerts.groups.capacity_numbers import CapacityThresholds
from alerts.model import FLEET_BOARD, GPU_BOARD, NODE_BOARD, Alert
from alerts.subjects import by_gpu, by_node
from alerts.wording import GPU, OF_DEVICE, PERCENT, PODS, ROUNDED, SHORT_GPU

_SLICES, _ALLOCATED = "gpuslice_gpu_slices", "gpuslice_gpu_slices_allocated"
_UNHEALTHY = "gpuslice_gpu_slices_unhealthy"
# Shares on these depend on the number of replicas.
_REPLICATED = 'gpuslice_gpu_info{sharing=~"time-slicing|mps|mig-time-slicing"}'
# Resources with ids that name devices. Elsewhere an id is a percent or an amount of memory, and may match no
# device only because it has not been assigned to one yet.
_NAMING_DEVICES = "nvidia.com/(gpu|mig-).*|amd.com/.+|(gpu|mig).nvidia.com|gpu.amd.com"


def slice_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _exhausted(numbers),
        _overcommitted(numbers),
        _mismatch(numbers),
        _unhealthy(numbers),
        _missing(numbers),
    )


def _exhausted(numbers: CapacityThresholds) -> Alert:
    every = "sum by (cluster, resource) (node:gpuslice_offered_slices:sum) > 0"
    # If the number of allocated slices is unknown, slices may be left.
    left = f"({_SLICES} > ({_ALLOCATED} or {_SLICES} * 0)) unless on (cluster, uuid) gpuslice_gpu_up == 0"
    return Alert(
        name="CapacityExhausted",
        expr=f"{every}\nunless on (cluster, resource) ({left})",
        hold=numbers.exhausted_for,
        severity="info",
        summary="All {{ $labels.resource }} are allocated{{ with $labels.cluster }} in cluster "
        "{{ . }}{{ end }}",
        description=f"Of the {ROUNDED} slices of {{{{ $labels.resource }}}}{{{{ with $labels.cluster }}}} "
        "in cluster {{ . }}{{ end }} that exporters report, none is free on a working GPU: a "
        "pod that requests one stays pending. Look for idle holders, then for GPUs that are "
        "down.",
        dashboard=FLEET_BOARD,
    )


def _overcommitted(numbers: CapacityThresholds) -> Alert:
    share = "gpuslice_gpu_memory_entitled_bytes / gpuslice_gpu_memory_total_bytes"
    return Alert(
        name="MemoryOvercommitted",
        expr=f"{by_gpu(share)} > {numbers.overcommit_ratio:g}",
        hold=numbers.overcommitted_for,
        severity="info",
        summary=f"Memory of {SHORT_GPU} is overcommitted",
        description=f"The pods on {GPU} may together use {PERCENT} of its memory: {PODS}. If they all do, "
        "allocations fail, or spill over into the node's memory. Unless this is intended, lower "
        "their limits or move one of them.",
        dashboard=GPU_BOARD,
    )


def _mismatch(numbers: CapacityThresholds) -> Alert:
    asked = f"printf `{_SLICES}{{uuid=%q,resource=%q}}` $labels.uuid $labels.resource"
    unknown = f"({_ALLOCATED} > 0 unless {_SLICES}) and on (cluster, node, uuid) {_REPLICATED}"
    return Alert(
        name="ReplicaMismatch",
        expr=by_gpu(f"{_ALLOCATED} > {_SLICES} or {unknown}", "resource"),
        hold=numbers.replica_mismatch_for,
        severity="warning",
        summary=f"Held slices of {{{{ $labels.resource }}}} do not match the offered ones: {OF_DEVICE}",
        description=f"{ROUNDED} slices of {{{{ $labels.resource }}}} are held, and the device plugin offers "
        f"{{{{ with query ({asked}) }}}}{{{{ . | first | value }}}}{{{{ else }}}}other slices "
        f"or none{{{{ end }}}}: {OF_DEVICE}. Pods on it: {PODS}. Usually its configuration was "
        "changed while pods held slices of the old one, or the device plugin does not run; "
        "entitlements are unknown or wrong until these pods restart.",
        dashboard=NODE_BOARD,
    )


def _unhealthy(numbers: CapacityThresholds) -> Alert:
    return Alert(
        name="SlicesUnhealthy",
        expr=by_gpu(f"{_UNHEALTHY} > 0", "resource"),
        hold=numbers.slices_unhealthy_for,
        severity="warning",
        summary=f"Unhealthy slices of {{{{ $labels.resource }}}}: {OF_DEVICE}",
        description="The device plugin reports slices of {{ $labels.resource }} as unhealthy: "
        f"{ROUNDED} on {OF_DEVICE}. New pods do not get them; entitlements of holders do not "
        f"change. Pods on it: {PODS}. Usually the GPU has reported an XID: check its XIDs, "
        "drain and reset it if they require that, then restart the device plugin's pod of this "
        "node, which reports a device as unhealthy until then.",
        dashboard=GPU_BOARD,
    )


def _missing(numbers: CapacityThresholds) -> Alert:
    # Devices that cannot be seen or identified now are not missing.
    unseen = (
        "unless on (cluster, node) gpuslice_pod_annotations_unreadable == 1\n"
        'unless on (cluster, node) gpuslice_collector_success{collector=~"nvml|amd"} == 0'
    )
    unresolved = f'gpuslice_allocations_unresolved{{resource=~"{_NAMING_DEVICES}"}}'
    return Alert(
        name="AllocatedDeviceMissing",
        expr=f"{by_node(unresolved, 'resource')} > 0\n{unseen}",
        hold=numbers.device_missing_for,
        severity="critical",
        summary="Pods of node {{ $labels.node }} hold missing {{ $labels.resource }}",
        description=f"{ROUNDED} of the {{{{ $labels.resource }}}} that the kubelet of node "
        "{{ $labels.node }} has allocated to pods match no device of the driver: the device is "
        "lost, removed, repartitioned, or hidden from the exporter. Its holders can no longer "
        "compute on it. Compare the devices of the pods (kubectl -n <namespace> exec <pod> -- "
        "nvidia-smi -L) with those of the node, and restart these pods: their unsaved work is "
        "lost.",
        dashboard=NODE_BOARD,
    )
