"""From the text of ``/proc/<pid>/cgroup`` to the pod and the container that the process runs in.

Kubelets, runtimes and cgroup drivers write a dozen different paths, and a container with a cgroup
namespace of its own sees only the relative tail of them. Two things are the same in all: the pod's part
is named ``pod<uid>``, and the first id of 64 hex digits below it is that of its container. What a container
starts in cgroups of its own, by a docker or a kubelet inside it, has further names below that.
"""

import re
from dataclasses import dataclass

# The systemd driver writes the dashes of a uid as underscores; static pods have a bare hash of 32 digits.
_POD = re.compile(
    r"(?<![0-9A-Za-z_])pod"
    r"([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?![0-9A-Za-z_-])"
)
# conmon watches over a container from outside; it is no part of the container whose id it carries.
_CONTAINER = re.compile(r"(?<![0-9A-Za-z])(?<!conmon-)[0-9a-f]{64}(?![0-9A-Za-z])")
# One step up and straight down into a container: where a reader with a cgroup namespace of its own sees
# the other containers of its own pod. The pod's name is above what such a path shows.
_SIBLING = re.compile(r"/\.\./[^/]*[0-9a-f]{64}")
# Outside any pod, with kubelets that make no cgroups for pods: what runtimes call a container of a kubelet's.
_FOR_KUBELET = re.compile(r"/(?:k8s\.io/|crio-|cri-containerd-)[0-9a-f]{64}(?![0-9A-Za-z])")
# Its number, its controllers (none in v2), and a path.
_HIERARCHY = re.compile(r"^[0-9]+:[^:\n]*:/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """Where a cgroup lies. ``pod_uid`` has dashes, or is the bare 32-digit hash of a static pod.

    ``container_id`` is 64 hex digits. ``own_pod``: a container of the reader's own pod, whose uid the
    path does not show; ``some_pod``: one of a pod that the path does not tell. ``outer`` are the pods, each
    with its container, in which the pod itself runs, from the next one outwards.
    """

    pod_uid: str | None = None
    container_id: str | None = None
    own_pod: bool = False
    some_pod: bool = False
    outer: tuple[tuple[str, str | None], ...] = ()


def parse_cgroup(text: str) -> CgroupPlace:
    """Read a whole cgroup file, v1, v2 or hybrid; text that is none gives a place without pod and container.

    On a hybrid node some hierarchies know only the runtime's service, so the line that tells most wins.
    Never raises, and takes time linear in the text.
    """
    return max(map(_parse_path, _paths(text)), key=_told, default=CgroupPlace())


def names_cgroups(text: str) -> bool:
    """Say whether a text is that of a cgroup file: of any other it cannot be said that it names no pod."""
    return _HIERARCHY.search(text) is not None


def is_root(text: str) -> bool:
    """Say whether a cgroup file names the root in all hierarchies: the root that its reader can see.

    From a cgroup namespace of its own that is the reader's own cgroup, not the node's.
    """
    return _paths(text).keys() == {"/"}


def has_left(text: str) -> bool:
    """Say whether a cgroup file may be that of a process that ends: v1 then names the root, v2 does not."""
    lines = [line.split(":", 2) for line in text.split("\n") if line]
    v1_lines = [line for line in lines if line[0] != "0"] or lines
    return all(line[-1] == "/" for line in v1_lines)


def _paths(text: str) -> dict[str, None]:
    # In v1 a dozen hierarchies mostly repeat one path: each is looked at once.
    return dict.fromkeys(line.split(":", 2)[-1] for line in text.split("\n") if line)


def _parse_path(path: str) -> CgroupPlace:
    # The last ones, because a node can itself be a container (kind, k3d) whose own names come first.
    if pods := _pods(path):
        (pod_uid, container_id), *outer = reversed(pods)
        return CgroupPlace(pod_uid, container_id, outer=tuple(outer))
    containers = _CONTAINER.findall(path)
    own_pod = _SIBLING.match(path) is not None
    return CgroupPlace(
        None,
        containers[-1] if containers else None,
        own_pod=own_pod,
        some_pod=not own_pod and _FOR_KUBELET.search(path) is not None,
    )


def _pods(path: str) -> list[tuple[str, str | None]]:
    """Return the pods that a path names, each with the first container below it."""
    pods: list[tuple[str, str | None]] = []
    matches = [*_POD.finditer(path)]
    for place, match in enumerate(matches, 1):
        end = matches[place].start() if place < len(matches) else len(path)
        container = _CONTAINER.search(path, match.end(), end)
        pods.append((match[1].replace("_", "-"), container[0] if container is not None else None))
    return pods


def _told(place: CgroupPlace) -> tuple[bool, bool, bool, bool]:
    return place.pod_uid is not None, place.own_pod, place.some_pod, place.container_id is not None
