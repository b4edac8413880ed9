"""Options that request something which this node does not have: findings, and a log line for each.

Others have their checks beside the source that they name: a driver's library, sockets and directories, a
dcgm-exporter, the Kubernetes API, patterns of series.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from exporter.config import Settings
from exporter.doctor import Check, absent, degraded
from exporter.metrics.selection import Selection
from exporter.model import Allocations, Snapshot
from exporter.model.poll_result import PollResult

log = logging.getLogger(__name__)

POD_LABELS_UNREADABLE: Final = degraded(
    "pod-labels-unreadable",
    "the labels of pods on /metrics",
    "mount the kubelet's Pods API (Kubernetes 1.37 or later: deploy/components/pods-api), or read pods from "
    "the API server: deploy/components/kubernetes-api; else remove --pod-labels",
)
NODE_NAME_UNKNOWN: Final = degraded(
    "node-name-unknown",
    "annotations and labels of this node and of its pods",
    "set --node-name, or NODE_NAME in the pod, to the name of the node in `kubectl get nodes`",
)
RESOURCES_UNMATCHED: Final = degraded(
    "resources-unmatched",
    "slices and holders of the resources that the pattern is meant to match",
    "correct --resource-pattern, which must match the whole name, or start the device plugin",
)
RESOURCES_NOT_HERE: Final = absent("resources-not-here")
THROUGHPUT_NOT_HERE: Final = degraded(
    "throughput-not-here", "the PCIe throughput", "remove --pcie-throughput on this node"
)
THROUGHPUT_NOT_SHOWN: Final = degraded(
    "throughput-not-shown",
    "the PCIe throughput on /metrics",
    "set --metric-set standard, or --metric-allowlist gpuslice_gpu_pcie_sampled_bytes_per_second",
)
RELEASE_FILE_UNREADABLE: Final = degraded(
    "release-file-unreadable",
    "requests to release the driver by a file",
    "create or mount the directory of --driver-release-file, and make it readable",
)
# Names of resources or patterns that a text has.
_NAMED: Final = 5


def request_checks(snapshot: Snapshot, evidence: PollResult, settings: Settings) -> Iterator[Check]:
    """Yield a check for each option that this node cannot follow."""
    yield from _pod_labels(evidence, settings)
    if evidence.node_missing:
        text = f"the Kubernetes API has no node {settings.node_name}"
        yield NODE_NAME_UNKNOWN.check("node name", text)
    if evidence.allocations is not None:
        yield from _resources(snapshot, evidence.allocations, settings)
    yield from _throughput(snapshot, settings)
    if evidence.release_objection:
        yield RELEASE_FILE_UNREADABLE.check("release file", evidence.release_objection)


def _pod_labels(evidence: PollResult, settings: Settings) -> Iterator[Check]:
    if settings.pod_labels and not evidence.objects_from and not evidence.objects_pending:
        patterns = _named(pattern.pattern for pattern in settings.pod_labels)
        text = f"--pod-labels {patterns}: neither the kubelet's Pods API nor the Kubernetes API is read"
        yield POD_LABELS_UNREADABLE.check("pod labels", text)


def _resources(snapshot: Snapshot, allocations: Allocations, settings: Settings) -> Iterator[Check]:
    """Yield a check of each pattern without a resource: a fault unless the node has GPUs of known resources.

    Nodes of several kinds may share the patterns of all.
    """
    if allocations.offered is None:
        return
    names = {offer.resource for offer in (*allocations.offered, *allocations.withdrawn)}
    names |= {held.resource for held in allocations.allocated}
    counted = any(gpu.slices for gpu in snapshot.gpus) or any(mig.slices for mig in snapshot.migs)
    finding = RESOURCES_NOT_HERE if counted or not snapshot.gpus else RESOURCES_UNMATCHED
    for pattern in settings.resource_pattern:
        if not any(map(pattern.fullmatch, names)):
            text = f"--resource-pattern {pattern.pattern} matches no resource of this node: {_named(names)}"
            yield finding.check("resources by name", text)


def _throughput(snapshot: Snapshot, settings: Settings) -> Iterator[Check]:
    if not settings.pcie_throughput:
        return
    readings = [row.reading for row in snapshot.gpus if row.reading is not None and row.reading.up]
    if readings and not any(reading.pcie_throughput for reading in readings):
        text = "--pcie-throughput on: no GPU that answers reports it"
        yield THROUGHPUT_NOT_HERE.check("requested PCIe throughput", text)
    elif not any(family.group == "pcie_throughput" for family in Selection.of(settings).families()):
        text = "--pcie-throughput on: it is read, but no chosen series has it"
        yield THROUGHPUT_NOT_SHOWN.check("requested PCIe throughput", text)


def _named(names: Iterable[str]) -> str:
    listed = sorted(set(names))
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more or "none"


class RequestLog:
    """Logs what this node cannot follow, once until it can; ``evidence`` returns the last poll's result."""

    def __init__(self, evidence: Callable[[], PollResult], settings: Settings) -> None:
        self._evidence = evidence
        self._settings = settings
        self._logged: frozenset[str] = frozenset()

    def record(self, snapshot: Snapshot) -> None:
        """Log new findings of a snapshot; on the event loop, since the next poll replaces the evidence."""
        checks = {check.found: check for check in request_checks(snapshot, self._evidence(), self._settings)}
        for found in checks.keys() - self._logged:
            check = checks[found]
            if check.remedy:
                log.warning("%s; %s", found, check.remedy)
            else:
                log.info("%s", found)
        self._logged = frozenset(checks)
