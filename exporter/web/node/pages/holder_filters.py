"""The rows of the table that are shown: the filter language, and the choices."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.formats.labels import label_texts
from exporter.model.states import STATE_WORDS
from exporter.web.node.pages.holder_cells import HolderLine
from exporter.web.node.pages.scene import number_of
from exporter.web.node.pages.slice_words import URGENCY, isolation_word, slice_of
from exporter.web.node.parameters import Query
from exporter.wording import mode_word

_STATES: Mapping[str, str] = {str(name): word for name, word in STATE_WORDS.items()}
# A word ends at a space outside quotes; the last quote may be missing.
_WORD = re.compile(r'(?:"[^"]*(?:"|$)|[^\s"])+')


class Word(NamedTuple):
    """One condition of the filter."""

    key: str  # the field; "" is the whole row
    text: str  # what is in the field
    out: bool  # whether it must not be in it


class ChoiceOption(NamedTuple):
    """An option of a choice."""

    value: str
    name: str
    rows: int  # number of rows that have it
    chosen: bool


class Choice(NamedTuple):
    """A choice over the table."""

    name: str
    label: str
    every: str  # its first entry, which selects all rows
    options: tuple[ChoiceOption, ...]


def words_of(text: str) -> list[Word]:
    """Return the conditions of a filter: ``word``, ``key:value``, ``-word``, and quoted text.

    A quoted word is only text. Unknown keys are text too.
    """
    return [word for token in _WORD.findall(text) if (word := _word(token)).text]


def _word(token: str) -> Word:
    out = token.startswith("-") and len(token) > 1
    rest = token[1:] if out else token
    key, colon, value = rest.partition(":")
    known = bool(colon and value) and key.lower() in _FIELDS
    text = (value if known else rest).replace('"', "").casefold()
    return Word(key.lower() if known else "", text, out)


def chosen(lines: Iterable[HolderLine], query: Query) -> list[HolderLine]:
    """Return the rows that match a query."""
    words = words_of(query.text)
    return [
        line
        for line in lines
        if _is_chosen(line, query) and all(_FIELDS[word.key](line, word.text) != word.out for word in words)
    ]


def _is_chosen(line: HolderLine, query: Query) -> bool:
    return (
        query.namespace in ("", line.row.holder.namespace)
        and query.gpu in ("", number(line))
        and query.state in ("", *line.scene.judged(line.row).states)
    )


def number(line: HolderLine) -> str:
    """Return the name of a row's GPU, its uuid if the driver does not list it."""
    return line.row.device.uuid if line.gpu is None else number_of(line.gpu)


def _on_gpu(line: HolderLine, text: str) -> bool:
    """Return whether a row is on a GPU: its number matches exactly, its uuid may be partial."""
    device = line.row.device
    names = (device.uuid.casefold(), device.mig_uuid.casefold())
    return text == number(line).casefold() or any(len(text) > 3 and text in name for name in names)


def _everything(line: HolderLine) -> str:
    holder, where = line.row.holder, number(line)
    name = f"{holder.namespace}/{holder.pod}/{holder.container}"
    return f"{name}\n{where}\ngpu {where}\n" + "\n".join(read(line) for read in _TEXTS.values())


def _in(read: Callable[[HolderLine], str]) -> Callable[[HolderLine, str], bool]:
    return lambda line, text: text in read(line).casefold()


_TEXTS: Mapping[str, Callable[[HolderLine], str]] = {
    "state": lambda line: "\n".join(
        f"{state}\n{STATE_WORDS[state]}" for state in line.scene.judged(line.row).states
    ),
    "slice": lambda line: slice_of(line.scene, line.row).text,
    "sharing": lambda line: f"{line.row.sharing}\n{mode_word(line.row.sharing)}",
    "isolation": lambda line: isolation_word(line.row.isolation),
    "label": lambda line: "\n".join(label_texts(line.scene.labels.of(line.row))),
}
_FIELDS: Mapping[str, Callable[[HolderLine, str], bool]] = {
    "": _in(_everything),
    "ns": _in(lambda line: line.row.holder.namespace),
    "pod": _in(lambda line: line.row.holder.pod),
    "container": _in(lambda line: line.row.holder.container),
    "gpu": _on_gpu,
    **{key: _in(read) for key, read in _TEXTS.items()},
}


def choices(lines: Sequence[HolderLine], query: Query) -> list[Choice]:
    """Return the choices; one with a single option is left out, unless it is selected."""
    namespaces = Counter(line.row.holder.namespace for line in lines)
    gpus = Counter(number(line) for line in lines)
    gpu_names = {name: f"GPU {name}" for name in gpus if name.isdecimal()}
    # A row counts in each of its states.
    states = Counter(state for line in lines for state in line.scene.judged(line.row).states)
    by_urgency: dict[str, int] = {name: states[name] for name in URGENCY if name in states}
    by_name = dict(sorted(namespaces.items()))
    listed = (
        Choice("namespace", "Namespace", "all namespaces", _options(by_name, {}, query.namespace)),
        Choice("gpu", "GPU", "all GPUs", _options(_by_number(gpus), gpu_names, query.gpu)),
        Choice("state", "State", "all states", _options(by_urgency, _STATES, query.state)),
    )
    return [
        choice
        for choice in listed
        if len(choice.options) > 1 or any(option.chosen for option in choice.options)
    ]


def _options(counts: Mapping[str, int], names: Mapping[str, str], wanted: str) -> tuple[ChoiceOption, ...]:
    # A selected value without rows stays selected.
    shown = {**counts, wanted: 0} if wanted and wanted not in counts else counts
    return tuple(
        ChoiceOption(value, names.get(value, value), count, value == wanted) for value, count in shown.items()
    )


def _by_number(gpus: Mapping[str, int]) -> dict[str, int]:
    def place(name: str) -> tuple[bool, int, str]:
        return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)

    return {name: gpus[name] for name in sorted(gpus, key=place)}
