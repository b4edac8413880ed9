"""Rows of an alert by its subject, without the labels of the target.

Several targets that report one subject, as replicas or while an exporter's pod is replaced, are one alert.
"""

from alerts.records import GPU


def by_node(rows: str, *more: str) -> str:
    """Return the largest of the rows of each node, by ``cluster``, ``node`` and ``more`` labels."""
    return f"max by ({', '.join(('cluster, node', *more))}) ({rows})"


def by_gpu(rows: str, *more: str) -> str:
    """Return the largest of the rows of each GPU, by the labels ``GPU`` and ``more``."""
    return f"max by ({', '.join((GPU, *more))}) ({rows})"
