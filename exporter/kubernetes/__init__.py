"""The objects of this node and of its pods, from the Kubernetes API."""

from exporter.kubernetes.access import access
from exporter.kubernetes.cluster import Cluster
from exporter.kubernetes.node_objects import WatchedPods

__all__ = ["Cluster", "WatchedPods", "access"]
