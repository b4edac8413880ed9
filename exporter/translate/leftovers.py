"""Old names that are still in a text after its translation, and that nothing else reports.

They are in comments, in texts for people, in strings of expressions, and in templates. Each is listed with
its place, so that a file without a finding has none.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from exporter.translate.actions import Span, actions
from exporter.translate.documents import Node, scalars
from exporter.translate.findings import Finding, Level, listed

_NAME: Final = re.compile(r"(?<![\w:])DCGM_\w+(?![\w:])")
_COMMENT: Final = re.compile(r"\{\{-?\s*/\*")

_IN_TEMPLATE: Final = "a template"


class _Spans:
    """Parts of a text that do not overlap."""

    def __init__(self, spans: Collection[Span]) -> None:
        self._spans = sorted(spans)
        self._starts = [span.start for span in self._spans]

    def at(self, place: int) -> Span | None:
        """Return the part that has a place."""
        number = bisect_right(self._starts, place) - 1
        return self._spans[number] if number >= 0 and place < self._spans[number].end else None


class Handled(NamedTuple):
    """What is done about a text already."""

    # What is replaced.
    changed: Collection[Span]
    # The places of scalars that are reported, and of expressions.
    reported: Collection[int]
    expressions: Collection[int]


def leftovers(
    text: str, documents: Iterable[Node], old: Collection[str], handled: Handled
) -> Iterator[Finding]:
    """Yield a finding for each line with old names that stay: a problem in a template, else a note."""
    found_scalars = _Spans([Span(each.start, each.end) for root in documents for each in scalars(root)])
    found_changes = _Spans(handled.changed)
    templates = _Spans([each for each in actions(text) if not _COMMENT.match(text, each.start)])
    lines: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for found in _NAME.finditer(text):
        at = found.start()
        scalar = found_scalars.at(at)
        if found[0] not in old or found_changes.at(at) or (scalar and scalar.start in handled.reported):
            continue
        if templates.at(at):
            where = _IN_TEMPLATE
        elif scalar is None:
            where = "a comment"
        else:
            where = (
                "a string or a comment of an expression" if scalar.start in handled.expressions else "a text"
            )
        lines.setdefault((text.rfind("\n", 0, at), where), []).append((at, found[0]))
    for (_, where), names in lines.items():
        named = listed(sorted({name for _, name in names}))
        level: Level = "problem" if where == _IN_TEMPLATE else "note"
        yield Finding(names[0][0], level, f"{where} was left as it is, with {named}")
