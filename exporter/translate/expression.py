"""Translates one PromQL expression."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.translate.edits import Edit, Edits, changed
from exporter.translate.labels import Labels
from exporter.translate.metrics import Metrics
from exporter.translate.names import Names, Series, UntranslatableError
from exporter.translate.tree import tree
from exporter.translate.values import Values

_NAME = re.compile(r"[\w:]+")


@dataclass(frozen=True, slots=True)
class Translated:
    """The changes of an expression."""

    edits: list[Edit] = field(default_factory=list)
    # Whether its result has the labels of DCGM's series.
    is_dcgm: bool = False
    # What was replaced, by the old name.
    series: Mapping[str, Series] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def concerns(text: str, names: Names) -> bool:
    """Return whether an expression may have something to translate; others are not even parsed."""
    return "DCGM" in text or not names.records.isdisjoint(_NAME.findall(text))


def translate_expression(text: str, names: Names, *, only_series: bool = False) -> Translated:
    """Return the changes of an expression; raises UntranslatableError.

    ``only_series``: its values are of no concern, as in a query for the values of a label.
    """
    if not concerns(text, names):
        return Translated()
    try:
        return _translated(text, names, only_series=only_series)
    except RecursionError:
        raise UntranslatableError("the expression is nested too deeply") from None


def _translated(text: str, names: Names, *, only_series: bool) -> Translated:
    root = tree(text)
    edits = Edits()
    metrics, labels = Metrics(names, edits), Labels(names, edits)
    values = Values(text, metrics, edits)
    if only_series:
        values.factor(root)
    else:
        values.keep(root)
    is_dcgm = labels.carries(root)
    if is_dcgm:
        labels.rename(root)
    made = edits.all()
    if made:
        _check(changed(text, made))
    return Translated(made, is_dcgm, metrics.replaced, labels.replaced)


def _check(text: str) -> None:
    try:
        tree(text)
    except UntranslatableError as error:
        raise UntranslatableError(f"its translation is not valid ({error}): {text}") from None
