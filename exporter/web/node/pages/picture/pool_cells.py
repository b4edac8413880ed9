"""A device shared in replicas: a pool, with all its holders stacked in the same two bars.

A replica has no memory of its own, so none is drawn. If there are many holders, the node page shows those
that need attention; the GPU page shows all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from exporter.metrics import Number
from exporter.model import ContainerRow
from exporter.model.states import HolderState
from exporter.web.kit.elements import BarPart, Mark, Pair, PoolKey, bar
from exporter.web.node.pages.picture.cells import UNATTRIBUTED, Amounts, Cell, DrawnDevice, Gauge, percent
from exporter.web.node.pages.scene import Scene
from exporter.web.node.pages.slice_words import URGENCY, is_of_one_kind
from exporter.wording import TIMES, gibibytes, held_of_each, plural, total_text, unavailable

# More marks than this are drawn as one run for each holder.
_MOST_MARKS = 64
# With more holders than this, only some are named in the bars, and fewer are listed.
_MANY = 16
_MOST_NAMED = 24
_MOST_LISTED = 12
# A bar over the whole width has room for about this many characters.
_CHARACTERS = 110
_LEAST_LABELLED = 0.02
# A smaller free part of a device gets no mark.
_LEAST_FREE = 0.005


class _Member(NamedTuple):
    """A holder in the pool."""

    number: int
    row: ContainerRow
    state: HolderState
    pairs: tuple[Pair, Pair] | None  # its memory and compute, if it is named in the bars
    listed: bool  # whether it is also named below the bars


def pool(scene: Scene, device: DrawnDevice, rows: Sequence[ContainerRow]) -> Cell:
    """Return the cell of a device with all the containers that hold or use it."""
    members = _members(scene, rows)
    pods = Counter((row.holder.namespace, row.holder.pod) for row in rows)
    keys = tuple(_key(member, member.pairs, pods) for member in members if member.listed and member.pairs)
    memory, compute = device.pairs
    of_memory = [(member, member.row.memory_used or 0) for member in members]
    of_compute = [(member, member.row.compute_used or 0) for member in members]
    return Cell(
        caption=f"{device.caption} · {_offer(device, rows)}",
        title=", ".join(count.resource for count in device.slices),
        width=percent(device.share),
        look="held" if rows else "free",
        note="holders unknown",
        marks=_marks(device, members),
        gauges=(
            _gauge("memory", _parts(of_memory, device, 0), device.memory, memory),
            _gauge("compute", _parts(of_compute, device, 1), device.compute, compute),
        ),
        keys=keys,
        others=len(members) - len(keys),
        uuid=device.key.uuid,
        rest=device.rests,
    )


def _members(scene: Scene, rows: Sequence[ContainerRow]) -> list[_Member]:
    """Return the holders, marked which to name and list: all if they are few, or on the GPU page."""
    states = [scene.state(row) for row in rows]
    order: Sequence[int] = range(len(rows))
    named, listed = set(order), set(order)
    if scene.in_short and len(rows) > _MANY:
        first = sorted(order, key=lambda at: (URGENCY.index(states[at]), -(rows[at].memory_used or 0)))
        named, listed = set(first[:_MOST_NAMED]), set(first[:_MOST_LISTED])
    return [
        _Member(
            at + 1,
            row,
            states[at],
            (scene.memory(row), scene.compute(row)) if at in named else None,
            at in listed,
        )
        for at, row in enumerate(rows)
    ]


def _key(member: _Member, pairs: tuple[Pair, Pair], pods: Counter[tuple[str, str]]) -> PoolKey:
    row = member.row
    return PoolKey(
        number=member.number,
        holder=row.holder,
        named=pods[row.holder.namespace, row.holder.pod] > 1,
        state=member.state,
        held=f"{TIMES}{row.slices}" if row.slices and row.slices > 1 and is_of_one_kind(row) else "",
        memory=pairs[0],
        compute=pairs[1],
    )


def _parts(uses: Iterable[tuple[_Member, Number]], device: DrawnDevice, which: int) -> Iterator[BarPart]:
    """Yield the uses of memory (``which`` 0) or compute (1).

    Adjacent unnamed uses in the same state are drawn as one.
    """
    whole = (device.memory, device.compute)[which].whole
    look, others = "", 0
    size: Number = 0
    for member, used in uses:
        if others and (member.pairs is not None or member.state != look):
            yield BarPart(look, size, plural(others, "other holder"))
            size, others = 0, 0
        if member.pairs is not None:
            yield _named(member, member.pairs[which], used, device.share * used / whole if whole else 0.0)
        else:
            look, size, others = member.state, size + used, others + 1
    if others:
        yield BarPart(look, size, plural(others, "other holder"))


def _named(member: _Member, pair: Pair, used: Number, width: float) -> BarPart:
    """Return the use of one holder; ``width`` is its part of the width of the GPU."""
    holder = member.row.holder
    return BarPart(
        member.state,
        used,
        f"{holder.namespace}/{holder.pod}: {pair}",
        str(member.number) if width > _LEAST_LABELLED else "",
        holder.pod if _fits(holder.pod, width) else "",
    )


def _gauge(name: str, parts: Iterable[BarPart], amounts: Amounts, pair: Pair) -> Gauge:
    stacked = [*parts, BarPart("unattributed", amounts.rest or 0, UNATTRIBUTED)]
    known = amounts.rest is not None
    return Gauge(name, bar(f"{name}: {pair}", stacked, amounts.whole, known=known), pair)


def _offer(device: DrawnDevice, rows: Sequence[ContainerRow]) -> str:
    if not device.slices:
        return "slices not known" if not device.holders_known else "not held"
    if not device.replicated:
        sizes = _entitled(device, rows)
        given = f"{gibibytes(sum(sizes))} of {gibibytes(device.memory.whole)} GiB"
        if sizes and len(device.slices) > 1:
            return f"{given} held"
        held = f"{held_of_each(device.slices)} held{f', with {given}' if sizes else ''}"
        return ", ".join((held, *unavailable(device.slices)))
    offered = total_text((count.offered for count in device.slices), str)
    held = total_text((count.allocated for count in device.slices), str)
    free = total_text((count.free for count in device.slices), str)
    return ", ".join((f"{offered} replicas", f"{held} held", *unavailable(device.slices), f"{free} free"))


def _marks(device: DrawnDevice, members: Sequence[_Member]) -> tuple[Mark, ...]:
    """Return the marks of replicas: held ones with the number of the holder, then free ones.

    If each holder has its own memory, marks are as wide as that, not as the number of slices.
    """
    if sizes := _entitled(device, [member.row for member in members]):
        return tuple(_sized_marks(device, members, sizes))
    held = [(member, member.row.slices) for member in members if member.row.slices]
    taken = sum(slices for _, slices in held)
    count = max(sum(count.offered or 0 for count in device.slices), taken)
    runs = [(_mark(member, device.share / count), slices) for member, slices in held]
    withheld = min(sum(count.withheld for count in device.slices), count - taken)
    runs.append((Mark("free", "", "", "free", 1), count - taken - withheld))
    why = "cordoned" if _is_cordoned(device) else "unhealthy"
    runs.append((Mark("withheld", "", "", f"{why}: not given to new pods", 1), withheld))
    if count > _MOST_MARKS:
        return tuple(mark._replace(width=percent(slices / count)) for mark, slices in runs if slices)
    return tuple(chain.from_iterable(repeat(mark, slices) for mark, slices in runs))


def _entitled(device: DrawnDevice, rows: Sequence[ContainerRow]) -> list[int]:
    """Return the memory entitlement of each container by its sharing system; empty if one is unknown."""
    if device.replicated or not device.pooled or not device.memory.whole:
        return []
    sizes = [0 if row.slices == 0 else row.memory_entitled for row in rows if row.slices is not None]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(rows) else []


def _sized_marks(device: DrawnDevice, members: Sequence[_Member], sizes: Sequence[int]) -> Iterator[Mark]:
    whole = max(device.memory.whole or 0, sum(sizes))
    for member, size in zip(members, sizes, strict=True):
        if size:
            mark = _mark(member, device.share * size / whole)
            yield mark._replace(title=f"{mark.title}: {gibibytes(size)} GiB", width=percent(size / whole))
    free = whole - sum(sizes)
    if free > _LEAST_FREE * whole:
        look, word = ("withheld", "cordoned") if _is_cordoned(device) else ("free", "free")
        yield Mark(look, "", "", f"{word}: {gibibytes(free)} GiB", percent(free / whole))


def _is_cordoned(device: DrawnDevice) -> bool:
    return any(count.cordoned for count in device.slices)


def _mark(member: _Member, width: float) -> Mark:
    pod = member.row.holder.pod
    return Mark(member.state, str(member.number), pod if _fits(pod, width) else "", pod, 1)


def _fits(name: str, share: float) -> bool:
    return len(name) + 4 < _CHARACTERS * share
