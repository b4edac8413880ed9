"""The table of processes of a GPU or a holder, or why it is not available."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import ContainerRef, DeviceKey, GpuRow, ProcessRow
from exporter.model.snapshot import largest_processes
from exporter.web.kit.elements import Figure, figure_of
from exporter.web.node.pages.scene import Scene, answers, name_of, part_name, why_part
from exporter.wording import UNKNOWN, gibibytes, hundredths

# The maximum number of processes on a page; the JSON of the snapshot has the others.
MOST_SHOWN = 500
_KINDS = {"compute": "compute", "graphics": "graphics", "mps": "MPS client"}
_NO_COMMAND = "its name could not be read"
_NO_MEMORY = "the driver does not report its memory"
_NO_COMPUTE = "the driver does not report its compute"
_SERVER = "the driver reports the compute of all MPS clients as that of the MPS server"
_WHERE = {"host": "host process, not in a pod", "pod": "pod with unknown name"}
_LOST = "pod not known"
_NO_PROCESS = "No process has a context here."
_NO_VIEW = "Processes cannot be shown: {}."
_NO_LIST = "The driver does not list the processes of this GPU."
_SILENT = "The GPU does not answer; its processes are not known."
_FOREIGN = "This exporter does not read this device: use the vendor's tools to list its processes."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A process, with its numbers as text."""

    process: ProcessRow
    command: Figure
    kinds: str
    where: str  # explains a missing holder
    gpu: str
    part: str  # its MIG device or partition
    memory: Figure
    compute: Figure


class ProcessTable(NamedTuple):
    """The processes of a GPU or a holder."""

    rows: tuple[ProcessView, ...]
    why: str  # why there are no rows
    more: str  # the number of processes left out, as a sentence
    cut: bool  # whether a process runs on a part of a GPU


def processes_of_gpu(scene: Scene, gpu: GpuRow) -> ProcessTable:
    """Return the processes with a context on a GPU or on one of its MIG devices."""
    rows = [row for row in scene.snapshot.processes if row.device.uuid == gpu.identity.uuid]
    return _table(scene, rows, "" if rows else _why_none(scene, gpu))


def processes_of_holder(scene: Scene, ref: ContainerRef, why: str) -> ProcessTable:
    """Return the processes of a container; ``why`` is why they are not visible, "" if they are."""
    rows = [row for row in scene.snapshot.processes if row.holder == ref]
    why_none = _NO_VIEW.format(why.removesuffix(".")) if why else _NO_PROCESS
    return _table(scene, rows, "" if rows else why_none)


def place_of(scene: Scene, device: DeviceKey) -> tuple[int, int, DeviceKey]:
    """Return the rank of a device on the node page: GPUs by number, MIG devices by placement."""
    gpu, mig = scene.gpus.get(device.uuid), scene.migs.get(device)
    index = gpu.identity.index if gpu is not None else len(scene.gpus)
    if mig is None:
        return index, 0, device
    return index, mig.reading.gi if mig.reading.gi_start is None else mig.reading.gi_start, device


def _why_none(scene: Scene, gpu: GpuRow) -> str:
    node = scene.snapshot.node
    if gpu.unread:
        return _FOREIGN
    if gpu.reading is None or not answers(gpu):
        return _SILENT
    if not node.process_view:
        return _NO_VIEW.format(node.process_view_reason or "host processes are not visible")
    parts = (gpu.reading.mig or ()) if gpu.reading.mig_enabled else (gpu.reading,)
    listed = bool(parts) and all(part.processes is not None for part in parts)
    return _NO_PROCESS if listed else _NO_LIST


def _table(scene: Scene, all_rows: Iterable[ProcessRow], why: str) -> ProcessTable:
    rows, hidden = largest_processes(all_rows, MOST_SHOWN)
    left_out = hidden + scene.snapshot.processes_left_out
    more = f"Only the largest are shown; {left_out} more on this node are left out." if left_out else ""
    views = tuple(
        _view(scene, row) for row in sorted(rows, key=lambda row: (place_of(scene, row.device), row.pid))
    )
    return ProcessTable(views, why, more, any(view.part for view in views))


def _view(scene: Scene, row: ProcessRow) -> ProcessView:
    gpu = scene.gpus.get(row.device.uuid)
    part = part_name(row.device) if row.device.mig_uuid else ""
    if (mig := scene.migs.get(row.device)) is not None:
        part = mig.reading.profile or part_name(row.device)
    why = _SERVER if "mps" in row.kinds else _NO_COMPUTE
    return ProcessView(
        process=row,
        command=Figure(UNKNOWN, _NO_COMMAND) if row.command is None else Figure(row.command),
        kinds=", ".join(_KINDS[kind] for kind in sorted(row.kinds)),
        where=_WHERE.get(row.place, _LOST),
        gpu="" if gpu is None else name_of(gpu),
        part=part,
        memory=figure_of(row.memory, gibibytes, _NO_MEMORY),
        compute=figure_of(row.compute, hundredths, why_part(row.device) if row.device.mig_uuid else why),
    )
