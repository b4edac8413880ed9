"""From the text of ``/proc/<pid>/cgroup`` to the pod and the container that the process runs in.

Kubelets, runtimes and cgroup drivers write a dozen different paths, and a container with a cgroup
namespace of its own sees only the relative tail of them. Two things are the same in all: the pod's part
is named ``pod<uid>``, and the container's part below it holds the runtime's id of 64 hex digits.
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
# Its number, its controllers (none in v2), and a path.
_HIERARCHY = re.compile(r"^[0-9]+:[^:\n]*:/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """Where a cgroup lies. ``pod_uid`` has dashes, or is the bare 32-digit hash of a static pod.

    ``container_id`` is 64 hex digits. ``own_pod``: a container of the reader's own pod, whose uid the
    path does not show.
    """

    pod_uid: str | None = None
    container_id: str | None = None
    own_pod: bool = False


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


def _paths(text: str) -> dict[str, None]:
    # In v1 a dozen hierarchies mostly repeat one path: each is looked at once.
    return dict.fromkeys(line.split(":", 2)[-1] for line in text.split("\n") if line)


def _parse_path(path: str) -> CgroupPlace:
    pod = _last(_POD, path)
    container = _last(_CONTAINER, path, pod.end() if pod else 0)
    container_id = container[0] if container else None
    if pod:
        return CgroupPlace(pod[1].replace("_", "-"), container_id)
    return CgroupPlace(None, container_id, own_pod=_SIBLING.match(path) is not None)


def _last(pattern: re.Pattern[str], path: str, start: int = 0) -> re.Match[str] | None:
    # The last one, because a node can itself be a container (kind, k3d) whose own names come first.
    return max(pattern.finditer(path, start), key=re.Match.start, default=None)


def _told(place: CgroupPlace) -> tuple[bool, bool, bool]:
    return place.pod_uid is not None, place.own_pod, place.container_id is not None
