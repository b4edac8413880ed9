"""The colours and captions of figures, and the start of their range."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from exporter.history import Past, Track
from exporter.web.node.timelines.stacks import Quantity, Stack, Values, added_up, first_known, latest
from exporter.wording import decimal, plural, printable

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c2649c", "#3a92cc", "#b37b00", "#8a8a2e", "#aa4499")
PATTERNS = ("", "/", "x", "-", "\\", "+")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
GREY = "#808890"
# The number of dashes that are easy to distinguish on a line that goes up and down.
_EASY = 3
# The maximum length of a name, and the part kept from its end, which distinguishes the pods of a job.
_LONGEST = 30
_END = 10
_MOST_NAMED = 3
_MINUTE = 60.0
_LEAST = 5 * _MINUTE


class Style(NamedTuple):
    """The colour, pattern and dash of a name."""

    colour: str
    pattern: str  # of areas, by Plotly's name
    dash: str  # of lines, by Plotly's name


_STYLES = tuple(
    Style(colour, pattern, dash) for pattern, dash in zip(PATTERNS, DASHES, strict=True) for colour in COLOURS
)


def styles_by_place(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name by its place, for things that are numbered and always there."""
    return {
        name: Style(COLOURS[place % len(COLOURS)], PATTERNS[place % len(PATTERNS)], DASHES[place % _EASY])
        for place, name in enumerate(names)
    }


def styles_by_hash(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name by its hash, so that it stays the same; the next free one if it is taken.

    If there are more names than styles, some share one.
    """
    taken: set[int] = set()
    by_name = {}
    for name in sorted(set(names)):
        wanted = crc32(name.encode("utf-8", "replace")) % len(_STYLES)
        places = ((wanted + step) % len(_STYLES) for step in range(len(_STYLES)))
        place = next((place for place in places if place not in taken), wanted)
        taken.add(place)
        by_name[name] = _STYLES[place]
    return by_name


def shortest(names: Iterable[str]) -> dict[str, str]:
    """Return the name of the pod for each "namespace/pod container", or all of it if that is not unique.

    Long names are shortened in the middle.
    """
    pods = {name: _pod(name) for name in names}
    counts = Counter(pods.values())
    return {name: pod if counts[pod] == 1 else name for name, pod in pods.items()}


def _pod(name: str) -> str:
    pod, _, container = name.partition("/")[2].partition(" ")
    # Names in Kubernetes have no space, so this is not such a name.
    if " " in container:
        return name
    return pod if len(pod) <= _LONGEST else f"{pod[: _LONGEST - _END - 1]}…{pod[-_END:]}"


class DevicePanel(NamedTuple):
    """A quantity of devices."""

    field: str
    title: str
    unit: str
    scale: float  # one unit, in the unit of the field


# The panels of the figure of devices, from the top.
PANELS = (
    DevicePanel("utilization_ratio", "busy", "%", 0.01),
    DevicePanel("power_watts", "power", "W", 1.0),
    DevicePanel("temperature_celsius", "temperature", "°C", 1.0),
)


def stack_caption(made: Stack, others: Values, quantity: Quantity, called: Mapping[str, str]) -> str:
    """Return the use, the total and the largest users as text; ``called`` has short names."""
    rest = (others, made.unattributed, made.unassigned)
    used = added_up([*made.parts.values(), *rest], len(made.gaps))
    sentences = [_used(used, made, quantity), _largest(made, quantity, called)]
    if made.unknown:
        names = [printable(called.get(name, name)) for name in made.unknown]
        more = f" and {plural(len(names) - _MOST_NAMED, 'other')}" if len(names) > _MOST_NAMED else ""
        sentences.append(f"The {quantity.name} of {', '.join(names[:_MOST_NAMED])}{more} is not known.")
    return " ".join(filter(None, sentences))


def devices_caption(gpus: Sequence[Track], panels: Sequence[DevicePanel]) -> str:
    """Return the current range of each quantity over the GPUs that report it, as text."""
    ranges: list[str] = []
    reporting: set[int] = set()
    for field, title, unit, scale in panels:
        known = {
            place: value / scale
            for place, gpu in enumerate(gpus)
            if (value := latest(gpu.values[field])) is not None
        }
        if known:
            low, high = f"{min(known.values()):.0f}", f"{max(known.values()):.0f}"
            ranges.append(f"{title} {low if low == high else f'{low} to {high}'} {unit}")
            reporting |= known.keys()
    if not ranges:
        return "No current readings of the devices."
    total = plural(len(gpus), "GPU")
    devices = total if len(reporting) == len(gpus) else f"{len(reporting)} of {total}"
    return f"Now, over {devices}: {', '.join(ranges)}."


def _used(sums: Values, made: Stack, quantity: Quantity) -> str:
    whole = latest([None if partial else used for used, partial in zip(sums, made.partial, strict=True)])
    used = latest(sums) if whole is None else whole
    if used is None:
        return f"The {quantity.name} in use now is not known."
    totals = [
        f"{_amount(value, quantity)} {word}"
        for values, word in ((made.entitled, "entitled"), (made.total, "on the devices"))
        if (value := latest(values)) is not None
    ]
    least = "at least " if whole is None else ""
    return f"Now {least}{_amount(used, quantity)} used{' of ' if totals else ''}{', '.join(totals)}."


def _largest(made: Stack, quantity: Quantity, called: Mapping[str, str]) -> str:
    known = [(value, name) for name, values in made.parts.items() if (value := latest(values))]
    known.sort(key=lambda pair: (-pair[0], pair[1]))
    named = [
        f"{printable(called.get(name, name))} {_amount(value, quantity)}"
        for value, name in known[:_MOST_NAMED]
    ]
    return f"Most: {', '.join(named)}." if len(known) > 1 else ""


def _amount(value: float, quantity: Quantity) -> str:
    digits = 1 if quantity.name == "memory" else 2
    return f"{decimal(value / quantity.scale, digits)} {quantity.unit}"


def shown_from(past: Past) -> float:
    """Return the Unix time at which the shown range begins.

    Time before the first poll is left out, down to five minutes.
    """
    known = first_known(past)
    if known is None:
        return past.start
    begin = min(past.start + known * past.step, past.end - _LEAST)
    return max(past.start, begin // _MINUTE * _MINUTE)
