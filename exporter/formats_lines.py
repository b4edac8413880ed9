"""Lines of the text twin: one for a GPU, a MIG device, what is nobody's, and the node in total."""

from itertools import chain

from exporter.formats_held import held_of_each, held_of_node, unhealthy
from exporter.formats_modes import CUT
from exporter.formats_words import (
    TIMES,
    UNKNOWN,
    decimal,
    duration,
    gibibytes,
    measure,
    plural,
    printable,
    total,
    used_of,
)
from exporter.metrics import Number
from exporter.model import ContainerRow, DeviceKey, GpuRow, MigRow, SliceCount, Snapshot
from exporter.states import STATE_WORDS, Judgement


def gpu_line(gpu: GpuRow, released: str = "") -> str:
    """Write what a GPU is, does and gives; ``released`` says why the driver was given up."""
    reading = gpu.reading
    parts = [
        f"GPU {gpu.identity.index}",
        printable(gpu.identity.model or gpu.identity.uuid),
        printable(gpu.sharing),
    ]
    if gpu.foreign:
        number = str(gpu.identity.index) if gpu.identity.index >= 0 else gpu.identity.uuid
        parts[0] = f"{printable(gpu.identity.vendor)} {printable(number)}"
        held = (_slices_of(gpu), plural(gpu.holders, "holder"))
        return " · ".join([*parts, "not read by this exporter", *held])
    if reading is None or not reading.up:
        asked = not released or gpu.identity.vendor != "nvidia"
        return " · ".join([*parts, "not answering" if asked else "not read"])
    memory = reading.memory
    used, whole = (memory.used, memory.total) if memory else (None, None)
    watts = None if reading.power_milliwatts is None else reading.power_milliwatts / 1000
    return " · ".join(
        (
            *parts,
            f"memory {used_of(gibibytes(used), gibibytes(whole), 'GiB')}",
            f"utilization {measure(reading.utilization_percent, '%')}",
            measure(watts, "W"),
            measure(reading.temperature_celsius, "°C"),
            _slices_of(gpu),
            plural(gpu.holders, "holder"),
        )
    )


def mig_line(key: DeviceKey, mig: MigRow | None) -> str:
    """Write a MIG device, numbered GPU instance/compute instance, or a partition of an AMD GPU."""
    of_mig = key.mig_uuid.startswith("MIG-")
    part = "MIG" if of_mig else "partition"
    if mig is None:
        return f"  {part} {printable(key.mig_uuid)} · not seen by the driver"
    memory = mig.reading.memory
    used, whole = (memory.used, memory.total) if memory else (None, None)
    shared = " shared with its neighbours" if mig.reading.memory_shared else ""
    number = f"{mig.reading.gi}/{mig.reading.ci}" if of_mig else mig.reading.gi
    return " · ".join(
        (
            f"  {part} {printable(mig.reading.profile or UNKNOWN)} {number}",
            f"memory {used_of(gibibytes(used), gibibytes(whole), 'GiB')}{shared}",
            f"unattributed {gibibytes(mig.unattributed_memory)} GiB",
            _slices(mig.slices, cut=False),
            plural(mig.holders, "holder"),
        )
    )


def unattributed_line(gpu: GpuRow) -> str:
    """Write what of a GPU is used by no known container."""
    ratio = gpu.unattributed_utilization
    compute = measure(None if ratio is None else ratio * 100, "%")
    return f"    unattributed: {gibibytes(gpu.unattributed_memory)} GiB · {compute} utilization"


def _slices_of(gpu: GpuRow) -> str:
    return _slices(gpu.slices, cut=gpu.sharing in CUT)


def _slices(counts: tuple[SliceCount, ...], *, cut: bool) -> str:
    """Write what is held of a device; units of several resources add up only where they are its parts."""
    if not counts:
        return f"slices {UNKNOWN}"
    if len(counts) > 1 and not cut:
        return f"{printable(held_of_each(counts))} held"
    held = total((count.allocated for count in counts), str)
    told = f"slices {held} held of {total((count.offered for count in counts), str)}"
    return ", ".join((told, *unhealthy(counts)))


def slices_held(row: ContainerRow) -> str:
    """Write how many slices of which resource a container holds."""
    if row.slices is None:
        return UNKNOWN
    return f"{row.slices} {TIMES} {printable(row.resource or 'slice')}" if row.slices else "none"


def total_line(snapshot: Snapshot) -> str:
    """Add up the GPUs that are read. One that does not tell makes the sum a least figure."""
    gpus = [gpu for gpu in snapshot.gpus if not gpu.foreign]
    foreign = {gpu.identity.uuid for gpu in snapshot.gpus if gpu.foreign}
    rows = [row for row in snapshot.containers if row.device.uuid not in foreign]
    memories = [gpu.reading.memory if gpu.reading else None for gpu in gpus]
    taken = [memory.used if memory else None for memory in memories]
    whole = [memory.total if memory else None for memory in memories]
    unseen = [None for gpu in gpus if gpu.holders is None]
    entitled = chain((row.compute_entitled for row in rows if row.slices != 0), unseen)
    used = chain((row.compute_used for row in rows), (gpu.unattributed_utilization for gpu in gpus))
    return " · ".join(
        (
            f"Total: {_held(snapshot)}",
            f"memory {total((gpu.memory_entitled for gpu in gpus), gibibytes)} GiB held",
            f"{total(taken, gibibytes)} GiB used of {total(whole, gibibytes)} GiB",
            f"compute {total(entitled, _hundredths)} GPUs held",
            f"{total(used, _hundredths)} GPUs used of {decimal(snapshot.node.gpu_count, 0)}",
        )
    )


def _held(snapshot: Snapshot) -> str:
    """Write what is held of the node: slices, or GPUs where these are shared in units of several kinds."""
    if all(gpu.holders is None for gpu in snapshot.gpus):
        return f"slices {UNKNOWN}"
    found = held_of_node(snapshot.gpus)
    held = total([found.held, None] if found.least else [found.held], str)
    offered = UNKNOWN if found.offered is None else str(found.offered)
    words = ("" if found.unit else "slices", held, "held of", offered, found.unit)
    return printable(", ".join((" ".join(filter(None, words)), *found.besides)))


def _hundredths(value: Number) -> str:
    return decimal(value, 2)


def state_words(judged: Judgement) -> str:
    """Write the state of a holder, with for how long where it says that the holder does not compute."""
    quiet_for = judged.quiet_for if judged.state in ("quiet", "idle", "idle-memory") else None
    return STATE_WORDS[judged.state] + (f" ({duration(quiet_for)})" if quiet_for is not None else "")
