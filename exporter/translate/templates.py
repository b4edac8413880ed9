"""Texts with templates in them: of alerts (Go), of legends, and of Grafana's variables."""

import re
from collections.abc import Iterator
from dataclasses import replace

from exporter.translate.actions import actions
from exporter.translate.edits import Edit, shifted
from exporter.translate.expression import Translated, concerns, translate_expression
from exporter.translate.names import Names, UntranslatableError
from exporter.translate.tokens import tokens

_LABEL = re.compile(r"(?:\$labels|\.Labels)\.(\w+)")
_NAMED_LABEL = re.compile(r"\b(?:label|index\s+(?:\$labels|\.Labels))\s+[\"`](\w+)[\"`]")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
# How links, titles and fields of Grafana name a label.
_FIELD = re.compile(r"(?:__field\.labels|__data\.fields)(?:\.(\w+)|\[[\"']?(\w+)[\"']?\])|\$__cell_(\w+)")
_CALL = re.compile(r"\s*(label_values|query_result|label_names|metrics)\s*\((.*)\)\s*", re.DOTALL)
_WORD = re.compile(r"\w+")


def alert_text(text: str, names: Names) -> list[Edit]:
    """Return the changes of an annotation or label of an alert on series of DCGM."""
    edits: list[Edit] = []
    for action in actions(text):
        inside = text[action.start : action.end]
        found = [*_labels(_LABEL, inside, names), *_labels(_NAMED_LABEL, inside, names)]
        for quoted in _QUOTED.finditer(inside):
            content = quoted[1] if quoted[1] is not None else quoted[2]
            if not concerns(content, names):
                continue
            if "\\" in content and quoted[1] is not None:
                raise UntranslatableError(f"the query in {inside} has escapes")
            if "%" in content and "printf" in inside:
                raise UntranslatableError(f"the query in {inside} is put together")
            inner = translate_expression(content, names)
            found += shifted(inner.edits, quoted.start() + 1)
        edits += shifted(sorted(found), action.start)
    return edits


def legend(text: str, names: Names) -> list[Edit]:
    """Return the changes of the legend of a query on series of DCGM."""
    if any(found[1] == "__name__" for found in _LEGEND.finditer(text)):
        raise UntranslatableError("the legend shows the names of the series, which change")
    return [*_labels(_LEGEND, text, names)]


def field_text(text: str, names: Names) -> list[Edit]:
    """Return the changes of a text of a panel: a label as a whole, or named by its links and titles."""
    if text in names.labels:
        return [Edit(0, len(text), names.label(text))]
    return [*_labels(_FIELD, text, names)]


def variable_pattern(text: str, names: Names) -> list[Edit]:
    """Return the changes of the pattern that a variable applies to the results of its query."""
    new = {**names.labels, **{old: series.name for old, series in names.series.items()}}
    return [Edit(*found.span(), new[found[0]]) for found in _WORD.finditer(text) if found[0] in new]


def variable_query(text: str, names: Names) -> Translated:
    """Return the changes of the query of one of Grafana's variables."""
    call = _CALL.fullmatch(text)
    if call is None:
        return translate_expression(text, names, only_series=True)
    inner, begin = call[2], call.start(2)
    if call[1] == "query_result":
        return _moved(translate_expression(inner, names), begin)
    if call[1] != "label_values":
        if concerns(inner, names):
            raise UntranslatableError(f"{call[1]}() selects names by a pattern")
        return Translated()
    commas = [token.start for token in tokens(inner) if token.text == ","]
    # The last comma outside of braces, which a label follows.
    label_at = commas[-1] + 1 if commas and "}" not in inner[commas[-1] :] else 0
    series, label = inner[: max(label_at - 1, 0)], inner[label_at:]
    made = translate_expression(series, names, only_series=True) if series.strip() else Translated()
    edits, labels = [*made.edits], dict(made.labels)
    if made.is_dcgm or not series.strip():
        name = label.strip()
        new = names.labels.get(name, name) if not series.strip() else names.label(name)
        if new != name:
            at = label_at + label.index(name)
            edits.append(Edit(at, at + len(name), new))
            labels[name] = new
    return _moved(Translated(edits, made.is_dcgm, made.series, labels), begin)


def _moved(made: Translated, by: int) -> Translated:
    return replace(made, edits=shifted(made.edits, by))


def _labels(pattern: re.Pattern[str], text: str, names: Names) -> Iterator[Edit]:
    for found in pattern.finditer(text):
        group = next(number for number, name in enumerate(found.groups(), 1) if name is not None)
        new = names.label(found[group])
        if new != found[group]:
            yield Edit(*found.span(group), new)
