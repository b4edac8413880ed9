"""How figures look and what they say in words: colours, captions, and the start of the span."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from exporter.formats.wording import decimal, plural, printable
from exporter.history.past import Past, Track
from exporter.web.timelines.stacks import Quantity, Stack, Values, added_up, first_known, latest

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c2649c", "#3a92cc", "#b37b00", "#8a8a2e", "#aa4499")
PATTERNS = ("", "/", "x", "-", "\\", "+")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
GREY = "#808890"
# Of the dashes, how many are easy to tell apart on a line that goes up and down.
_EASY = 3
# Of letters of a name, and of those at its end, which tell the pods of one job apart.
_LONGEST = 30
_END = 10


class Look(NamedTuple):
    """A colour, a pattern of areas (as Plotly names it) and a dash of lines."""

    colour: str
    pattern: str
    dash: str


_LOOKS = tuple(
    Look(colour, pattern, dash) for pattern, dash in zip(PATTERNS, DASHES, strict=True) for colour in COLOURS
)


def in_order(names: Iterable[str]) -> dict[str, Look]:
    """Give each name a look by its place, for things that are numbered and do not come and go."""
    return {
        name: Look(COLOURS[place % len(COLOURS)], PATTERNS[place % len(PATTERNS)], DASHES[place % _EASY])
        for place, name in enumerate(names)
    }


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Give each name the look that is its own; who comes later by name gives way to who has it already.

    Where there are more names than looks, some have to share one.
    """
    taken: dict[int, str] = {}
    found = {}
    for name in sorted(set(names)):
        wanted = crc32(name.encode("utf-8", "replace")) % len(_LOOKS)
        places = ((wanted + step) % len(_LOOKS) for step in range(len(_LOOKS)))
        place = next((place for place in places if place not in taken), wanted)
        taken[place] = name
        found[name] = _LOOKS[place]
    return found


def shortest(names: Iterable[str]) -> dict[str, str]:
    """Give each "namespace/pod container" the name of its pod, or the whole where several share that.

    A long name loses its middle, unless it would then be another's too.
    """
    short = {name: _pod(name) for name in names}
    many = Counter(short.values())
    return {name: each if many[each] == 1 else name for name, each in short.items()}


def _pod(name: str) -> str:
    pod, _, container = name.partition("/")[2].partition(" ")
    # No name in Kubernetes has a space: this one is not what it seems to be.
    if " " in container:
        return name
    return pod if len(pod) <= _LONGEST else f"{pod[: _LONGEST - _END - 1]}…{pod[-_END:]}"


_MOST_NAMED = 3


class Panel(NamedTuple):
    """A quantity of devices: its field, what it is called, and the unit, of which ``scale`` is one."""

    field: str
    title: str
    unit: str
    scale: float


def stack_caption(made: Stack, others: Values, quantity: Quantity, called: Mapping[str, str]) -> str:
    """Say how much is used of how much, and by whom most; ``called`` has short names."""
    rest = (others, made.unattributed, made.untold)
    used = added_up([*made.parts.values(), *rest], len(made.gaps))
    sentences = [_used(used, made, quantity), _largest(made, quantity, called)]
    if made.unknown:
        sentences.append(_unknown([called.get(name, name) for name in made.unknown], quantity))
    return " ".join(filter(None, sentences))


def devices_caption(gpus: Sequence[Track], panels: Sequence[Panel]) -> str:
    """Say from where to where those GPUs reach in each quantity that tell it."""
    told: list[str] = []
    tell: set[int] = set()
    for field, title, unit, scale in panels:
        known = {
            place: value / scale
            for place, gpu in enumerate(gpus)
            if (value := latest(gpu.values[field])) is not None
        }
        if known:
            low, high = f"{min(known.values()):.0f}", f"{max(known.values()):.0f}"
            told.append(f"{title} {low if low == high else f'{low} to {high}'} {unit}")
            tell |= known.keys()
    if not told:
        return "Now nothing is known of the devices."
    all_of_them = plural(len(gpus), "GPU")
    devices = all_of_them if len(tell) == len(gpus) else f"{len(tell)} of {all_of_them}"
    return f"Now, over {devices}: {', '.join(told)}."


def _used(sums: Values, made: Stack, quantity: Quantity) -> str:
    whole = latest([None if partial else used for used, partial in zip(sums, made.partial, strict=True)])
    used = latest(sums) if whole is None else whole
    if used is None:
        return f"How much {quantity.name} is used now is not known."
    beside = [
        f"{_amount(value, quantity)} {word}"
        for values, word in ((made.entitled, "entitled"), (made.total, "on the devices"))
        if (value := latest(values)) is not None
    ]
    least = "at least " if whole is None else ""
    entirety = f" of {', '.join(beside)}" if beside else ""
    return f"Now {least}{_amount(used, quantity)} used{entirety}."


def _largest(made: Stack, quantity: Quantity, called: Mapping[str, str]) -> str:
    known = [(value, name) for name, values in made.parts.items() if (value := latest(values))]
    known.sort(key=lambda pair: (-pair[0], pair[1]))
    named = [
        f"{printable(called.get(name, name))} {_amount(value, quantity)}"
        for value, name in known[:_MOST_NAMED]
    ]
    return f"Most: {', '.join(named)}." if len(known) > 1 else ""


def _unknown(names: Sequence[str], quantity: Quantity) -> str:
    few = ", ".join(map(printable, names[:_MOST_NAMED]))
    more = f" and {plural(len(names) - _MOST_NAMED, 'other')}" if len(names) > _MOST_NAMED else ""
    return f"The {quantity.name} of {few}{more} is not known."


def _amount(value: float, quantity: Quantity) -> str:
    digits = 1 if quantity.name == "memory" else 2
    return f"{decimal(value / quantity.scale, digits)} {quantity.unit}"


_MINUTE = 60.0
_LEAST = 5 * _MINUTE


def shown_from(past: Past) -> float:
    """Return the Unix time from which on to show a past.

    Time before the first poll is left out, down to five minutes. A Prometheus may have been there before
    the first value that it has, so that its past is shown as it was asked for.
    """
    known = first_known(past)
    if past.source != "memory" or known is None:
        return past.start
    begin = min(past.start + known * past.step, past.start + past.count * past.step - _LEAST)
    return max(past.start, begin // _MINUTE * _MINUTE)
