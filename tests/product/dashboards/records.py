"""The labels of series, and those of recording rules by their names: level:what:how."""

import re

from alerts.thresholds import load_thresholds
from alerts.write import RECORDING, rule_files
from exporter.metrics import FAMILIES, LEVEL_LABELS

TARGET = frozenset({"cluster", "job", "instance"})
RECORDS = frozenset(re.findall(r"(?m)^ *- record: (\S+)", rule_files(load_thresholds())[RECORDING]))
# Series of Prometheus itself, and of the exporter's own process.
OTHERS = {
    "up": TARGET,
    "ALERTS": TARGET
    | {"alertname", "alertstate", "severity", "node", "gpu", "model", "uuid", "mig_uuid", "namespace", "pod"},
    "gpuslice_build_info": TARGET | {"version", "python"},
    "gpuslice_render_duration_seconds": TARGET,
    "process_cpu_seconds_total": TARGET,
    "process_resident_memory_bytes": TARGET,
    "process_start_time_seconds": TARGET,
}
_GPU = frozenset({"cluster", "node", "gpu", "uuid"})
_LEVELS = {
    "container": _GPU | {"mig_uuid", "namespace", "pod", "container"},
    "gpu": _GPU | {"mig_uuid", "model"},
    "node": frozenset({"cluster", "node", "model"}),
    "namespace": frozenset({"cluster", "namespace"}),
    "cluster": frozenset({"cluster"}),
    "owner": frozenset({"cluster", "namespace", "owner_kind", "owner_name"}),
    # And labels of pods, of which a user chooses a few.
    "labels": frozenset({"cluster", "namespace", *(f"label_{number}" for number in range(8))}),
    "pod": frozenset({"cluster", "namespace", "pod"}),
}
_FURTHER = {
    "gpuslice_sharing": frozenset({"sharing"}),
    "gpuslice_raised_condition": frozenset({"condition"}),
    "gpuslice_known_gpus": frozenset({"value", "resource"}),
    "gpuslice_known_containers": frozenset({"value"}),
    "gpuslice_computing": frozenset({"value"}),
    "gpuslice_held_seconds": frozenset({"model", "sharing", "isolation"}),
    "gpuslice_last_week": frozenset({"value", "model", "sharing", "isolation"}),
    "gpuslice_usage": frozenset({"value", "model", "profile"}),
    "gpuslice_usage_seconds": frozenset({"value", "model", "class"}),
    "gpuslice_observed_seconds": frozenset({"model"}),
    "gpuslice_labels": frozenset({"pod_uid", "node", *(f"label_{number}" for number in range(8))}),
    "gpuslice_owner": frozenset({"owner_kind", "owner_name"}),
}


def record_labels(name: str) -> frozenset[str]:
    """Return the labels that a record may have; raises KeyError for an unknown level."""
    level, what, _ = name.split(":")
    if level == "node" and what.endswith("_slices"):
        return _LEVELS[level] | {"resource"}
    return _LEVELS[level] | _FURTHER.get(what, frozenset())


def series_labels(name: str) -> frozenset[str]:
    """Return the labels that a series may have; raises KeyError for an unknown series."""
    if name in RECORDS:
        return record_labels(name)
    if name in OTHERS:
        return frozenset(OTHERS[name])
    family = {family.name: family for family in FAMILIES}[name]
    return TARGET | {*LEVEL_LABELS[family.level], *family.labels}
