"""The lines of one family: its samples, which both formats share, and its header in each."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from exporter.metrics import AnyFamily, Family, Labelled, LabelledFamily, Number
from exporter.wording import encodable

_SPECIAL = re.compile('[\\\\"\n\ud800-\udfff]')
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

# Values with another spelling in the formats than their repr.
ODD_NUMBERS: Mapping[str, str] = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf", "True": "1", "False": "0"}

_Names: TypeAlias = tuple[str, ...]
# The samples of one entity in a family with labels of its own.
_Samples: TypeAlias = tuple[Labelled, ...]


def escape(value: str) -> str:
    """Return a label value with backslashes, quotes and newlines escaped."""
    return encodable(value).translate(_ESCAPES) if _SPECIAL.search(value) else value


def escape_help(text: str, *, openmetrics: bool) -> str:
    """Return a HELP text, escaped; only OpenMetrics escapes quotes there."""
    return encodable(text).translate(_ESCAPES if openmetrics else _HELP_ESCAPES)


def extra_labels(names: _Names, values: _Names) -> str:
    """Return labels without the braces of a label set; labels with an empty value are left out."""
    pairs = zip(names, values, strict=True)
    return ",".join([f'{name}="{escape(value)}"' for name, value in pairs if value])


def join_labels(labels: str, extra: str) -> str:
    """Return a label set with extra labels at its end."""
    if not extra:
        return labels
    return f"{labels[:-1]},{extra}}}" if labels else f"{{{extra}}}"


class LabelCache:
    """Rendered label sets, by names and values. Those not used for a snapshot are dropped after it."""

    def __init__(self) -> None:
        self._previous: dict[tuple[_Names, _Names], str] = {}
        self._current: dict[tuple[_Names, _Names], str] = {}

    def text(self, names: _Names, values: _Names) -> str:
        """Return the label set, rendered only if it is new."""
        key = (names, values)
        text = self._current.get(key)
        if text is None:
            text = self._previous.get(key)
            self._current[key] = text = join_labels("", extra_labels(names, values)) if text is None else text
        return text

    def turn(self) -> None:
        """End a snapshot: keep the label sets that it used, drop the others."""
        self._previous, self._current = self._current, {}


class Entities(NamedTuple):
    """The rows of a level with their label sets."""

    # Rendered label sets; the same tuple object as long as none has changed.
    labels: tuple[str, ...]
    rows: tuple[Any, ...]


def lines_of(family: AnyFamily) -> "_PlainLines | _LabelledLines":
    """Return the renderer of a family, which reuses the last bytes if no label and no value has changed.

    Most entitlements and properties of GPUs stay the same from poll to poll.
    """
    return _PlainLines(family) if isinstance(family, Family) else _LabelledLines(family)


@dataclass(slots=True, eq=False)
class _PlainLines:
    """The lines of a family with at most one sample for each entity."""

    family: Family[Any]
    labels: tuple[str, ...] = ()
    values: list[Number | None] = field(default_factory=list)
    text: bytes = b""

    def samples(self, entities: Entities) -> bytes:
        """Return the lines in UTF-8; nothing if no entity has a sample."""
        values = list(map(self.family.value, entities.rows))
        if values != self.values or entities.labels is not self.labels:
            self.text = _lines(self.family.name, zip(entities.labels, values, strict=True))
            self.labels, self.values = entities.labels, values
        return self.text


@dataclass(slots=True, eq=False)
class _LabelledLines:
    """The lines of a family with labels of its own; of two samples with the same labels the first counts."""

    family: LabelledFamily[Any]
    labels: tuple[str, ...] = ()
    last: list[_Samples] = field(default_factory=list)
    extras: dict[tuple[str, ...], str] = field(default_factory=dict)
    text: bytes = b""

    def samples(self, entities: Entities) -> bytes:
        """Return the lines in UTF-8; nothing if no entity has a sample."""
        samples = [tuple(self.family.samples(row)) for row in entities.rows]
        if samples != self.last or entities.labels is not self.labels:
            self.text = self._render(entities.labels, samples)
            self.labels, self.last = entities.labels, samples
        return self.text

    def _render(self, sets: tuple[str, ...], of_entities: list[_Samples]) -> bytes:
        series: dict[str, Number] = {}
        extras: dict[tuple[str, ...], str] = {}
        for labels, samples in zip(sets, of_entities, strict=True):
            for values, number in samples:
                if number is None:
                    continue
                extra = extras.get(values)
                if extra is None:
                    known = self.extras.get(values)
                    extras[values] = extra = (
                        extra_labels(self.family.labels, values) if known is None else known
                    )
                series.setdefault(join_labels(labels, extra), number)
        self.extras = extras
        return _lines(self.family.name, series.items())


def _lines(name: str, samples: Iterable[tuple[str, Number | None]]) -> bytes:
    """Return the lines of samples in UTF-8; an unknown value has no line."""
    odd = ODD_NUMBERS.get
    # Nearly all of a page is rendered here. A float is rendered so that it parses to the same number.
    lines = [
        f"{name}{labels} {value if type(value) is int else odd(text := repr(value), text)}\n"
        for labels, value in samples
        if value is not None
    ]
    return "".join(lines).encode()


def text_header(family: AnyFamily) -> bytes:
    """Return HELP and TYPE in the text format 0.0.4, which has no info type."""
    shown_type = "gauge" if family.type == "info" else family.type
    text = escape_help(family.help, openmetrics=False)
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {shown_type}\n".encode()


def openmetrics_header(family: AnyFamily) -> bytes:
    """Return HELP and TYPE in OpenMetrics, which names a family without the suffix of its type."""
    name, shown_type = family.name, str(family.type)
    if family.type == "info":
        name = name.removesuffix("_info")
    if family.type == "counter":
        # A counter must end in _total there; with type unknown it keeps the name that queries use.
        shown_type = "counter" if name.endswith("_total") else "unknown"
        name = name.removesuffix("_total")
    text = escape_help(family.help, openmetrics=True)
    return f"# HELP {name} {text}\n# TYPE {name} {shown_type}\n".encode()
