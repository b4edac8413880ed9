"""Parser of ``/proc/<pid>/cgroup``: the pod and the container that a process runs in.

Kubelets, runtimes and cgroup drivers use a dozen path formats, and a reader in a private cgroup namespace
sees only the relative tail. All formats name the pod ``pod<uid>``, followed by the container's id of 64 hex
digits. Nested containers, started by a docker or kubelet inside, have further names below.
"""

import re
from dataclasses import dataclass

# The systemd driver writes the dashes of a uid as underscores; static pods have a bare hash of 32 digits.
_POD = re.compile(
    r"(?<![0-9A-Za-z_])pod"
    r"([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?![0-9A-Za-z_-])"
)
# conmon monitors a container from outside: its cgroup has the container's id without being the container's.
_CONTAINER = re.compile(r"(?<![0-9A-Za-z])(?<!conmon-)[0-9a-f]{64}(?![0-9A-Za-z])")
# A reader in a private cgroup namespace sees the other containers of its own pod as siblings; the pod's name
# is above the visible part of the path.
_SIBLING = re.compile(r"/\.\./[^/]*[0-9a-f]{64}")
# Names that runtimes give to a kubelet's containers if the kubelet makes no cgroups for pods.
_FOR_KUBELET = re.compile(r"/(?:k8s\.io/|crio-|cri-containerd-)[0-9a-f]{64}(?![0-9A-Za-z])")
# Hierarchy number, controllers (empty in v2), path.
_HIERARCHY = re.compile(r"^[0-9]+:[^:\n]*:/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """The pod and container of a cgroup."""

    pod_uid: str | None = None  # with dashes, or the bare 32-digit hash of a static pod
    container_id: str | None = None  # 64 hex digits
    own_pod: bool = False  # a container of the reader's own pod; the path does not show its uid
    some_pod: bool = False  # a container of some pod; the path does not show which
    # (pod uid, container id) of the pods that a nested pod runs in, innermost first.
    outer: tuple[tuple[str, str | None], ...] = ()


def parse_cgroup(text: str) -> CgroupPlace:
    """Return the place in a cgroup file (v1, v2 or hybrid); an empty place for any other text.

    On a hybrid node some hierarchies show only the runtime's service, so the most specific line counts. Never
    raises; takes time linear in the text.
    """
    return max(map(_parse_path, _paths(text)), key=_detail, default=CgroupPlace())


def names_cgroups(text: str) -> bool:
    """Return True if ``text`` is a cgroup file; any other text does not prove the absence of a pod."""
    return _HIERARCHY.search(text) is not None


def is_root(text: str) -> bool:
    """Return True if a cgroup file names the root in all hierarchies.

    In a private cgroup namespace that root is the reader's own cgroup, not the node's.
    """
    return _paths(text).keys() == {"/"}


def has_left(text: str) -> bool:
    """Return True if a cgroup file may be that of an exiting process: v1 then names the root, v2 does not."""
    lines = [line.split(":", 2) for line in text.split("\n") if line]
    v1_lines = [line for line in lines if line[0] != "0"] or lines
    return all(line[-1] == "/" for line in v1_lines)


def _paths(text: str) -> dict[str, None]:
    # In v1 a dozen hierarchies mostly repeat one path: parse each path once.
    return dict.fromkeys(line.split(":", 2)[-1] for line in text.split("\n") if line)


def _parse_path(path: str) -> CgroupPlace:
    # The innermost pod, because a node can itself be a container (kind, k3d), with its names first.
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


def _detail(place: CgroupPlace) -> tuple[bool, bool, bool, bool]:
    return place.pod_uid is not None, place.own_pod, place.some_pod, place.container_id is not None
