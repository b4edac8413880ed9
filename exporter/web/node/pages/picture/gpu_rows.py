"""The row of a GPU: its facts, its partitioning, and the cells of its devices."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from exporter import wording
from exporter.metrics import scaled
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuReading, GpuRow
from exporter.model.conditions import TABLE
from exporter.web.node.pages.picture.cells import Amounts, DrawnDevice, memory_amounts
from exporter.web.node.pages.picture.mig_cells import Picture, device_cell, mig_picture
from exporter.web.node.pages.scene import Scene, anchor_of, answers, is_amd, name_of
from exporter.wording import TIMES, duration, gibibytes, measure, mode_word, plural, total_text

_DRAWN = frozenset({"lost", "driver_released"})
_REPLICATED = frozenset({"time-slicing", "mps"})
_SILENT = "the driver does not report GPU utilization"
_LOST = (
    "This GPU does not answer; its use is not known. Check the node's kernel log for {errors}; a GPU that "
    "fell off the bus comes back after a reset or a reboot of the node."
)
_RELEASED = "The driver is released, so this GPU is not read."
_FOREIGN = "This exporter does not read this device: only what its sharing system reports is known."
_NO_PARTITIONS = "This GPU is partitioned, but the driver does not list its partitions."
_NO_MIG_DEVICES = "This GPU is in MIG mode, but the driver does not list its MIG devices."


class Wrong(NamedTuple):
    """A condition of a GPU, or the bad health that Kubernetes reports, in short."""

    look: str  # ``bad`` or ``note``
    text: str  # what it does or needs, and for how long
    causes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """A GPU on the page."""

    name: str
    anchor: str  # its id on the page
    uuid: str
    model: str
    mode: str
    facts: tuple[str, ...]
    slices: str
    wrong: tuple[Wrong, ...] = ()
    jobs: tuple[str, ...] = ()
    picture: Picture
    problem: str = ""  # shown instead of the picture if there is nothing to draw
    look: str = "bad"  # of the problem: ``bad`` or ``note``
    holders: tuple[ContainerRef, ...] = ()


def gpu_view(scene: Scene, gpu: GpuRow) -> GpuView:
    """Return the row of one GPU."""
    reading = gpu.reading
    problem = _problem(scene, gpu)
    picture = Picture(())
    if reading is not None and not problem:
        mig = reading.mig_enabled
        picture = mig_picture(scene, gpu, reading) if mig else _whole_picture(scene, gpu, reading)
    rows = scene.rows_of(gpu.identity.uuid) if problem else ()
    offered = total_text((count.offered for count in gpu.slices), str)
    times = f" {TIMES} {offered}" if gpu.sharing in _REPLICATED else ""
    # Jobs of a batch system on the GPU and on its MIG devices.
    jobs = chain(gpu.jobs, *(mig.jobs for key, mig in scene.migs.items() if key.uuid == gpu.identity.uuid))
    return GpuView(
        name=name_of(gpu),
        anchor=anchor_of(gpu),
        uuid=gpu.identity.uuid,
        model=gpu.identity.model.removeprefix("NVIDIA ") or "model not known",
        mode=f"{mode_word(gpu.sharing)}{times}",
        facts=_facts(reading) if not problem or answers(gpu) else (),
        slices=_slices(scene, gpu),
        wrong=tuple(_wrong(scene, gpu)),
        jobs=tuple(dict.fromkeys(jobs)),
        picture=picture,
        problem=problem,
        look="note" if scene.is_released(gpu) or gpu.unread else "bad",
        holders=tuple(dict.fromkeys(row.holder for row in rows)),
    )


def _wrong(scene: Scene, gpu: GpuRow) -> Iterator[Wrong]:
    """Yield what is wrong with a GPU, except conditions that are drawn in place of its picture."""
    for condition, raised in gpu.raised.items():
        if condition not in _DRAWN:
            row = TABLE[condition]
            passed = duration(max(scene.now - raised.since, 0))
            yield Wrong(row.severity, f"{row.title}, {passed}", "; ".join(raised.causes))
    for health, pods in scene.unhealthy_pods(gpu.identity.uuid).items():
        yield Wrong("bad", f"{health} in Kubernetes", f"by the status of {', '.join(pods)}")


def _problem(scene: Scene, gpu: GpuRow) -> str:
    """Return why there is nothing to draw, "" if there is."""
    if gpu.reading is None or not answers(gpu):
        if gpu.unread:
            return _FOREIGN
        errors = "errors of amdgpu" if is_amd(gpu) else "XID errors"
        return _RELEASED if scene.is_released(gpu) else _LOST.format(errors=errors)
    if gpu.reading.mig_enabled and gpu.reading.mig is None:
        return _NO_PARTITIONS if is_amd(gpu) else _NO_MIG_DEVICES
    return ""


def _facts(reading: GpuReading | None) -> tuple[str, ...]:
    if reading is None:
        return ()
    facts = ((reading.temperature_celsius, "°C"), (scaled(reading.power_milliwatts, 1000), "W"))
    known = tuple(measure(value, unit) for value, unit in facts if value is not None)
    return (*known, f"{gibibytes(reading.memory.total)} GiB") if reading.memory else known


def _slices(scene: Scene, gpu: GpuRow) -> str:
    if gpu.holders is None:
        return "slices not known"
    if not gpu.slices:
        # Claims are of devices that nothing offers to the kubelet.
        by_claim = any(row.claims for row in scene.snapshot.containers)
        return "no slices held" if by_claim else "no slices offered"
    if len(gpu.slices) > 1 and gpu.sharing not in wording.CUT:
        return f"{wording.held_of_each(gpu.slices)} held"
    if all(count.offered is None for count in gpu.slices):
        return f"{plural(sum(count.allocated or 0 for count in gpu.slices), 'slice')} held"
    return ", ".join((f"{wording.held_of_all(gpu.slices)} slices held", *wording.unavailable(gpu.slices)))


def _computed(rows: Iterable[ContainerRow], gpu: GpuRow) -> float | None:
    """Return the sum of a GPU's compute by part: the driver samples the total at another time."""
    if gpu.unattributed_utilization is None:
        return None
    known = sum(row.compute_used for row in rows if row.compute_used is not None)
    return known + gpu.unattributed_utilization


def _whole_picture(scene: Scene, gpu: GpuRow, reading: GpuReading) -> Picture:
    key = DeviceKey(gpu.identity.uuid)
    device = DrawnDevice(
        key=key,
        caption="vGPUs" if gpu.sharing == "vgpu" else "whole GPU",
        share=1.0,
        slices=gpu.slices,
        replicated=gpu.sharing in _REPLICATED,
        pooled=gpu.sharing in _REPLICATED or wording.is_system(gpu.sharing),
        holders_known=gpu.holders is not None,
        memory=memory_amounts(reading.memory, gpu.unattributed_memory),
        compute=Amounts(1, _computed(scene.rows(key), gpu), gpu.unattributed_utilization),
        why_compute=_SILENT,
    )
    return Picture((device_cell(scene, device),))
