"""Numbers, sharing modes and held slices as text."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from textwrap import wrap
from typing import NamedTuple

from exporter.model import GpuRow, Number, SliceCount, Snapshot

UNKNOWN = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_GIBIBYTE = 1024**3
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text with control characters, separators and lone surrogates escaped, safe for a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def encodable(text: str) -> str:
    """Return text with U+FFFD in place of lone surrogates (undecodable bytes), which UTF-8 cannot encode."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def decimal(value: Number | None, digits: int) -> str:
    """Return a number with ``digits`` decimals; a small value above 0 is not shown as 0."""
    if value is None:
        return UNKNOWN
    least = 10**-digits
    return f"<{least}" if 0 < value < least / 2 else f"{value:.{digits}f}"


def gibibytes(size: Number | None) -> str:
    """Return bytes as GiB, without the unit."""
    return decimal(None if size is None else size / _GIBIBYTE, 1)


def hundredths(share: float) -> str:
    """Return a share of a physical GPU as text."""
    return decimal(share, 2)


def measure(value: Number | None, unit: str, digits: int = 0) -> str:
    """Return a number with its unit."""
    return f"{decimal(value, digits)} {unit}"


def duration(seconds: float) -> str:
    """Return a time span with its two largest units."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(int(seconds), 0)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def short_names(resources: Sequence[str]) -> Sequence[str]:
    """Return resources by their last part, unless two of them share it."""
    names = [resource.rpartition("/")[2] for resource in resources]
    return names if len(set(names)) == len(names) else resources


def plural(count: int | None, noun: str) -> str:
    """Return a count with its noun."""
    if count is None:
        return f"{UNKNOWN} {noun}s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def total_text(values: Iterable[Number | None], write: Callable[[Number], str]) -> str:
    """Return the sum of the known values: with ``≥`` if one is unknown, a dash if all are."""
    parts = list(values)
    known = [value for value in parts if value is not None]
    if parts and not known:
        return UNKNOWN
    return ("" if len(known) == len(parts) else "≥ ") + write(sum(known))


def aligned(rows: Sequence[tuple[str, ...]], width: int | None = None) -> Iterator[str]:
    """Yield rows in which each column has the width of its widest cell.

    If they are wider than ``width`` characters, a row is several lines: cells are wrapped at spaces, those of
    the widest columns first.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if width is not None:
        widths = _narrowed(widths, [max(map(_longest_word, column)) for column in columns], width)
    for row in rows:
        cells = [_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        lines = (
            "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
            for line in zip_longest(*cells, fillvalue="")
        )
        yield "\n".join(lines)


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns that fit together, as far as their words allow."""
    narrowed = list(widths)
    room = width - 2 * (len(widths) - 1)
    while sum(narrowed) > room:
        wide = [place for place, size in enumerate(narrowed) if size > least[place]]
        if not wide:
            break
        narrowed[max(wide, key=narrowed.__getitem__)] -= 1
    return narrowed


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    indent = cell[: len(cell) - len(cell.lstrip())]
    return wrap(cell, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _longest_word(cell: str) -> int:
    indent = len(cell) - len(cell.lstrip())
    return indent + max(map(len, cell.split()), default=0)


def contested(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the names of a device that a container should have alone, and of the containers that hold it."""
    numbers = {gpu.identity.uuid: str(gpu.identity.index) for gpu in snapshot.gpus if gpu.identity.index >= 0}
    for key, refs in snapshot.node.contested.items():
        gpu = f"GPU {numbers.get(key.uuid, key.uuid)}"
        holders = " and ".join(f"{ref.namespace}/{ref.pod}/{ref.container}" for ref in refs)
        yield f"{key.mig_uuid} of {gpu}" if key.mig_uuid else gpu, holders


# The sharing modes that partition a GPU into devices with their own slices.
CUT = frozenset({"mig", "mig-time-slicing", "amd-partition"})

# The sharing modes of the vendors' own plug-ins; all others are names of sharing systems.
OWN_MODES = {
    "exclusive": "exclusive",
    "time-slicing": "time-sliced",
    "mps": "MPS",
    "mig": "MIG",
    "mig-time-slicing": "MIG, time-sliced",
    "vgpu": "vGPU",
    "amd-partition": "partitioned",
    "none": "not shared",
    "unknown": "sharing unknown",
    "": "sharing unknown",
}

_SYSTEMS = {
    "amd-dra": "DRA",
    "baidu-cgpu": "Baidu cGPU",
    "cgpu": "cGPU",
    "dra": "DRA",
    "elastic-gpu": "Elastic GPU",
    "hami": "HAMi",
    "hami-dra": "HAMi by DRA",
    "intel": "Intel's plug-in",
    "intel-dra": "DRA",
    "kai": "KAI fractions",
    "koordinator": "Koordinator",
    "mgpu": "mGPU",
    "qgpu": "qGPU",
    "runai": "Run:ai fractions",
    "scaleops": "ScaleOps fractions",
    "tensor-fusion": "TensorFusion",
    "volcano-gpushare": "Volcano gpushare",
    "vgpu-manager-dra": "vgpu-manager by DRA",
    "volcano-vgpu": "Volcano vGPU",
}


def mode_word(sharing: str) -> str:
    """Return the name of a sharing mode."""
    if sharing.startswith("hami-") and sharing not in _SYSTEMS:
        return _SYSTEMS["hami"]
    return OWN_MODES.get(sharing) or _SYSTEMS.get(sharing, sharing)


def mode_label(sharing: str) -> str:
    """Return a sharing mode as the label ``sharing`` has it; an unknown one with the noun."""
    return "sharing unknown" if sharing in ("", "unknown") else sharing


def is_system(sharing: str) -> bool:
    """Return whether GPUs are shared by a separate system, which sets the entitlements of its holders."""
    return sharing not in OWN_MODES


_RECOVERIES = {
    "drain_p2p": "needs its peer-to-peer traffic drained",
    "recover_imex_domain": "needs a recovery of its IMEX domain",
}


def recovery(action: str) -> str:
    """Return what a GPU needs by the recovery action of its driver."""
    return _RECOVERIES.get(action, f"needs a recovery: {action.replace('_', ' ')}")


_OWN = "slices"


class HeldSummary(NamedTuple):
    """The held amount of a node."""

    held: int  # a lower bound if ``least``
    offered: int | None  # None if unknown
    unit: str  # "" for slices
    resource: str  # "" for the vendor's
    besides: tuple[str, ...]  # amounts in other units, as text
    least: bool  # whether some allocations are unknown
    withheld: int = 0  # not held, and not given to new pods


def held_of_node(gpus: Sequence[GpuRow]) -> HeldSummary:
    """Return slices if most GPUs use their vendor's plug-in, else units of the only system, else GPUs.

    Other systems are listed in ``besides``, each in its own unit.
    """
    systems = dict(_by_system(gpus))
    # Some holders of these have an unknown number of slices.
    unknown = any(gpu.holders is None for gpu in gpus)
    owned = sum(bool(gpu.slices) and not is_system(gpu.sharing) for gpu in gpus)
    if 2 * owned > len(gpus) or systems.keys() <= {_OWN}:
        return _counted(systems.pop(_OWN, ()), "", tuple(_held_by_system(systems)), unknown=unknown)
    (only,) = systems.values() if len(systems) == 1 else ((),)
    resources = {count.resource for count in only}
    if len(resources) == 1 and any(count.allocated for count in only):
        return _counted(only, resources.pop(), (), unknown=unknown)
    held = sum(bool(gpu.holders) for gpu in gpus)
    besides = tuple(_held_by_system(systems))
    return HeldSummary(held, len(gpus), "GPUs" if len(gpus) > 1 else "GPU", "", besides, unknown)


def held_of_all(counts: Sequence[SliceCount], noun: str = "") -> str:
    """Return held of offered as text; only the held part if the total is not reported."""
    held = total_text((count.allocated for count in counts), str)
    offered = total_text((count.offered for count in counts), str)
    return " ".join(filter(None, (held, *(() if offered == UNKNOWN else ("of", offered)), noun)))


def held_of_each(counts: Sequence[SliceCount]) -> str:
    """Return the held amount of each resource of a device as text; their units cannot be summed."""
    if len(counts) == 1:
        return held_of_all(counts)
    names = short_names([count.resource for count in counts])
    return ", ".join(held_of_all((count,), name) for count, name in zip(counts, names, strict=True))


def unavailable(counts: Sequence[SliceCount]) -> tuple[str, ...]:
    """Return the numbers of unhealthy and of cordoned slices as text, without those that are 0 or unknown."""
    unhealthy = sum(count.unhealthy or 0 for count in counts)
    cordoned = sum(count.cordoned or 0 for count in counts)
    named = ((unhealthy, "unhealthy"), (cordoned, "cordoned"))
    return tuple(f"{number} {word}" for number, word in named if number)


def _by_system(gpus: Sequence[GpuRow]) -> Iterator[tuple[str, tuple[SliceCount, ...]]]:
    by_system: dict[str, list[SliceCount]] = {}
    for gpu in gpus:
        if gpu.slices:
            system = mode_word(gpu.sharing) if is_system(gpu.sharing) else _OWN
            by_system.setdefault(system, []).extend(gpu.slices)
    return ((system, tuple(counts)) for system, counts in by_system.items())


def _counted(
    counts: Sequence[SliceCount], resource: str, besides: tuple[str, ...], *, unknown: bool
) -> HeldSummary:
    fixed = [count for count in counts if count.offered is not None]
    rest = sum(count.allocated or 0 for count in counts if count.offered is None)
    least = unknown or any(count.allocated is None for count in fixed or counts)
    if not fixed:
        return HeldSummary(rest, None, "", resource, besides, least)
    more = (f"{rest} more without a fixed total",) if rest else ()
    held = sum(count.allocated or 0 for count in fixed)
    offered = sum(count.offered or 0 for count in fixed)
    withheld = sum(count.withheld for count in fixed)
    return HeldSummary(held, offered, "", resource, (*besides, *more, *unavailable(counts)), least, withheld)


def _held_by_system(systems: dict[str, tuple[SliceCount, ...]]) -> Iterator[str]:
    for system, counts in systems.items():
        ordered = sorted(counts, key=lambda count: count.resource)
        by_resource = [tuple(group) for _, group in groupby(ordered, lambda count: count.resource)]
        held = [group for group in by_resource if any(count.allocated for count in group)]
        if held:
            nouns = short_names([group[0].resource for group in held]) if len(held) > 1 else [""]
            parts = (held_of_all(group, noun) for group, noun in zip(held, nouns, strict=True))
            yield f"{system} {', '.join(parts)}"
