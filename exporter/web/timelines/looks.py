"""How holders and devices look in figures: a colour and a pattern each, the same one as long as it can be.

The colours can be told apart with any colour vision, and stand out from a light page and a dark one alike.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

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
