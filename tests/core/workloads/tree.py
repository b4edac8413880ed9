"""Hand-made process tables: the few files of a procfs that the exporter reads."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def write_stat(
    root: Path,
    pid: int | str,
    *,
    start: float = 10.0,
    comm: str = "python",
    state: str = "S",
    parent: int = 0,
    flags: int = 0,
) -> None:
    """Write ``stat`` of a process that started ``start`` seconds after boot."""
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    ahead = [state, str(parent), *["0"] * 4, str(flags), *["0"] * 12]
    behind = ["1", "2", "18446744073709551615", *["0"] * 27]
    fields = [*ahead, str(round(start * TICKS)), *behind]
    (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")


def write_process(
    root: Path, pid: int | str, cgroup: str, *, start: float = 10.0, comm: str = "python", parent: int = 0
) -> None:
    """Write ``stat``, ``comm`` and ``cgroup`` of a process; the cgroup is a path of v2 or a whole file."""
    write_stat(root, pid, start=start, comm=comm, parent=parent)
    (root / str(pid) / "comm").write_text(f"{comm}\n")
    (root / str(pid) / "cgroup").write_text(cgroup if "\n" in cgroup else f"0::{cgroup}\n")
