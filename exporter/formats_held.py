"""How much of what pods can be given is held: units of different systems and resources are never added."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from exporter.formats_modes import is_system, mode_word
from exporter.formats_words import UNKNOWN, short_names, total
from exporter.model import GpuRow, SliceCount

_OWN = "slices"


class Held(NamedTuple):
    """``held`` units, of ``offered`` where that is known (None), and what else is held ``besides``.

    ``unit`` is "" for slices, and ``resource`` what these are of where it is not the vendor's. ``least``: at
    least so many, since of some nobody knows whether they are held. ``lost`` are unhealthy and not held.
    """

    held: int
    offered: int | None
    unit: str
    resource: str
    besides: tuple[str, ...]
    least: bool
    lost: int = 0


def held_of_node(gpus: Sequence[GpuRow]) -> Held:
    """Count slices where most GPUs are shared by their vendors' plug-ins, units of the only system, or GPUs.

    What is given out besides is told beside it, each in its own unit.
    """
    systems = dict(_by_system(gpus))
    owned = sum(bool(gpu.slices) and not is_system(gpu.sharing) for gpu in gpus)
    if 2 * owned > len(gpus) or systems.keys() <= {_OWN}:
        return _counted(systems.pop(_OWN, ()), "", tuple(_told(systems)))
    (only,) = systems.values() if len(systems) == 1 else ((),)
    resources = {count.resource for count in only}
    if len(resources) == 1 and any(count.allocated for count in only):
        return _counted(only, resources.pop(), ())
    held = sum(bool(gpu.holders) for gpu in gpus)
    least = any(gpu.holders is None for gpu in gpus)
    return Held(held, len(gpus), "GPUs" if len(gpus) > 1 else "GPU", "", tuple(_told(systems)), least)


def held_of_all(counts: Sequence[SliceCount], noun: str = "") -> str:
    """Write what is held of all that is offered, alone where nobody says how much that is."""
    held = total((count.allocated for count in counts), str)
    offered = total((count.offered for count in counts), str)
    words = (held, *(() if offered == UNKNOWN else ("of", offered)), noun)
    return " ".join(filter(None, words))


def held_of_each(counts: Sequence[SliceCount]) -> str:
    """Write what is held of a whole device: of several resources each, whose units add up to nothing."""
    if len(counts) == 1:
        return held_of_all(counts)
    told = short_names([count.resource for count in counts])
    return ", ".join(held_of_all((count,), name) for count, name in zip(counts, told, strict=True))


def unhealthy(counts: Sequence[SliceCount]) -> tuple[str, ...]:
    """Write how many slices are unhealthy; () where none is known to be."""
    number = sum(count.unhealthy or 0 for count in counts)
    return (f"{number} unhealthy",) if number else ()


def _by_system(gpus: Sequence[GpuRow]) -> Iterator[tuple[str, tuple[SliceCount, ...]]]:
    found: dict[str, list[SliceCount]] = {}
    for gpu in gpus:
        if gpu.slices:
            system = mode_word(gpu.sharing) if is_system(gpu.sharing) else _OWN
            found.setdefault(system, []).extend(gpu.slices)
    return ((system, tuple(counts)) for system, counts in found.items())


def _counted(counts: Sequence[SliceCount], resource: str, besides: tuple[str, ...]) -> Held:
    fixed = [count for count in counts if count.offered is not None]
    rest = sum(count.allocated or 0 for count in counts if count.offered is None)
    least = any(count.allocated is None for count in fixed or counts)
    if not fixed:
        return Held(rest, None, "", resource, besides, least)
    more = (f"{rest} more of no fixed number",) if rest else ()
    held = sum(count.allocated or 0 for count in fixed)
    offered = sum(count.offered or 0 for count in fixed)
    lost = sum(count.lost or 0 for count in fixed)
    return Held(held, offered, "", resource, (*besides, *more, *unhealthy(counts)), least, lost)


def _told(systems: dict[str, tuple[SliceCount, ...]]) -> Iterator[str]:
    for system, counts in systems.items():
        ordered = sorted(counts, key=lambda count: count.resource)
        by_resource = [tuple(group) for _, group in groupby(ordered, lambda count: count.resource)]
        some = [group for group in by_resource if any(count.allocated for count in group)]
        if some:
            nouns = short_names([group[0].resource for group in some]) if len(some) > 1 else [""]
            parts = (held_of_all(group, noun) for group, noun in zip(some, nouns, strict=True))
            yield f"{system} {', '.join(parts)}"
