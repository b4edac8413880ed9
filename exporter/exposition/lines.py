"""The lines of one family: its samples, which both formats share, and its header in each."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from exporter.metrics import AnyFamily, Family, Labelled, LabelledFamily, Number

_SPECIAL = re.compile('[\\\\"\n\ud800-\udfff]')
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

ODD_NUMBERS: Mapping[str, str] = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf", "True": "1", "False": "0"}
"""The few values whose repr is not how the formats spell them."""

_Names: TypeAlias = tuple[str, ...]


def encodable(text: str) -> str:
    """Replace what UTF-8 cannot carry (lone surrogates, from undecodable bytes) by U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def escape(value: str) -> str:
    """Escape a label value: backslash, quote and newline; most values need nothing."""
    return encodable(value).translate(_ESCAPES) if _SPECIAL.search(value) else value


def escape_help(text: str, *, openmetrics: bool) -> str:
    """Escape a help text; only OpenMetrics escapes quotes there."""
    return encodable(text).translate(_ESCAPES if openmetrics else _HELP_ESCAPES)


def label_set(names: _Names, values: _Names) -> str:
    """Spell the labels that identify an entity, braces included; nothing when there are none."""
    inner = ",".join([f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True)])
    return f"{{{inner}}}" if inner else ""


def extra_labels(names: _Names, values: _Names) -> str:
    """Spell labels that follow others, without braces; an empty value means no such label."""
    pairs = zip(names, values, strict=True)
    return ",".join([f'{name}="{escape(value)}"' for name, value in pairs if value])


def join_labels(labels: str, extra: str) -> str:
    """Put extra labels at the end of a label set."""
    if not extra:
        return labels
    return f"{labels[:-1]},{extra}}}" if labels else f"{{{extra}}}"


class LabelCache:
    """Label strings by what is in them. What was not asked for since the last turn is forgotten then."""

    def __init__(self, spell: Callable[[_Names, _Names], str]) -> None:
        self._spell = spell
        self._before: dict[tuple[_Names, _Names], str] = {}
        self._now: dict[tuple[_Names, _Names], str] = {}

    def __len__(self) -> int:
        return len(self._before | self._now)

    def text(self, names: _Names, values: _Names) -> str:
        """Give the string of these labels, spelling it only if it is new."""
        key = (names, values)
        text = self._now.get(key)
        if text is None:
            text = self._before.get(key)
            self._now[key] = text = self._spell(names, values) if text is None else text
        return text

    def turn(self) -> None:
        """End a snapshot: keep what it used, drop the rest."""
        self._before, self._now = self._now, {}


# What a family with labels of its own tells of one entity.
_Told: TypeAlias = tuple[Labelled, ...]


class Entities(NamedTuple):
    """The records of a level, each beside its label set, spelt. The same label sets are the same object."""

    labels: tuple[str, ...]
    rows: tuple[Any, ...]


class Lines(Protocol):
    """Spells the samples of one family, and gives the bytes of before where no label and no value differs.

    Most of what holders have and GPUs are stays as it is from poll to poll.
    """

    def samples(self, entities: Entities) -> bytes:
        """Give the lines in UTF-8; nothing where no entity has a sample."""

    def kept(self) -> int:
        """Count the label strings that are kept beside those of the entities."""


def lines_of(family: AnyFamily) -> Lines:
    """Make what spells this family."""
    return _Plain(family) if isinstance(family, Family) else _Labelled(family)


class _Plain:
    """The lines of a family that has at most one sample for each entity."""

    __slots__ = ("_labels", "_name", "_text", "_value", "_values")

    def __init__(self, family: Family[Any]) -> None:
        self._name, self._value = family.name, family.value
        self._labels: tuple[str, ...] = ()
        self._values: list[Number | None] = []
        self._text = b""

    def samples(self, entities: Entities) -> bytes:
        values = list(map(self._value, entities.rows))
        if values != self._values or entities.labels is not self._labels:
            self._text = self._spelt(entities.labels, values)
            self._labels, self._values = entities.labels, values
        return self._text

    def kept(self) -> int:
        return 0

    def _spelt(self, sets: tuple[str, ...], values: list[Number | None]) -> bytes:
        return _lines(self._name, zip(sets, values, strict=True))


class _Labelled:
    """The lines of a family with labels of its own; of two under the same labels the first stays."""

    __slots__ = ("_extras", "_found", "_labels", "_name", "_names", "_samples", "_text")

    def __init__(self, family: LabelledFamily[Any]) -> None:
        self._name, self._names, self._samples = family.name, family.labels, family.samples
        self._labels: tuple[str, ...] = ()
        self._found: list[_Told] = []
        self._extras: dict[tuple[str, ...], str] = {}
        self._text = b""

    def samples(self, entities: Entities) -> bytes:
        found = [tuple(self._samples(row)) for row in entities.rows]
        if found != self._found or entities.labels is not self._labels:
            self._text = self._spelt(entities.labels, found)
            self._labels, self._found = entities.labels, found
        return self._text

    def kept(self) -> int:
        return len(self._extras)

    def _spelt(self, sets: tuple[str, ...], told: list[_Told]) -> bytes:
        series: dict[str, Number] = {}
        extras: dict[tuple[str, ...], str] = {}
        for labels, samples in zip(sets, told, strict=True):
            for values, found in samples:
                if found is None:
                    continue
                extra = extras.get(values)
                if extra is None:
                    known = self._extras.get(values)
                    extras[values] = extra = extra_labels(self._names, values) if known is None else known
                series.setdefault(join_labels(labels, extra), found)
        self._extras = extras
        return _lines(self._name, series.items())


def _lines(name: str, samples: Iterable[tuple[str, Number | None]]) -> bytes:
    """Spell samples, given by their labels, in UTF-8; what is not known has no line."""
    odd = ODD_NUMBERS.get
    # Nearly all of a page is made here. Integers are spelt at once, floats so that they read back the same.
    lines = [
        f"{name}{labels} {value if type(value) is int else odd(text := repr(value), text)}\n"
        for labels, value in samples
        if value is not None
    ]
    return "".join(lines).encode()


def text_header(family: AnyFamily) -> bytes:
    """Spell HELP and TYPE for the text format 0.0.4, which knows no info type."""
    shown_type = "gauge" if family.type == "info" else family.type
    text = escape_help(family.help, openmetrics=False)
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {shown_type}\n".encode()


def openmetrics_header(family: AnyFamily) -> bytes:
    """Spell HELP and TYPE for OpenMetrics, which names a family without the suffix of its type."""
    name, shown_type = family.name, str(family.type)
    if family.type == "info":
        name = name.removesuffix("_info")
    if family.type == "counter":
        # A counter must end in _total there; of unknown type it keeps the name that queries use.
        shown_type = "counter" if name.endswith("_total") else "unknown"
        name = name.removesuffix("_total")
    text = escape_help(family.help, openmetrics=True)
    return f"# HELP {name} {text}\n# TYPE {name} {shown_type}\n".encode()
