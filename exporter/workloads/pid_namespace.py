"""Whether the pids of a process table are those that the driver reports.

The driver translates pids into the caller's pid namespace. In a container's namespace it omits the processes
of other containers, or returns numbers that belong to other processes there. Per-process figures would then
be wrong without looking wrong, so that anything but proof that the driver, ``--proc-root`` and this process
share one namespace counts as no.

A node that is itself a container (kind, k3d, LXC) has a nested namespace, in which the machine's pids mean
other processes.
"""

import os
from pathlib import Path
from typing import Final

from exporter.workloads.cgroups import CgroupPlace, is_root, parse_cgroup
from exporter.workloads.processes import cgroup_text, pids_in, read_file, require_process_table

# The kernel's constant for the initial pid namespace (PROC_PID_INIT_INO).
MACHINE: Final = "pid:[4026531836]"
# The parent of the kernel threads, which exist in the initial namespace only.
KERNEL_THREADS: Final = "kthreadd"
_NO_HOST_PID = "host pid namespace missing: set hostPID: true"


def is_recorded(proc_root: Path) -> bool:
    """Return whether this is a copy of a procfs: a live one has ``self`` for every process that reads it."""
    try:
        os.lstat(proc_root / "self")
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def counts_machine_pids(proc_root: Path) -> bool:
    """Return whether pids under ``proc_root`` are those of the machine; True for a recorded tree.

    Never raises.
    """
    if is_recorded(proc_root):
        return True
    try:
        return str((proc_root / "self/ns/pid").readlink()) == MACHINE
    except OSError:
        # The link needs rights that a hardened container may lack.
        return _command(proc_root / "2") == KERNEL_THREADS


def _command(process: Path) -> str:
    try:
        return (process / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def why_no_view(proc_root: Path) -> str:
    """Return why ``proc_root`` does not show the pids of the node and of this process, "" if it does; blocks.

    A tree without ``self`` is a recording and is trusted: its driver answers are recorded too. Never raises.
    """
    try:
        require_process_table(proc_root)
        return _objection(proc_root)
    except OSError as error:
        return str(error)


def _objection(root: Path) -> str:
    if next(pids_in(root), None) is None:
        return f"no processes under {root}: set --proc-root to a procfs"
    if _is_contained(root):
        return f"pid 1 under {root} is in a container, {_NO_HOST_PID}"
    if not is_recorded(root):
        return _objection_to_live(root)
    # A pid 1 in the root of the visible cgroups is in the reader's own container or a sibling of it.
    shared = is_root(cgroup_text(root, "1"))
    return f"pid 1 under {root} shares its reader's cgroup, {_NO_HOST_PID}" if shared else ""


def _is_contained(root: Path) -> bool:
    # In a container without hostPID, pid 1 is its own or the pod's pause process. If the node is a container
    # (kind), pid 1 is in a container too, but in no pod and not in this one.
    first, own = _place_of(root, "1"), _place_of(root, "self")
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
    own = _place_of(root, "self").pod_uid
    return any(_place_of(root, pid).pod_uid not in (None, own) for pid in pids_in(root))


def _own_pids(root: Path) -> list[str]:
    try:
        lines = read_file(f"{root}/self/status").decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])


def _place_of(root: Path, pid: str) -> CgroupPlace:
    return parse_cgroup(cgroup_text(root, pid))
