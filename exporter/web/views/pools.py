"""A device that is given out in replicas: a pool, with all its holders stacked in the same two bars.

A replica has no memory of its own, and the picture does not pretend that it has.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from exporter.formats_words import TIMES, gibibytes, total
from exporter.metrics import Number
from exporter.model import ContainerRow, SliceCount
from exporter.web.views.bars import UNATTRIBUTED, Part, bar
from exporter.web.views.cells import Amounts, Cell, Device, Gauge, Key, Mark, percent
from exporter.web.views.scene import Pair, Scene
from exporter.web.views.words import held_of_each, is_of_one_kind

# More marks than this are drawn as one run for each holder.
_MOST_MARKS = 64
# A bar over the whole width has room for about this many characters.
_CHARACTERS = 110
_LEAST_LABELLED = 0.02
# Less than this part of a device is not worth a mark that it is free.
_LEAST_FREE = 0.005


def pool(scene: Scene, device: Device, rows: Sequence[ContainerRow]) -> Cell:
    """Draw a device with all the containers that hold or use it."""
    pods = Counter((row.holder.namespace, row.holder.pod) for row in rows)
    keys = tuple(_key(scene, number, row, pods) for number, row in enumerate(rows, 1))
    memory, compute = device.pairs
    memory_parts = [
        _part(device.share, key, key.memory, row.memory_used, device.memory.whole)
        for key, row in zip(keys, rows, strict=True)
    ]
    compute_parts = [
        _part(device.share, key, key.compute, row.compute_used, device.compute.whole)
        for key, row in zip(keys, rows, strict=True)
    ]
    return Cell(
        caption=f"{device.caption} · {_offer(device, rows)}",
        title=", ".join(count.resource for count in device.slices),
        width=percent(device.share),
        look="held" if rows else "free",
        note="who holds it is not known",
        marks=_marks(device, keys, rows),
        gauges=(
            _gauge("memory", memory_parts, device.memory, memory),
            _gauge("compute", compute_parts, device.compute, compute),
        ),
        keys=keys,
        rest=device.rests,
    )


def _key(scene: Scene, number: int, row: ContainerRow, pods: Counter[tuple[str, str]]) -> Key:
    return Key(
        number=number,
        holder=row.holder,
        named=pods[row.holder.namespace, row.holder.pod] > 1,
        state=scene.state(row),
        held=f"{TIMES}{row.slices}" if row.slices and row.slices > 1 and is_of_one_kind(row) else "",
        memory=scene.memory(row),
        compute=scene.compute(row),
    )


def _part(share: float, key: Key, pair: Pair, size: Number | None, whole: Number | None) -> Part:
    width = share * (size or 0) / whole if whole else 0.0
    holder = key.holder
    return Part(
        key.state,
        size or 0,
        f"{holder.namespace}/{holder.pod}: {pair}",
        str(key.number) if width > _LEAST_LABELLED else "",
        holder.pod if _fits(holder.pod, width) else "",
    )


def _gauge(name: str, parts: Iterable[Part], amounts: Amounts, pair: Pair) -> Gauge:
    stacked = [*parts, Part("unattributed", amounts.rest or 0, UNATTRIBUTED)]
    known = amounts.rest is not None
    return Gauge(name, bar(f"{name}: {pair}", stacked, amounts.whole, known=known), pair)


def _offer(device: Device, rows: Sequence[ContainerRow]) -> str:
    if not device.slices:
        return "slices not known" if not device.holders_known else "not offered to pods"
    if not device.replicated:
        sizes = _entitled(device, rows)
        given = f"{gibibytes(sum(sizes))} of {gibibytes(device.memory.whole)} GiB"
        if sizes and len(device.slices) > 1:
            return f"{given} held"
        return f"{held_of_each(device.slices)} held{f', with {given}' if sizes else ''}"
    offered = total((count.offered for count in device.slices), str)
    held = total((count.allocated for count in device.slices), str)
    free = [_free(count) for count in device.slices]
    return f"{offered} replicas, {held} held, {total(free, str)} free"


def _free(count: SliceCount) -> int | None:
    if count.offered is None or count.allocated is None:
        return None
    return count.offered - count.allocated


def _marks(device: Device, keys: Sequence[Key], rows: Sequence[ContainerRow]) -> tuple[Mark, ...]:
    """Draw the replicas: those that are held with the number of the holder, the free ones after them.

    Where each holder has memory of its own, marks are as wide as that and not as its number of slices.
    """
    if sizes := _entitled(device, rows):
        return tuple(_sized_marks(device, keys, sizes))
    held = [(key, row.slices) for key, row in zip(keys, rows, strict=True) if row.slices]
    taken = sum(slices for _, slices in held)
    count = max(sum(count.offered or 0 for count in device.slices), taken)
    runs = [(_mark(key, device.share / count), slices) for key, slices in held]
    runs.append((Mark("free", "", "", "free", 1), count - taken))
    if count > _MOST_MARKS:
        return tuple(mark._replace(width=percent(slices / count)) for mark, slices in runs if slices)
    return tuple(chain.from_iterable(repeat(mark, slices) for mark, slices in runs))


def _entitled(device: Device, rows: Sequence[ContainerRow]) -> list[int]:
    """Return the memory that a sharing system gave each container, nothing where one's is not known."""
    if device.replicated or not device.pooled or not device.memory.whole:
        return []
    sizes = [0 if row.slices == 0 else row.memory_entitled for row in rows if row.slices is not None]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(rows) else []


def _sized_marks(device: Device, keys: Sequence[Key], sizes: Sequence[int]) -> Iterator[Mark]:
    whole = max(device.memory.whole or 0, sum(sizes))
    for key, size in zip(keys, sizes, strict=True):
        if size:
            mark = _mark(key, device.share * size / whole)
            yield mark._replace(title=f"{mark.title}: {gibibytes(size)} GiB", width=percent(size / whole))
    free = whole - sum(sizes)
    if free > _LEAST_FREE * whole:
        yield Mark("free", "", "", f"free: {gibibytes(free)} GiB", percent(free / whole))


def _mark(key: Key, share: float) -> Mark:
    pod = key.holder.pod
    return Mark(key.state, str(key.number), pod if _fits(pod, share) else "", pod, 1)


def _fits(name: str, share: float) -> bool:
    return len(name) + 4 < _CHARACTERS * share
