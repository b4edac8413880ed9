"""The rows of the node and of the collectors: what is there, and how well it can be seen."""

from collections.abc import Iterator

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, scaled
from exporter.model import DriverInfo, Snapshot

_MICROSECONDS = 1_000_000


def _info(snapshot: Snapshot) -> Iterator[Labelled]:
    driver = snapshot.node.driver or DriverInfo()
    versions = (driver.driver_version, driver.nvml_version, driver.cuda_version)
    yield (snapshot.node.name, *(version or "" for version in versions)), 1


def _latency(snapshot: Snapshot) -> Iterator[Labelled]:
    for group, cost in snapshot.node.costs.items():
        yield (group,), scaled(cost.driver_microseconds, _MICROSECONDS)


NODE: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_node_info",
        "info",
        "node",
        "The node, and the versions of its driver, of NVML and of the CUDA driver API.",
        ("node", "driver_version", "nvml_version", "cuda_version"),
        _info,
    ),
    Family(
        "gpuslice_node_gpus",
        "gauge",
        "node",
        "GPUs that the driver counts on this node, lost ones included.",
        lambda snapshot: snapshot.node.gpu_count,
    ),
    Family(
        "gpuslice_process_attribution_available",
        "gauge",
        "node",
        "1 if the numbers of single processes can be trusted; 0 where the host's processes cannot be seen.",
        lambda snapshot: int(snapshot.node.process_view) if snapshot.sequence else None,
    ),
    LabelledFamily(
        "gpuslice_allocations_unresolved",
        "gauge",
        "node",
        "Allocated device ids that match no visible device, or of which nobody says which they mean, by "
        "resource.",
        ("resource",),
        lambda snapshot: (((resource,), count) for resource, count in snapshot.node.unresolved.items()),
    ),
    LabelledFamily(
        "gpuslice_pod_annotations_unreadable",
        "gauge",
        "node",
        "1 for each sharing system at work here whose holders or entitlements are not known for want of the "
        "pods' annotations: see doctor.",
        ("system",),
        lambda snapshot: (((system,), 1) for system in snapshot.node.blind),
    ),
    Family(
        "gpuslice_allocations_timestamp_seconds",
        "gauge",
        "node",
        "Unix time of the kubelet's answer that the holders come from.",
        lambda snapshot: snapshot.node.allocations_read_at,
    ),
    Family(
        "gpuslice_unlisted_pods",
        "gauge",
        "node",
        "Running pods that the kubelet has not listed since it was started; their last known allocations are "
        "kept.",
        lambda snapshot: snapshot.node.unlisted_pods,
    ),
    LabelledFamily(
        "gpuslice_attribution_inconsistent_total",
        "counter",
        "node",
        "Polls in which the containers of a device added up to more than the device itself, by quantity.",
        ("uuid", "mig_uuid", "quantity"),
        lambda snapshot: snapshot.node.inconsistent.items(),
    ),
    LabelledFamily(
        "gpuslice_nvml_errors_total",
        "counter",
        "node",
        "Driver calls that failed, by GPU (none for calls about no GPU), call and error.",
        ("uuid", "call", "error"),
        lambda snapshot: snapshot.node.nvml_errors.items(),
    ),
    LabelledFamily(
        "gpuslice_nvml_calls_total",
        "counter",
        "node",
        "Calls into the driver, by group of readings; one that serves several groups counts as core.",
        ("group",),
        lambda snapshot: (((group,), cost.calls) for group, cost in snapshot.node.costs.items()),
    ),
    LabelledFamily(
        "gpuslice_nvml_call_seconds_total",
        "counter",
        "node",
        "Time spent in calls into the driver, by group of readings.",
        ("group",),
        lambda snapshot: (((group,), cost.seconds) for group, cost in snapshot.node.costs.items()),
    ),
    LabelledFamily(
        "gpuslice_nvml_field_read_seconds",
        "gauge",
        "node",
        "What the driver says that the field values of a group took at the last poll, all GPUs together.",
        ("group",),
        _latency,
    ),
    Family(
        "gpuslice_driver_released",
        "gauge",
        "node",
        "1 while the driver is given up so that GPUs can be reset or recut (gpuslice_gpu_up is 0), 0 else.",
        lambda snapshot: int(bool(snapshot.node.released)) if snapshot.sequence else None,
    ),
    Family(
        "gpuslice_snapshot_timestamp_seconds",
        "gauge",
        "node",
        "Unix time of the poll that this page shows.",
        lambda snapshot: snapshot.timestamp,
    ),
)
"""Families of the node as a whole, without labels of a level; their record is the Snapshot."""

COLLECTOR: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_collector_success",
        "gauge",
        "collector",
        "1 if the last pass of this source succeeded.",
        lambda health: int(health.success),
    ),
    Family(
        "gpuslice_collector_duration_seconds",
        "gauge",
        "collector",
        "How long the last pass of this source took.",
        lambda health: health.duration,
    ),
    Family(
        "gpuslice_collector_last_success_timestamp_seconds",
        "gauge",
        "collector",
        "Unix time of the last pass of this source that succeeded.",
        lambda health: health.last_success,
    ),
    LabelledFamily(
        "gpuslice_collector_errors_total",
        "counter",
        "collector",
        "Passes of this source that failed, by reason.",
        ("reason",),
        lambda health: (((reason,), count) for reason, count in health.errors.items()),
    ),
)
"""Families with one entity per source of data (a CollectorHealth), labelled ``collector``."""
