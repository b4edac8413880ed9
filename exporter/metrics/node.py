"""Rows of the node and of the collectors."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import AnyFamily, Labelled, Rows, keyed, scaled, whole
from exporter.model import CollectorHealth, DriverInfo, NodeRow, Number, Snapshot
from exporter.model.mig_profiles import MigProfile

_MICROSECONDS = 1_000_000

_SNAPSHOT: Rows[Snapshot, Snapshot] = Rows("gpuslice_", "node", whole)
_NODE = _SNAPSHOT.of(lambda snapshot: snapshot.node)
# Builder for values that are unknown before the first poll.
_POLLED = _SNAPSHOT.of(lambda snapshot: snapshot.node if snapshot.sequence else None)
_COLLECTOR: Rows[CollectorHealth, CollectorHealth] = Rows("gpuslice_collector_", "collector", whole)


def _by_profile(value: Callable[[MigProfile], Number | None]) -> Callable[[NodeRow], Iterator[Labelled]]:
    """Return the function of the node that yields a sample for each MIG profile of its GPU models."""

    def samples(node: NodeRow) -> Iterator[Labelled]:
        for model, (source, profiles) in node.mig_profiles.items():
            yield from (((model, profile.name, source), value(profile)) for profile in profiles)

    return samples


def _info(node: NodeRow) -> tuple[str, ...]:
    driver = node.driver or DriverInfo()
    versions = (driver.driver_version, driver.nvml_version, driver.cuda_version)
    return tuple(version or "" for version in versions)


_CONFIDENTIAL = _NODE.full.of(lambda node: node.driver.confidential if node.driver is not None else None)
_SWITCH = {True: "on", False: "off", None: ""}

# Families of the node (Snapshot), without labels of a level.
NODE: tuple[AnyFamily, ...] = (
    _NODE.info(
        "node_info{driver_version, nvml_version, cuda_version}",
        "Versions of the driver, NVML and the CUDA driver API on the node.",
        _info,
    ),
    _CONFIDENTIAL.info(
        "node_confidential_computing_info{mode, environment, multi_gpu, developer_tools}",
        "Confidential computing of the node's GPUs: mode (on, off), environment (production, simulation), "
        "multi_gpu (none, protected_pcie, nvlink_encryption) and developer_tools (on, off).",
        lambda mode: (_SWITCH[mode.enabled], mode.environment, mode.multi_gpu, _SWITCH[mode.developer_tools]),
    ),
    _CONFIDENTIAL.flag(
        "node_confidential_computing_ready",
        "1 if GPUs with confidential computing accept work, else 0: their attestation is not complete.",
        lambda mode: mode.ready,
    ),
    _NODE.gauge(
        "node_gpus",
        "GPUs that the driver counts on this node, including lost GPUs.",
        lambda node: node.gpu_count,
    ),
    _NODE.gauge_by(
        "node_mig_profile_memory_bytes{model, profile, source}",
        "Usable memory of a GPU instance of the MIG profile, by GPU model on this node. source: driver, or "
        "table if the driver does not report it.",
        _by_profile(lambda profile: profile.memory),
    ),
    _NODE.gauge_by(
        "node_mig_profile_multiprocessors{model, profile, source}",
        "Multiprocessors of a GPU instance of the MIG profile, by GPU model on this node.",
        _by_profile(lambda profile: profile.multiprocessors),
    ),
    _NODE.gauge_by(
        "node_mig_profile_instances{model, profile, source}",
        "Maximum number of GPU instances of the MIG profile on one GPU, by GPU model on this node.",
        _by_profile(lambda profile: profile.instances),
    ),
    _POLLED.flag(
        "process_attribution_available",
        "1 if per-process usage can be attributed; 0 if host processes are not visible.",
        lambda node: node.process_view,
    ),
    _NODE.gauge_by(
        "allocations_unresolved{resource}",
        "Allocated device IDs that could not be mapped to a GPU on this node, by resource.",
        lambda node: keyed(node.unresolved),
    ),
    _NODE.gauge_by(
        "pod_annotations_unreadable{system}",
        "1 if a sharing system is in use but its pod annotations cannot be read, by system.",
        lambda node: (((system,), 1) for system in node.blind),
    ),
    _NODE.gauge(
        "allocations_timestamp_seconds",
        "Unix time of the pod-resources response behind the current allocations.",
        lambda node: node.allocations_read_at,
    ),
    _NODE.gauge(
        "unlisted_pods",
        "Running pods that the kubelet has not listed since its last restart; their last known allocations "
        "are kept.",
    ),
    _NODE.counter_by(
        "attribution_inconsistent_total{uuid, mig_uuid, quantity}",
        "Polls in which the usage of a device's containers exceeded the usage of the device, by quantity.",
        lambda node: node.inconsistent.items(),
    ),
    _NODE.counter_by(
        "nvml_errors_total{uuid, call, error}",
        "Failed NVML calls, by GPU, call and error; without uuid if the call is not about a GPU.",
        lambda node: node.nvml_errors.items(),
    ),
    _NODE.full.counter_by(
        "nvml_calls_total{group}",
        "NVML calls, by group of readings; a call for several groups counts as core.",
        lambda node: (((group,), cost.calls) for group, cost in node.costs.items()),
    ),
    _NODE.full.counter_by(
        "nvml_call_seconds_total{group}",
        "Time spent in NVML calls, by group of readings.",
        lambda node: (((group,), cost.seconds) for group, cost in node.costs.items()),
    ),
    _NODE.full.gauge_by(
        "nvml_field_read_seconds{group}",
        "Time reported by the driver for reading NVML field values in the last poll, summed over all GPUs, "
        "by group of readings.",
        lambda node: (
            ((group,), scaled(cost.driver_microseconds, _MICROSECONDS)) for group, cost in node.costs.items()
        ),
    ),
    _POLLED.flag(
        "driver_released",
        "1 while NVML is shut down so that GPUs can be reset or repartitioned (gpuslice_gpu_up is then 0), "
        "else 0.",
        lambda node: bool(node.released),
    ),
    _SNAPSHOT.gauge(
        "snapshot_timestamp_seconds",
        "Unix time of the poll behind this page.",
        lambda snapshot: snapshot.timestamp,
    ),
)

# Families of the sources of data (CollectorHealth), labelled ``collector``.
COLLECTOR: tuple[AnyFamily, ...] = (
    _COLLECTOR.flag("success", "1 if the last collection from this source succeeded, else 0."),
    _COLLECTOR.gauge(
        "duration_seconds",
        "Duration of the last collection from this source.",
        lambda health: health.duration,
    ),
    _COLLECTOR.gauge(
        "last_success_timestamp_seconds",
        "Unix time of the last successful collection from this source.",
        lambda health: health.last_success,
    ),
    _COLLECTOR.counter_by(
        "errors_total{reason}",
        "Failed collections from this source, by reason.",
        lambda health: keyed(health.errors),
    ),
)
