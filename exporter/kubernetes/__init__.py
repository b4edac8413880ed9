"""Objects from the Kubernetes API: those of this node and of its pods, or of the whole cluster."""

from exporter.kubernetes.access import access
from exporter.kubernetes.cluster import Cluster, WatchedPods

__all__ = ["Cluster", "WatchedPods", "access"]
