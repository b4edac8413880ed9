"""The objects of the cluster as they were last read, for the answer to why a pod waits.

Read from the Kubernetes API, or as far as it goes from kube-state-metrics through Prometheus.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from exporter.waiting.objects import Objects, WaitingPod

Source: TypeAlias = Literal["the Kubernetes API", "kube-state-metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The objects of the cluster, how old they are, and what is missing; all texts have no full stop."""

    source: Source
    at: float  # Unix time of this view
    # None: pods or nodes are not known, so that no pod can be judged.
    objects: Objects | None = None
    # The pods that wait, which are known without nodes; None: they are not.
    waiting: tuple[WaitingPod, ...] | None = None
    # Seconds since the last answer about each kind, such as "pods"; a kind that was never read is left out.
    ages: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[str, ...] = ()  # why kinds cannot be read now, each with its remedy
    # What this source cannot show, or could not read, such as "volumes"; of the cluster as a whole.
    unseen: tuple[str, ...] = ()
