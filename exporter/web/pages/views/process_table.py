"""The table of processes of a GPU or a holder, or why it is not available."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.wording import UNKNOWN, decimal, gibibytes
from exporter.model import ContainerRef, DeviceKey, GpuReading, GpuRow, ProcessRow
from exporter.model.largest_processes import largest_processes
from exporter.web.pages.picture.mig_cells import part_name
from exporter.web.pages.views.scene import Figure, Scene, answers, name_of, why_part

# A page shows no more than this; the JSON of the snapshot has the others.
MOST_SHOWN = 500
_KINDS = {"compute": "compute", "graphics": "graphics", "mps": "MPS client"}
_NO_COMMAND = "its name could not be read"
_NO_MEMORY = "the driver does not report its memory"
_NO_COMPUTE = "the driver does not report its compute"
_SERVER = "the MPS server runs the work of all clients"
_HOST = "host process, not in a pod"
_NAMELESS = "pod with unknown name"
_LOST = "pod not known"
_NOBODY = "No process has a context here."
_NO_VIEW = "Processes cannot be shown: {}."
_NO_LIST = "The driver does not list the processes of this GPU."
_SILENT = "The GPU does not answer; its processes are not known."
_FOREIGN = "This exporter does not read this device: use the vendor's tools to list its processes."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A row of the table. ``where`` explains a missing ``holder``. ``part`` is its MIG device."""

    pid: int
    command: Figure
    kinds: str
    holder: ContainerRef | None
    where: str
    gpu: str
    gpu_uuid: str
    part: str
    memory: Figure
    compute: Figure


class ProcessTable(NamedTuple):
    """The rows, or why there are none in ``why``; ``more`` counts those left out."""

    rows: tuple[ProcessView, ...]
    why: str
    more: str
    cut: bool


def processes_of_gpu(scene: Scene, gpu: GpuRow) -> ProcessTable:
    """Return the processes with a context on a GPU or on one of its MIG devices."""
    found = [row for row in scene.snapshot.processes if row.device.uuid == gpu.identity.uuid]
    return _table(scene, found, "" if found else _why_none(scene, gpu))


def processes_of_holder(scene: Scene, ref: ContainerRef, why: str) -> ProcessTable:
    """Return the processes of a container; ``why`` is why they are not visible, "" if they are."""
    found = [row for row in scene.snapshot.processes if row.holder == ref]
    none = _NO_VIEW.format(why.removesuffix(".")) if why else _NOBODY
    return _table(scene, found, "" if found else none)


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
    return _NOBODY if _are_listed(gpu.reading) else _NO_LIST


def _are_listed(reading: GpuReading) -> bool:
    if reading.mig_enabled:
        return bool(reading.mig) and all(mig.processes is not None for mig in reading.mig or ())
    return reading.processes is not None


def _table(scene: Scene, found: Iterable[ProcessRow], why: str) -> ProcessTable:
    rows, hidden = largest_processes(found, MOST_SHOWN)
    left_out = hidden + scene.snapshot.processes_left_out
    more = f"Only the largest are shown; {left_out} more on this node are left out." if left_out else ""
    views = tuple(
        _view(scene, row) for row in sorted(rows, key=lambda row: (place_of(scene, row.device), row.pid))
    )
    return ProcessTable(views, why, more, any(view.part for view in views))


def _view(scene: Scene, row: ProcessRow) -> ProcessView:
    gpu = scene.gpus.get(row.device.uuid)
    return ProcessView(
        pid=row.pid,
        command=Figure(UNKNOWN, _NO_COMMAND) if row.command is None else Figure(row.command),
        kinds=", ".join(_KINDS[kind] for kind in sorted(row.kinds)),
        holder=row.holder,
        where=_where(row),
        gpu="" if gpu is None else name_of(gpu),
        gpu_uuid=row.device.uuid,
        part=_part(scene, row.device),
        memory=Figure(UNKNOWN, _NO_MEMORY) if row.memory is None else Figure(gibibytes(row.memory)),
        compute=_compute(row),
    )


def _where(row: ProcessRow) -> str:
    if row.place == "host":
        return _HOST
    return _NAMELESS if row.place == "pod" else _LOST


def _part(scene: Scene, device: DeviceKey) -> str:
    mig = scene.migs.get(device)
    if mig is None:
        return part_name(device) if device.mig_uuid else ""
    return mig.reading.profile or part_name(device)


def _compute(row: ProcessRow) -> Figure:
    if row.compute is not None:
        return Figure(decimal(row.compute, 2))
    if row.device.mig_uuid:
        return Figure(UNKNOWN, why_part(row.device))
    return Figure(UNKNOWN, _SERVER if "mps" in row.kinds else _NO_COMPUTE)
