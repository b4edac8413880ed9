"""Whether the driver, ``--proc-root`` and this process share one pid namespace.

The driver translates pids into the caller's pid namespace. In a container's namespace it omits the processes
of other containers, or returns numbers that belong to other processes there. Per-process figures would then
be wrong without looking wrong, so that anything but proof counts as no.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from exporter.model.pid_namespace import counts_machine_pids, is_recorded
from exporter.workloads.cgroups import CgroupPlace, is_root, parse_cgroup
from exporter.workloads.processes import require_process_table

_NO_HOST_PID = "host pid namespace missing: set hostPID: true"


def process_view(proc_root: Path) -> tuple[bool, str]:
    """Return whether ``proc_root`` shows the pids of the node and of this process, and if not, why; blocks.

    A tree without ``self`` is a recording and is trusted: its driver answers are recorded too. Never raises.
    """
    try:
        require_process_table(proc_root)
        reason = _objection(proc_root)
    except OSError as error:
        reason = str(error)
    return not reason, reason


def _objection(root: Path) -> str:
    if next(_processes(root), None) is None:
        return f"no processes under {root}: set --proc-root to a procfs"
    if _is_contained(root):
        return f"pid 1 under {root} is in a container, {_NO_HOST_PID}"
    if not is_recorded(root):
        return _objection_to_live(root)
    # A pid 1 in the root of the visible cgroups is in the reader's own container or a sibling of it.
    shared = is_root(_cgroup(root / "1"))
    return f"pid 1 under {root} shares its reader's cgroup, {_NO_HOST_PID}" if shared else ""


def _is_contained(root: Path) -> bool:
    # In a container without hostPID, pid 1 is its own or the pod's pause process. If the node is a container
    # (kind), pid 1 is in a container too, but in no pod and not in this one.
    first, own = _place(root / "1"), _place(root / "self")
    same_container = first.container_id is not None and first.container_id == own.container_id
    return first.pod_uid is not None or first.own_pod or same_container


def _objection_to_live(root: Path) -> str:
    # A procfs shows pids of the namespace that it was mounted in. A process in a child namespace has further
    # pids, which the driver would return; a process in an unrelated namespace has none there.
    if _own_pids(root) != [str(os.getpid())]:
        return f"--proc-root {root} shows another pid namespace than this process's, in which NVML answers"
    if counts_machine_pids(root) or _sees_other_pods(root):
        return ""
    return f"only processes of this pod are visible under {root}, {_NO_HOST_PID}"


def _sees_other_pods(root: Path) -> bool:
    # In a container that is a node (kind) all pods of its kubelet are visible; from a pod's own pid namespace
    # no other pod is.
    own = _place(root / "self").pod_uid
    return any(place.pod_uid not in (None, own) for place in map(_place, _processes(root)))


def _processes(root: Path) -> Iterator[Path]:
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield root / entry.name


def _own_pids(root: Path) -> list[str]:
    for line in _text(root / "self/status").splitlines():
        if line.startswith("NSpid:"):
            return line.split()[1:]
    return []


def _place(process: Path) -> CgroupPlace:
    return parse_cgroup(_cgroup(process))


def _cgroup(process: Path) -> str:
    return _text(process / "cgroup")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
