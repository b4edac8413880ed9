"""The pod and container of each pid that a driver reports, from ``/proc``.

The kernel reuses pids. Each answer is therefore tied to the start time of the process: read before its
cgroup, and again after it if the place is new, and compared with the time when the driver was asked.
``pid_namespace.py`` proves that pids mean the same to the driver and in ``/proc``.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from exporter.model import ProcessPlace
from exporter.workloads.cgroups import CgroupPlace, has_left, names_cgroups, parse_cgroup

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields 3, 4, 9 and 22 of proc(5), counted from behind the command name.
_STATE, _PARENT, _FLAGS, _START = 0, 1, 6, 19
_EXITING = 0x4
# The kernel counts ticks in 64 bits.
_LATEST_START = 1 << 64
# A container of a docker inside a pod is a few parents away from the pod.
_MOST_PARENTS = 64
# The kernel keeps 15 bytes of a command name; only its own threads have longer ones.
_COMMAND_BYTES = 15
# Bytes; nearly all of these files are shorter, and a larger buffer would be allocated anew for each read.
_PORTION = 8 << 10


class Stat(NamedTuple):
    """The stat file of a process."""

    start: int  # clock ticks since boot
    parent: int
    ending: bool  # a zombie, or exiting, which may take as long as the GPU hangs
    command: str | None  # None for a process without a name


class _Seen(NamedTuple):
    start: int
    cgroup: bytes
    place: ProcessPlace


class ProcessTable:
    """The processes under ``proc_root``; keeps the places of one read for processes that end before the next.

    ``own_pod_uid`` is the uid of the exporter's pod: from a private cgroup namespace, paths of that pod's
    containers do not show it.
    """

    def __init__(self, proc_root: Path, own_pod_uid: str | None = None) -> None:
        self._root = str(proc_root)
        self._own_pod_uid = own_pod_uid
        self._seen: dict[int, _Seen] = {}
        # What ``_pod_above`` has returned in this read; the first process has no parent.
        self._above: dict[int, CgroupPlace | None] = {}

    def read(self, pids: Mapping[int, float | None]) -> Mapping[int, ProcessPlace]:
        """Return the place of every pid; blocks.

        ``pids`` maps a pid to the boot clock in seconds when the driver reported it, or None to skip the
        check: a process that started later has reused the pid. A process that has ended keeps the place of
        the previous read. Raises OSError if there is no process table.
        """
        require_process_table(Path(self._root))
        previous, self._seen, self._above = self._seen, {}, {0: CgroupPlace()}
        places = {
            pid: self._place(pid, _latest_start(named), previous.get(pid)) for pid, named in pids.items()
        }
        unknown = [pid for pid, place in places.items() if not (place.known or place.ended)]
        return places | {pid: replace(places[pid], kin=self._kin(pid, places)) for pid in unknown}

    def _place(self, pid: int, latest: float, previous: _Seen | None) -> ProcessPlace:
        unknown = ProcessPlace(pid=pid, known=False)
        stat = read_stat(self._root, pid)
        if stat is None:
            place = previous.place if previous else unknown
            return place if os.path.lexists(f"{self._root}/{pid}") else replace(place, ended=True)
        if stat.start > latest:
            return replace(unknown, ended=True)
        cgroup = read_cgroup(self._root, pid)
        if previous is not None and previous.start != stat.start:
            previous = None
        if previous is not None and cgroup == previous.cgroup and previous.place.pod_uid is not None:
            # Same start time and cgroup: the same process, even if the pid is reused from now on. That no
            # ancestor is in a pod is found again in each read.
            return self._remember(pid, stat, cgroup, previous.place)
        after = read_stat(self._root, pid)
        if after is not None and after.start != stat.start:
            return replace(unknown, ended=True)
        return self._by_cgroup(pid, after, cgroup, previous)

    def _by_cgroup(self, pid: int, stat: Stat | None, cgroup: bytes, previous: _Seen | None) -> ProcessPlace:
        """Return the place by the current cgroup file, else the previous place."""
        text = cgroup.decode("utf-8", "replace")
        if stat is None or not names_cgroups(text):
            return previous.place if previous else ProcessPlace(pid=pid, known=False)
        # cgroup v1 shows the root for an exiting process, wherever it ran.
        if not stat.ending or not has_left(text):
            return self._remember(pid, stat, cgroup, self._of(pid, stat.parent, parse_cgroup(text)))
        if previous is None:
            return ProcessPlace(pid=pid, known=False)
        return self._remember(pid, stat, previous.cgroup, previous.place)

    def _of(self, pid: int, parent: int, place: CgroupPlace) -> ProcessPlace:
        in_pod = place.pod_uid is not None or place.own_pod
        if not in_pod and not place.some_pod:
            started_by = self._pod_above(parent)
            if started_by is None:
                return ProcessPlace(pid=pid, known=False, container_id=place.container_id)
            place = place if started_by == CgroupPlace() else started_by
        # In a pod whose uid is unknown.
        hidden = place.some_pod or (place.own_pod and self._own_pod_uid is None)
        return ProcessPlace(
            pid=pid,
            known=not hidden,
            pod_uid=self._own_pod_uid if place.own_pod else place.pod_uid,
            container_id=place.container_id,
            outer=place.outer,
        )

    def _pod_above(self, pid: int) -> CgroupPlace | None:
        """Return the pod that a process runs in, or else an ancestor of it, as with docker in a pod.

        Such docker may put its containers and builds into cgroups next to those of all pods. An empty place
        means that no ancestor up to the first process is in a pod, None that this is unknown.
        """
        chain: list[int] = []
        while pid not in self._above and len(chain) < _MOST_PARENTS:
            chain.append(pid)
            text = cgroup_text(self._root, pid)
            place = parse_cgroup(text)
            if place.pod_uid is not None or place.own_pod or place.some_pod:
                self._above[pid] = place
            elif names_cgroups(text) and (stat := read_stat(self._root, pid)) is not None:
                pid = stat.parent
            else:
                self._above[pid] = None
        answer = self._above.get(pid)
        self._above.update(dict.fromkeys(chain, answer))
        return answer

    def _kin(self, pid: int, places: Mapping[int, ProcessPlace]) -> frozenset[str]:
        """Return the pods that a process may run in: of its cgroup, its ancestors and its descendants.

        Also those of the other descendants of an ancestor whose cgroup cannot be read.
        """
        line = {each: cgroup_text(self._root, each) for each in (pid, *self._ancestors(pid))}
        found = [parse_cgroup(text) for text in line.values()]
        kin = {self._own_pod_uid if place.own_pod else place.pod_uid for place in found}
        common = {pid, *(each for each, text in line.items() if not names_cgroups(text))}
        kin |= {
            place.pod_uid for other, place in places.items() if not common.isdisjoint(self._ancestors(other))
        }
        return frozenset(uid for uid in kin if uid is not None)

    def _ancestors(self, pid: int) -> Iterator[int]:
        """Yield the parent of a process, its parent, and so on, as far as they can be read."""
        for _ in range(_MOST_PARENTS):
            stat = read_stat(self._root, pid)
            if stat is None or stat.parent <= 0:
                return
            pid = stat.parent
            yield pid

    def _remember(self, pid: int, stat: Stat, cgroup: bytes, place: ProcessPlace) -> ProcessPlace:
        if not place.known:
            return replace(place, command=stat.command)
        started = stat.start / TICKS_PER_SECOND
        if (place.command, place.started) != (stat.command, started):
            place = replace(place, command=stat.command, started=started)
        self._seen[pid] = _Seen(stat.start, cgroup, place)
        return place


def boot_seconds(proc_root: Path) -> float | None:
    """Return the boot clock of the tree in seconds, None if it has none.

    It is read from the tree, because the clock of a recording stopped. The kernel's clock is used only if the
    live /proc hides the file (``subset=pid``).
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
    """Return the last tick at which a process reported at boot clock ``named_at`` can have started."""
    return math.inf if named_at is None else named_at * TICKS_PER_SECOND + 1


def _is_live(proc_root: Path) -> bool:
    try:
        return proc_root.samefile("/proc")
    except OSError:
        return False


def read_stat(proc_root: str, pid: int) -> Stat | None:
    """Return what the stat file of a process contains, None if it cannot be read."""
    try:
        # A command name may contain spaces, brackets and line feeds; only numbers follow its last bracket.
        head, _, behind = read_file(f"{proc_root}/{pid}/stat").rpartition(b")")
        fields = behind.split(None, _START + 1)
        ending = fields[_STATE] in (b"Z", b"X") or bool(int(fields[_FLAGS]) & _EXITING)
        # The same text as in ``comm``, without another read.
        command = head.partition(b"(")[2][:_COMMAND_BYTES].decode("utf-8", "replace") or None
        start = int(fields[_START])
        return Stat(start, int(fields[_PARENT]), ending, command) if 0 <= start < _LATEST_START else None
    except (OSError, ValueError, IndexError):
        return None


def read_cgroup(proc_root: Path | str, pid: int | str) -> bytes:
    """Return the cgroup file of a process, b"" if it cannot be read."""
    try:
        return read_file(f"{proc_root}/{pid}/cgroup")
    except OSError:
        return b""


def read_file(path: str) -> bytes:
    """Return a file of /proc. ``os.read`` because a poll reads a thousand of them; raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel generates each of these files at once (single_open): a short read is the end of the file.
        portion = os.read(file, _PORTION)
        text = portion
        while len(portion) == _PORTION:
            portion = os.read(file, _PORTION)
            text += portion
        return text
    finally:
        os.close(file)


def pids_in(proc_root: Path) -> Iterator[str]:
    """Yield the pids of all processes; raises OSError if they cannot be listed."""
    with os.scandir(proc_root) as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield entry.name


def cgroup_text(proc_root: Path | str, pid: int | str) -> str:
    """Return the cgroup file of a process as text, "" if it cannot be read."""
    return read_cgroup(proc_root, pid).decode("utf-8", "replace")
