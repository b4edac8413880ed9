"""The pid namespace of a process table: the machine's initial one, or a nested one.

A node that is itself a container (kind, k3d, LXC) has a nested namespace, in which the machine's pids mean
other processes.
"""

import os
from pathlib import Path
from typing import Final

# The kernel's constant for the initial pid namespace (PROC_PID_INIT_INO).
MACHINE: Final = "pid:[4026531836]"
# The parent of the kernel threads, which exist in the initial namespace only.
KERNEL_THREADS: Final = "kthreadd"
OTHER_PIDS: Final = "the driver reports pids of the machine, and --proc-root shows another pid namespace"
"""Why the processes of a device are unknown when its driver reports pids of another namespace."""


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
