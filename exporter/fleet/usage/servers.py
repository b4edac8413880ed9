"""The Prometheus servers that records come from, by the labels that these add.

Replicas record the same, and one of them counts; shards record a part of the nodes each, and add up.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from exporter.fleet.prometheus import Sample

PLACE = ("cluster", "node")


class Servers(NamedTuple):
    """Names of the labels in which servers differ."""

    replicas: tuple[str, ...] = ()
    """Most nodes have records with several values of these."""
    shards: tuple[str, ...] = ()
    """Most nodes have records with one value of these."""


ONE_SERVER = Servers()


def read_servers(samples: Sequence[Sample]) -> Servers:
    """Return the servers by samples with the labels of a node, and those that servers add."""
    names = sorted({name for sample in samples for name in sample.labels} - {*PLACE, "__name__"})
    replicas: list[str] = []
    shards: list[str] = []
    for name in names:
        nodes: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for sample in samples:
            nodes[sample.texts(*PLACE)].add(sample.text(name))
        if len(set().union(*nodes.values())) > 1:
            # A node may move to another shard, and a replica may miss some nodes.
            several = sum(len(values) > 1 for values in nodes.values())
            (replicas if 2 * several >= len(nodes) else shards).append(name)
    return Servers(tuple(replicas), tuple(shards))
