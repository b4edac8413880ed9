"""Pod names by uid, from the kubelet's directories of container logs.

Every kubelet since 1.14 has them, and listing them needs no token and shows no secret. They outlive their pod
for a while: a pod found here has existed, but need not run any more.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.model import PodIdentity

# Neither a namespace nor a name can contain an underscore. The uid of a static pod is a bare hash.
_POD_DIRECTORY = re.compile(
    r"(?P<namespace>[a-z0-9-]+)_(?P<name>[a-z0-9.-]+)_"
    r"(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})"
)
_CONTAINER_NAME = re.compile(r"[a-z0-9-]+")
_DOCKER_LOG = re.compile(r"/containers/([0-9a-f]{64})/")


class PodLogs(NamedTuple):
    """The pods with log directories."""

    pods: tuple[PodIdentity, ...]
    superseded: frozenset[str]  # uids of pods replaced by another pod of the same name


def read_pod_logs(path: Path, known: Collection[str] = ()) -> PodLogs:
    """Return the pods with a directory ``<namespace>_<name>_<uid>`` in ``path``, sorted; blocks.

    Of several pods with one name only the newest is returned: one whose uid is ``known`` to exist, else the
    one whose directory was changed last. Raises OSError if ``path`` cannot be listed; a pod's directory that
    cannot be listed leaves its containers unknown.
    """
    try:
        matches, superseded = _newest(path, known)
    except OSError as error:
        remedy = "mount the node's /var/log/pods there, or set --pod-log-dir"
        raise OSError(f"cannot list pod logs in {path}: {error.strerror}; {remedy}") from error
    pods = (_read_pod(path / match[0], match) for match in matches)
    return PodLogs(tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))), superseded)


def index_pods(pods: Iterable[PodIdentity]) -> Mapping[str, PodIdentity]:
    return {pod.uid: pod for pod in pods}


def _newest(root: Path, known: Collection[str]) -> tuple[list[re.Match[str]], frozenset[str]]:
    """Return the newest pod directory for each name, and the uids of the others."""
    uids: set[str] = set()
    newest: dict[tuple[str, str], tuple[bool, int, str, re.Match[str]]] = {}
    for name in _directories(root):
        if (match := _POD_DIRECTORY.fullmatch(name)) is not None:
            uids.add(match["uid"])
            key = match["namespace"], match["name"]
            candidate = match["uid"] in known, _changed(root / name), name, match
            newest[key] = max(newest.get(key, candidate), candidate, key=lambda item: item[:3])
    matches = [match for *_, match in newest.values()]
    return matches, frozenset(uids - {match["uid"] for match in matches})


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read_pod(path: Path, match: re.Match[str]) -> PodIdentity:
    containers = _containers(path)
    return PodIdentity(
        uid=match["uid"],
        namespace=match["namespace"],
        name=match["name"],
        containers=containers,
        container_ids={id_: name for name in containers for id_ in _docker_ids(path / name)},
    )


def _containers(path: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(name for name in _directories(path) if _CONTAINER_NAME.fullmatch(name)))
    except OSError:
        return ()


def _directories(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _docker_ids(path: Path) -> Iterator[str]:
    # Docker writes the logs itself; the kubelet links to them by the container's id.
    try:
        with os.scandir(path) as entries:
            links = [Path(entry) for entry in entries if entry.is_symlink() and entry.name.endswith(".log")]
    except OSError:
        return
    for link in links:
        yield from _DOCKER_LOG.findall(_target(link))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
