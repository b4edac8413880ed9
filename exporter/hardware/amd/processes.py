"""KFD's processes: who has frame buffer or a queue on a node, and how many compute units it fills just now.

Only what computes through KFD (ROCm) is listed: a process that renders or transcodes through the graphics
driver alone is not. Pids are those of the machine, whichever namespace asks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.hardware.amd.files import Files, to_amount
from exporter.hardware.amd.topology import KFD, Node
from exporter.model import DeviceProcess

# A process with several contexts has a folder for each further one in its own.
CONTEXT = "context_"
ALL_UNITS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has of a node: bytes, and compute units that its waves fill at this moment.

    ``memory`` is None where it cannot be believed, ``units`` where the node does not meter that, or did not
    answer.
    """

    pid: int
    memory: int | None
    units: int | None


def list_processes(files: Files, sys_root: Path) -> tuple[Path, ...] | None:
    """Return the folder of each process that has KFD open; None where there is no such list."""
    root = sys_root / KFD / "proc"
    failures = files.failures()
    names = files.names(root)
    if files.failures() > failures or not root.is_dir():
        return None
    return tuple(root / name for name in names if name.isdecimal())


def on_node(
    files: Files, node: Node, processes: Iterable[Path], card_memory: int | None
) -> tuple[Usage, ...] | None:
    """Return what each process has of a node, None when one of them does not tell.

    ``card_memory`` are the bytes of the whole card, where these are known. Every process that has opened KFD
    could use any node: one without memory and queues there does not.
    """
    found: list[Usage] = []
    most = min((size for size in (node.memory, card_memory) if size is not None), default=None)
    for process in processes:
        contexts = [process, *(process / name for name in files.names(process) if name.startswith(CONTEXT))]
        failures = files.failures()
        told = [files.text(each / f"vram_{node.gpu_id}") for each in contexts]
        memory = [to_amount(text) for text in told if text is not None]
        if files.failures() > failures or None in memory:
            return None
        held = sum(filter(None, memory))
        # Nobody has more than there is.
        known = held if most is None or held <= most else None
        if held or _has_queue(files, node, contexts):
            found.append(Usage(pid=int(process.name), memory=known, units=_units(files, node, contexts)))
    return tuple(sorted(found, key=lambda usage: usage.pid))


def as_processes(usages: Iterable[Usage]) -> tuple[DeviceProcess, ...]:
    """Return the list of processes of a device."""
    return tuple(
        DeviceProcess(pid=usage.pid, memory=usage.memory, kinds=frozenset({"compute"})) for usage in usages
    )


def shares(usages: Iterable[Usage], compute_units: int | None) -> Mapping[int, float | None] | None:
    """Return the percent of a physical GPU's compute units that each process fills.

    None where none of them is metered. It is the state of one moment, not a mean.
    """
    units = {usage.pid: usage.units for usage in usages}
    if not compute_units or (units and not any(each is not None for each in units.values())):
        return None
    return {
        pid: None if each is None else min(each * ALL_UNITS / compute_units, float(ALL_UNITS))
        for pid, each in units.items()
    }


def _has_queue(files: Files, node: Node, contexts: Iterable[Path]) -> bool:
    queues = (each / "queues" / name for each in contexts for name in files.names(each / "queues"))
    return any(files.number(queue / "gpuid") == node.gpu_id for queue in queues)


def _units(files: Files, node: Node, contexts: Iterable[Path]) -> int | None:
    told = [files.amount(each / f"stats_{node.gpu_id}/cu_occupancy") for each in contexts]
    known = [units for units in told if units is not None]
    return sum(known) if known else None
