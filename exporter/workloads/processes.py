"""From the pids that a driver names to the places they run in, through ``/proc``.

A pid is only a number that the kernel gives out again. Each answer is therefore tied to the start time
of the process: read before its cgroup, and after it where that is news, and compared with the moment the
driver was asked.
"""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from exporter.model import PodIdentity, ProcessPlace, Workloads
from exporter.workloads.cgroups import CgroupPlace, has_left, names_cgroups, parse_cgroup

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields 3, 4, 9 and 22 of proc(5), counted from behind the command name.
_STATE, _PARENT, _FLAGS, _START = 0, 1, 6, 19
_EXITING = 0x4
# From what a docker inside a pod runs it is a few steps to the pod.
_MOST_PARENTS = 64
# The kernel keeps so many bytes of a command name; only its own threads have longer ones.
_COMMAND_BYTES = 15
# Nearly all of these files are shorter. More than some pages at once would be new memory for each of them.
_PORTION = 8 << 10


class Stat(NamedTuple):
    """``start`` in clock ticks since boot; ``command`` None for a process without a name.

    ``ending``: a zombie, or one that the kernel takes apart, which may take as long as its GPU does.
    """

    start: int
    parent: int
    ending: bool
    command: str | None


class _Seen(NamedTuple):
    start: int
    cgroup: bytes
    place: ProcessPlace


class ProcessTable:
    """The processes under ``proc_root``, read anew each time but for those that have just ended.

    ``own_pod_uid`` is the uid of the pod that reads: from a cgroup namespace of its own, the containers
    of that one pod are seen without its uid.
    """

    def __init__(self, proc_root: Path, own_pod_uid: str | None = None) -> None:
        self._root = str(proc_root)
        self._own_pod_uid = own_pod_uid
        self._seen: dict[int, _Seen] = {}

    def read(self, pids: Mapping[int, float | None]) -> Mapping[int, ProcessPlace]:
        """Place every pid asked for; blocks.

        Each pid comes with the boot clock in seconds when the driver named it: whatever started later
        only got the number of the one that it meant. None leaves that check out. A process that ended
        since then keeps the place that the read before this one found. Raises OSError when there is no
        process table at all.
        """
        require_process_table(Path(self._root))
        previous, self._seen = self._seen, {}
        return {pid: self._place(pid, _latest_start(named), previous.get(pid)) for pid, named in pids.items()}

    def _place(self, pid: int, latest: float, previous: _Seen | None) -> ProcessPlace:
        unknown = ProcessPlace(pid=pid, known=False)
        stat = read_stat(self._root, pid)
        if stat is None:
            return previous.place if previous else unknown
        if stat.start > latest:
            return unknown
        cgroup = _read_cgroup(self._root, pid)
        if previous is not None and previous.start != stat.start:
            previous = None
        if previous is not None and cgroup == previous.cgroup:
            # Whoever may have got the number since then, this is where the process was and still is.
            return self._remember(pid, stat, cgroup, previous.place)
        after = read_stat(self._root, pid)
        if after is not None and after.start != stat.start:
            return unknown
        return self._by_cgroup(pid, after, cgroup, previous)

    def _by_cgroup(self, pid: int, stat: Stat | None, cgroup: bytes, previous: _Seen | None) -> ProcessPlace:
        """Place a process by what its file says now, else by what it has said ``before``."""
        text = cgroup.decode("utf-8", "replace")
        if stat is None or not names_cgroups(text):
            return previous.place if previous else ProcessPlace(pid=pid, known=False)
        # cgroup v1 says the root of a process that ends, which says nothing of where it ran.
        if not stat.ending or not has_left(text):
            return self._remember(pid, stat, cgroup, self._of(pid, stat.parent, parse_cgroup(text)))
        if previous is None:
            return ProcessPlace(pid=pid, known=False)
        return self._remember(pid, stat, previous.cgroup, previous.place)

    def _of(self, pid: int, parent: int, place: CgroupPlace) -> ProcessPlace:
        in_pod = place.pod_uid is not None or place.own_pod
        if not in_pod and not place.some_pod and place.container_id is not None:
            started_by = self._pod_above(parent)
            if started_by is None:
                return ProcessPlace(pid=pid, known=False, container_id=place.container_id)
            place = place if started_by == CgroupPlace() else started_by
        # It is in a pod, and of which one is not known.
        hidden = place.some_pod or (place.own_pod and self._own_pod_uid is None)
        return ProcessPlace(
            pid=pid,
            known=not hidden,
            pod_uid=self._own_pod_uid if place.own_pod else place.pod_uid,
            container_id=place.container_id,
            outer=place.outer,
        )

    def _pod_above(self, pid: int) -> CgroupPlace | None:
        """Find the pod that has started a container outside all pods, as docker in a pod does on cgroup v2.

        An empty place where none has, None where that cannot be told.
        """
        for _ in range(_MOST_PARENTS):
            if pid <= 0:
                return CgroupPlace()
            stat, text = read_stat(self._root, pid), _read_cgroup(self._root, pid).decode("utf-8", "replace")
            if stat is None or not names_cgroups(text):
                return None
            place = parse_cgroup(text)
            if place.pod_uid is not None or place.own_pod or place.some_pod:
                return place
            pid = stat.parent
        return None

    def _remember(self, pid: int, stat: Stat, cgroup: bytes, place: ProcessPlace) -> ProcessPlace:
        if not place.known:
            return replace(place, command=stat.command)
        if place.command != stat.command:
            place = replace(place, command=stat.command)
        self._seen[pid] = _Seen(stat.start, cgroup, place)
        return place


def boot_seconds(proc_root: Path) -> float | None:
    """Give the boot clock of the tree in seconds, None when it has none.

    It is read from the tree, because a recorded tree stopped when it was recorded. Only where the live
    /proc hides the file (``subset=pid``) does the kernel's clock stand in for it.
    """
    try:
        seconds = float(read_file(f"{proc_root}/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return time.clock_gettime(time.CLOCK_BOOTTIME) if _is_live(proc_root) else None
    return seconds if 0 <= seconds < math.inf else None


def require_process_table(proc_root: Path) -> None:
    """Raise OSError with the remedy unless ``proc_root`` is a directory that can be listed."""
    try:
        os.scandir(proc_root).close()
    except OSError as error:
        message = f"cannot read the process table in {proc_root}: {error.strerror}"
        raise OSError(f"{message}; set --proc-root to a procfs") from error


def _latest_start(named_at: float | None) -> float:
    """Return the last tick at which a process can have started that was named at this boot clock."""
    return math.inf if named_at is None else named_at * TICKS_PER_SECOND + 1


def _is_live(proc_root: Path) -> bool:
    try:
        return proc_root.samefile("/proc")
    except OSError:
        return False


def read_stat(proc_root: str, pid: int) -> Stat | None:
    """Return what the stat file of a process contains, None if it cannot be read."""
    try:
        # A command name may hold blanks, brackets and line feeds; behind its last bracket are only numbers.
        head, _, behind = read_file(f"{proc_root}/{pid}/stat").rpartition(b")")
        fields = behind.split(None, _START + 1)
        ending = fields[_STATE] in (b"Z", b"X") or bool(int(fields[_FLAGS]) & _EXITING)
        return Stat(int(fields[_START]), int(fields[_PARENT]), ending, _command(head))
    except (OSError, ValueError, IndexError):
        return None


def _command(text: bytes) -> str | None:
    """Give the name behind the first bracket: the same text that ``comm`` has, without one more read."""
    return text.partition(b"(")[2][:_COMMAND_BYTES].decode("utf-8", "replace") or None


def _read_cgroup(proc_root: str, pid: int) -> bytes:
    try:
        return read_file(f"{proc_root}/{pid}/cgroup")
    except OSError:
        return b""


def read_file(path: str) -> bytes:
    """Read a file of /proc, of a thousand at each poll, without the standard library's way for all kinds."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel makes each of these as one piece (single_open): what leaves room is all that there is.
        text = portion = os.read(file, _PORTION)
        while len(portion) == _PORTION:
            portion = os.read(file, _PORTION)
            text += portion
        return text
    finally:
        os.close(file)


def settled(workloads: Workloads, own_uid: str) -> Workloads:
    """Place the processes again of which the pods tell more than the cgroups; what is sure stays as it is.

    ``own_uid`` is that of the pod that reads: a container beside it, whose pod the path does not show, is
    taken for its own.
    """
    pods = workloads.pods or {}
    doubtful = [place for place in workloads.places.values() if _is_doubtful(place, pods, own_uid)]
    if not pods or not doubtful:
        return workloads
    owners = {container: pod.uid for pod in pods.values() for container in pod.container_ids}
    settled_places = {place.pid: _settled(place, pods, owners, own_uid) for place in doubtful}
    return replace(workloads, places={**workloads.places, **settled_places})


def _is_doubtful(place: ProcessPlace, pods: Mapping[str, PodIdentity], own_uid: str) -> bool:
    if place.container_id is None:
        return bool(place.outer)
    return place.pod_uid in (None, own_uid) or place.pod_uid not in pods


def _settled(
    place: ProcessPlace, pods: Mapping[str, PodIdentity], owners: Mapping[str, str], own_uid: str
) -> ProcessPlace:
    """Return the place in the pod that has the container, else in the innermost pod that is known."""
    owner = owners.get(place.container_id or "")
    if owner is not None:
        return replace(place, known=True, pod_uid=owner, outer=())
    if place.pod_uid == own_uid and own_uid in pods and pods[own_uid].container_ids:
        return ProcessPlace(pid=place.pid, known=False, command=place.command)
    for uid, container in place.outer if place.pod_uid not in pods else ():
        if uid in pods:
            return replace(place, pod_uid=uid, container_id=container, outer=())
    return place
