"""The pods and containers of the node that have processes, from the cgroups of all processes in ``/proc``."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.model import PodIdentity, ProcessPlace
from exporter.workloads.cgroups import parse_cgroup
from exporter.workloads.processes import read_file, read_stat

# The only process of a pod's sandbox, which keeps the pod's namespaces; "pod" on OpenShift.
SANDBOX_COMMANDS = frozenset({"pause", "pod"})


class Placed(NamedTuple):
    """The places of processes by pid, and optionally all pods and containers with processes."""

    places: Mapping[int, ProcessPlace]
    running: "Running | None" = None  # None if it was not read

    @property
    def containers(self) -> Mapping[str, frozenset[str]] | None:
        """Return the ids of containers with processes by pod uid."""
        return None if self.running is None else self.running.containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The pods and containers with processes."""

    pods: frozenset[str]  # uids
    containers: Mapping[str, frozenset[str]]  # container ids by pod uid, without sandboxes


def read_running(proc_root: Path) -> Running:
    """Return the pods and containers of all processes under ``proc_root``; OSError if it cannot be listed.

    Of nested pods the outermost counts: it is the one that the node's kubelet knows.
    """
    pods: set[str] = set()
    pids: dict[tuple[str, str], list[str]] = defaultdict(list)
    known: dict[bytes, tuple[str, str] | None] = {}
    for pid, text in _cgroups(proc_root):
        if text not in known:
            known[text] = _place(text)
        place = known[text]
        if place is not None:
            pods.add(place[0])
            pids[place].append(pid)
    containers: dict[str, set[str]] = defaultdict(set)
    for (uid, container_id), members in pids.items():
        if container_id and not _is_sandbox(proc_root, members):
            containers[uid].add(container_id)
    return Running(pods=frozenset(pods), containers={uid: frozenset(ids) for uid, ids in containers.items()})


def is_container_unclear(places: Iterable[ProcessPlace], pods: Mapping[str, PodIdentity]) -> bool:
    """Return True if known container ids do not determine the container of some process in its pod."""
    for place in places:
        pod = pods.get(place.pod_uid or "")
        named = pod is not None and (place.container_id in pod.container_ids or len(pod.containers) == 1)
        if place.pod_uid is not None and not named:
            return True
    return False


def _cgroups(proc_root: Path) -> Iterator[tuple[str, bytes]]:
    with os.scandir(proc_root) as entries:
        pids = [entry.name for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if text := _read(f"{proc_root}/{pid}/cgroup"):
            yield pid, text


def _place(text: bytes) -> tuple[str, str] | None:
    place = parse_cgroup(text.decode("utf-8", "replace"))
    if place.pod_uid is None:
        return None
    uid, container_id = place.outer[-1] if place.outer else (place.pod_uid, place.container_id)
    return uid, container_id or ""


def _is_sandbox(proc_root: Path, pids: list[str]) -> bool:
    stat = read_stat(str(proc_root), int(pids[0])) if len(pids) == 1 else None
    return stat is not None and stat.command in SANDBOX_COMMANDS


def _read(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError:
        return b""
