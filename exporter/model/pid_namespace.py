"""Whose numbers the pids of a process table are: the machine's, or those of a pid namespace within it.

They are the same where the exporter shares the machine's first pid namespace. A node that is itself a
container (kind, k3d, LXC) has a namespace of its own, in which the machine's numbers mean other processes.
"""

import os
from pathlib import Path
from typing import Final

# The kernel numbers the first pid namespace of a machine with a constant (PROC_PID_INIT_INO).
MACHINE: Final = "pid:[4026531836]"
# The parent of the kernel's own threads, which live in the first namespace only.
KERNEL_THREADS: Final = "kthreadd"
OTHER_PIDS: Final = "this driver speaks of the machine's pids, and those under --proc-root are others"
"""Why the processes of a device are unknown when its driver reports pids of another namespace."""


def is_recorded(proc_root: Path) -> bool:
    """Whether this is a copy of a procfs: in a live one whoever looks finds ``self``."""
    try:
        os.lstat(proc_root / "self")
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def counts_machine_pids(proc_root: Path) -> bool:
    """Whether pids under ``proc_root`` are those of the machine; a recorded tree is taken as it is.

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
