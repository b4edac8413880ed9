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
