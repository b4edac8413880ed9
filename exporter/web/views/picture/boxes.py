"""A device that one container can hold: a box with that container's two bars, or an empty one."""

from exporter.formats_words import duration
from exporter.model import ContainerRow
from exporter.web.views.picture.bars import UNATTRIBUTED, Part, Use, bar, use_bar
from exporter.web.views.picture.cells import Amounts, Cell, Device, Gauge, percent
from exporter.web.views.scene import Pair, Scene


def held_box(scene: Scene, device: Device, row: ContainerRow) -> Cell:
    """Draw a device with the one container that holds or uses it."""
    state, activity, _ = judged = scene.judged(row)
    quiet_for = judged.quiet_for
    memory, compute = scene.memory(row), scene.compute(row)
    memory_use = Use(row.memory_used, row.memory_entitled, device.memory.whole)
    compute_use = Use(row.compute_used, row.compute_entitled, device.compute.whole)
    memory_bar = use_bar(f"memory: {memory}", state, memory_use, device.memory.rest)
    compute_bar = use_bar(f"compute: {compute}", state, compute_use, device.compute.rest)
    return Cell(
        caption=device.caption,
        title=row.resource or device.key.mig_uuid or device.key.uuid,
        width=percent(device.share),
        look="held",
        note="" if quiet_for is None else f"{activity} {duration(quiet_for)}",
        holder=row.holder,
        state=state,
        gauges=(Gauge("memory", memory_bar, memory), Gauge("compute", compute_bar, compute)),
    )


def empty_box(scene: Scene, device: Device) -> Cell:
    """Draw a device on which no container is seen."""
    look, note = _nobody(scene, device)
    memory, compute = device.pairs
    return Cell(
        caption=device.caption,
        title=device.key.mig_uuid or device.key.uuid,
        width=percent(device.share),
        look=look,
        note=note,
        gauges=(
            _leftover("memory", look, device.memory, memory),
            _leftover("compute", look, device.compute, compute),
        ),
    )


def _nobody(scene: Scene, device: Device) -> tuple[str, str]:
    if not device.holders_known:
        return "unknown", "holder not known"
    if not device.slices:
        return "free", "free" if scene.claimed else "held by nobody"
    if any(count.allocated != 0 for count in device.slices):
        return "unknown", "held, by whom is not known"
    return "free", "free"


def _leftover(name: str, look: str, amounts: Amounts, pair: Pair) -> Gauge:
    parts = [Part("unattributed", amounts.rest or 0, UNATTRIBUTED)]
    # On a free device the dashes say it all; where somebody may hold it, what is not known is hatched.
    known = amounts.rest is not None or look == "free"
    return Gauge(name, bar(f"{name}: {pair}", parts, amounts.whole or 1, known=known, dashed=True), pair)
