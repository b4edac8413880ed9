"""The containers of the cgroups of a node, by the names in their paths (rule 14 of ``docs/join.md``)."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from exporter.model import PodIdentity, only
from exporter.model.memory_limits import Cgroup, CgroupTree


class Place(NamedTuple):
    """A container of a pod, by the names in the path of its cgroup."""

    pod_uid: str
    container_id: str


def cgroups_of_containers(tree: CgroupTree, pods: Mapping[str, PodIdentity]) -> dict[Place, tuple[str, ...]]:
    """Return the cgroups of each container, outermost first: its own, and the only line of those in it.

    Of several apart from each other, the one in the fewest pods is the container's: a container with a
    part of the tree to itself can give any name to a cgroup below its own.
    """
    pod_of = {container: pod.uid for pod in pods.values() for container in pod.container_ids}
    groups: dict[Place, list[Cgroup]] = defaultdict(list)
    for cgroup in tree.cgroups.values():
        place = _place(cgroup, pods, pod_of)
        if place is not None:
            groups[place].append(cgroup)
    placed: dict[Place, tuple[str, ...]] = {}
    for place, cgroups in groups.items():
        paths = {cgroup.path for cgroup in cgroups}
        tops = [cgroup for cgroup in cgroups if paths.isdisjoint(paths_above(cgroup.path))]
        fewest = min(len(cgroup.places) for cgroup in tops)
        top = only(cgroup.path for cgroup in tops if len(cgroup.places) == fewest)
        if top is not None:
            inside = sorted(path for path in paths if path.startswith(f"{top}/"))
            line = all(path.startswith(f"{outer}/") for outer, path in pairwise(inside))
            placed[place] = (top, *inside) if line else (top,)
    return placed


def _place(cgroup: Cgroup, pods: Collection[str], pod_of: Mapping[str, str]) -> Place | None:
    """Return the container of a cgroup: of pods in pods the innermost one that the node knows."""
    for uid, container in cgroup.places:
        owner = pod_of.get(container) or (uid if uid in pods else "")
        if owner and container:
            return Place(owner, container)
    uid, container = cgroup.places[0] if cgroup.places else ("", "")
    return Place(uid, container) if uid and container else None


def paths_above(path: str) -> Iterator[str]:
    """Yield the paths of the cgroups above one, nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path
