"""The newest numbers of a figure in words: for those who do not see it, and for those in a hurry."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.formats_words import decimal, plural, printable
from exporter.history.past import Track
from exporter.web.timelines.stacks import Quantity, Stack, Values, added_up, latest

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
    used = latest(added_up([*made.parts.values(), *rest], len(made.gaps)))
    sentences = [_used(used, made, quantity), _largest(made, quantity, called)]
    if made.unknown:
        sentences.append(_unknown([called.get(name, name) for name in made.unknown], quantity))
    return " ".join(filter(None, sentences))


def devices_caption(gpus: Sequence[Track], panels: Sequence[Panel]) -> str:
    """Say from where to where the GPUs reach in each quantity."""
    told = []
    for field, title, unit, scale in panels:
        known = [value / scale for gpu in gpus if (value := latest(gpu.values[field])) is not None]
        if known:
            low, high = f"{min(known):.0f}", f"{max(known):.0f}"
            told.append(f"{title} {low if low == high else f'{low} to {high}'} {unit}")
    if not told:
        return "Now nothing is known of the devices."
    devices = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    return f"Now, over {devices}: {', '.join(told)}."


def _used(used: float | None, made: Stack, quantity: Quantity) -> str:
    if used is None:
        return f"How much {quantity.name} is used now is not known."
    beside = [
        f"{_amount(value, quantity)} {word}"
        for values, word in ((made.entitled, "entitled"), (made.total, "on the devices"))
        if (value := latest(values)) is not None
    ]
    whole = f" of {', '.join(beside)}" if beside else ""
    return f"Now {_amount(used, quantity)} used{whole}."


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
