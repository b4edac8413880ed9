"""The objects of this node and of its pods, from the Kubernetes API."""

from exporter.kubernetes.access import access
from exporter.kubernetes.cluster import Cluster, WatchedPods

__all__ = ["Cluster", "WatchedPods", "access"]
