"""What the Kubernetes API tells of this node: the objects of its pods, and its own."""

from exporter.kubernetes.access import access
from exporter.kubernetes.cluster import Cluster
from exporter.kubernetes.node_objects import WatchedPods

__all__ = ["Cluster", "WatchedPods", "access"]
