"""Alerts on capacity: free slices, allocated devices that are missing, and licenses of virtual GPUs."""

from alerts.model import FLEET_BOARD, GPU_BOARD, NODE_BOARD, Alert
from alerts.subjects import by_gpu, by_node
from alerts.thresholds import CapacityThresholds
from alerts.windows import seconds
from alerts.wording import GPU, OF_DEVICE, PERCENT, PODS, ROUNDED, SHORT_GPU

_MIG_SLICES = "gpuslice_gpu_mig_memory_slices"
_ADJACENT = "gpuslice_gpu_mig_adjacent_free_memory_slices"
_SLICES, _ALLOCATED = "gpuslice_gpu_slices", "gpuslice_gpu_slices_allocated"
_UNHEALTHY = "gpuslice_gpu_slices_unhealthy"
# Shares on these depend on the number of replicas.
_REPLICATED = 'gpuslice_gpu_info{sharing=~"time-slicing|mps|mig-time-slicing"}'
# Resources with ids that name devices. Elsewhere an id is a percent or an amount of memory, and may match no
# device only because it has not been assigned to one yet.
_NAMING_DEVICES = "nvidia.com/(gpu|mig-).*|amd.com/.+|(gpu|mig).nvidia.com|gpu.amd.com"
_EXPIRY = "gpuslice_gpu_vgpu_license_expiry_timestamp_seconds"


def capacity_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Return the alerts of the group."""
    return (
        _fragmented(numbers),
        _unallocated(numbers),
        _exhausted(numbers),
        _waiting_for_idle(numbers),
        _overcommitted(numbers),
        _mismatch(numbers),
        _unhealthy(numbers),
        _missing(numbers),
        _unlicensed(numbers),
        _expires(numbers),
    )


def _fragmented(numbers: CapacityThresholds) -> Alert:
    free = by_gpu(f'{_MIG_SLICES}{{state="free"}}')
    every = f"sum without (state) ({by_gpu(_MIG_SLICES, 'state')})"
    query = f'max by (uuid) ({_MIG_SLICES}{{uuid=%q,state="free"}})'
    return Alert(
        name="MigFragmented",
        expr=f"{by_gpu(_ADJACENT)} < {numbers.mig_adjacent_ratio:g} * {every}\n"
        f"and {free} >= {numbers.mig_free_ratio:g} * {every}",
        hold=numbers.mig_fragmented_for,
        severity="info",
        summary=f"The free MIG memory of {SHORT_GPU} is fragmented",
        description=f"{GPU} has "
        f"{{{{ with query (printf `{query}` $labels.uuid) }}}}{{{{ . | first | value }}}}{{{{ end }}}} "
        f"free memory slices, but at most {ROUNDED} of them are adjacent: no MIG instance of "
        f"half the GPU can be created, though there is room. Pods on it: {PODS}. Move the "
        "instances together when these pods have ended.",
        dashboard=GPU_BOARD,
    )


def _unallocated(numbers: CapacityThresholds) -> Alert:
    return Alert(
        name="MigInstanceUnallocated",
        # Other vendors partition a whole GPU at once; single partitions cannot be removed.
        expr=by_gpu('gpuslice_mig_holders{mig_uuid=~"MIG-.+"}', "mig_uuid", "profile") + " == 0",
        hold=numbers.mig_unallocated_for,
        severity="info",
        summary=f"A MIG instance of {SHORT_GPU} has been unallocated for {numbers.mig_unallocated_for}",
        description="MIG device "
        f"{{{{ $labels.mig_uuid }}}}{{{{ with $labels.profile }}}} ({{{{ . }}}}){{{{ end }}}} of {GPU} has "
        f"been allocated to no container for {numbers.mig_unallocated_for}. If no pod needs this profile, "
        "repartition the GPU.",
        dashboard=GPU_BOARD,
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


def _waiting_for_idle(numbers: CapacityThresholds) -> Alert:
    return Alert(
        name="PodsWaitForIdle",
        # A hub has this, if it is scraped: the same from each of its replicas.
        expr="max by (cluster, resource) (gpuslice_waiting_pods_blocked_by_idle) > 0",
        hold=numbers.waiting_for_idle_for,
        severity="warning",
        summary="Pods wait for {{ $labels.resource }} that idle pods hold"
        "{{ with $labels.cluster }} in cluster {{ . }}{{ end }}",
        description=f"Of the pods that wait for {{{{ $labels.resource }}}}, {ROUNDED} would fit a node "
        f"without an idle pod there, as far as is judged, for {numbers.waiting_for_idle_for}. "
        "`kubectl gpuslice waiting` lists them, and the idle pods: ask the owners of these to end them.",
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


def _unlicensed(numbers: CapacityThresholds) -> Alert:
    query = "gpuslice_vgpu_info{vgpu_uuid=%q}"
    return Alert(
        name="VgpuUnlicensed",
        expr=by_gpu("gpuslice_gpu_vgpu_licensed == 0 or gpuslice_vgpu_licensed == 0", "vgpu_uuid"),
        hold=numbers.unlicensed_for,
        severity="warning",
        summary=f"A vGPU has no license: {SHORT_GPU}",
        description="{{ with $labels.vgpu_uuid }}The vGPU "
        f"{{{{ . }}}}{{{{ with query (printf `{query}` .) }}}} "
        "({{ . | first | label `type` }}, virtual machine "
        "{{ . | first | label `vm_id` }}){{ end }} on {{ else }}The vGPU that this node uses as "
        f"{{{{ end }}}}{GPU} has no license: its driver slows it down, and later blocks all "
        f"compute on it. Pods on it: {PODS}. Check in the guest whether nvidia-gridd runs and "
        "reaches the license server.",
        dashboard=GPU_BOARD,
    )


def _expires(numbers: CapacityThresholds) -> Alert:
    within, unchanged = numbers.license_expires_within, numbers.license_unchanged_for
    return Alert(
        name="VgpuLicenseExpires",
        # A borrowed license is renewed long before it expires.
        expr=f"{by_gpu(_EXPIRY)} - time() < {seconds(within):g} > 0\n"
        f"and ({by_gpu(_EXPIRY)} == {by_gpu(f'{_EXPIRY} offset {unchanged}')})",
        severity="warning",
        summary=f"A vGPU license expires soon: {SHORT_GPU}",
        description=f"The vGPU license of {GPU} expires in {{{{ $value | humanizeDuration }}}}, and has not "
        f"been renewed for {unchanged}. Without a license the driver slows the vGPU down. Pods "
        f"on it: {PODS}. Renew the license, or check in the guest why nvidia-gridd does not "
        "renew it.",
        dashboard=GPU_BOARD,
    )
