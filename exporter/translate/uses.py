"""What an expression reads under names that dcgm-exporter renames."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.translate.expression import Translated, concerns, translate_expression
from exporter.translate.names import Names, Series, UntranslatableError
from exporter.translate.tree import tree

_OWN = re.compile(r"gpuslice_\w+")
_WORD = re.compile(r"[\w:]+")


@dataclass(frozen=True, slots=True)
class Use:
    """The renamed series and labels in an expression, with what replaces them."""

    series: Mapping[str, Series]
    # New labels by the old ones.
    labels: Mapping[str, str]
    # Recording rules of series of DCGM.
    records: frozenset[str] = frozenset()
    # Our own series.
    own: frozenset[str] = frozenset()
    # Why it cannot be translated, "" if it can.
    reason: str = ""

    @property
    def is_renamed(self) -> bool:
        """Return whether it reads something that is renamed, or may do so."""
        return bool(self.series or self.labels or self.reason)


class PlacedUse(NamedTuple):
    """A use in a file."""

    place: int
    # The alert or the record that has it, such as ``alert Hot``; "" for others.
    owner: str
    use: Use


def expression_use(text: str, names: Names) -> Use:
    """Return what an expression uses."""
    try:
        return use_of(text, names, translate_expression(text, names))
    except UntranslatableError as error:
        return untranslated_use(text, names, str(error))


def use_of(text: str, names: Names, made: Translated) -> Use:
    """Return what an expression uses, from its translation.

    One that reads both an old name and its new one (``old or new``) is prepared for the change.
    """
    words = frozenset(_WORD.findall(text))
    series = {old: new for old, new in made.series.items() if new.name not in words}
    labels = {old: new for old, new in made.labels.items() if new not in words}
    return Use(series, labels, names.records & words, _own(text))


def untranslated_use(text: str, names: Names, reason: str) -> Use:
    """Return the names in an expression that cannot be translated, which is known by its words only."""
    words = frozenset(_WORD.findall(text))
    series = {old: new for old, new in names.series.items() if old in words and new.name not in words}
    labels = {old: new for old, new in names.labels.items() if old in words and new not in words}
    labels = labels if concerns(text, names) else {}
    return Use(series, labels, names.records & words, _own(text), reason)


def _own(text: str) -> frozenset[str]:
    """Return the names of our series that an expression selects; none if it cannot be parsed."""
    if "gpuslice_" not in text:
        return frozenset()
    try:
        nodes = tree(text).walk()
        return frozenset(node.name for node in nodes if node.kind == "selector" and _OWN.fullmatch(node.name))
    except (UntranslatableError, RecursionError):
        return frozenset()
