"""The names of a selector: as a word, in quotes, or by a matcher of ``__name__``."""

import re
from fractions import Fraction

from exporter.translate.edits import Edits
from exporter.translate.names import Names, Series, UntranslatableError
from exporter.translate.tokens import VARIABLE, Token
from exporter.translate.tree import Matcher, Node

MIXED = Series("", Fraction(0))
"""Several names whose units change: only whether they exist, or how many there are, stays the same.

Not even the same factor can be undone: without their names, such series have the same labels.
"""

_ALTERNATIVES = re.compile(r"\w+(\|\w+)*")
# Other patterns could take Python very long.
_SIMPLE = re.compile(r"(?!.*[)}][*+?{])(?!(?:.*[*+?{]){6})[\w.*+?|()\[\]^$-]*")


class Metrics:
    """Replaces the names of selectors."""

    def __init__(self, names: Names, edits: Edits) -> None:
        self._names = names
        self._edits = edits
        # What was replaced, by the old name.
        self.replaced: dict[str, Series] = {}

    def rename(self, selector: Node) -> Series | None:
        """Replace the name of a selector and return what replaces it; raises UntranslatableError."""
        found = None
        if selector.metric is not None:
            found = self._word(selector, selector.metric)
        for matcher in selector.matchers:
            if matcher.label is None or matcher.label.text.strip("\"'`") == "__name__":
                found = self._matcher(selector, matcher) or found
        return found

    def _word(self, selector: Node, token: Token) -> Series | None:
        if token.has_variable:
            if "DCGM" in token.text:
                raise UntranslatableError(f"the name {token.text} is made of a variable")
            return None
        new = self._renamed(token.text)
        if new is not None:
            self._edits.replace(token.start, token.end, new.name)
            self._add_matchers(selector, new)
        return new

    def _matcher(self, selector: Node, matcher: Matcher) -> Series | None:
        text = matcher.value.text[1:-1]
        if VARIABLE.search(text):
            if "DCGM" in text:
                raise UntranslatableError(f'the name "{text}" is made of a variable')
            return None
        if matcher.operator == "=":
            new = self._renamed(matcher.value.value)
            if new is not None:
                self._edits.replace(matcher.value.start + 1, matcher.value.end - 1, new.name)
                self._add_matchers(selector, new)
            return new
        return self._pattern(matcher, text)

    def _pattern(self, matcher: Matcher, pattern: str) -> Series | None:
        if matcher.operator == "=~" and _ALTERNATIVES.fullmatch(pattern):
            old = pattern.split("|")
            new = [self._renamed(name) or Series(name) for name in old]
            if [each.name for each in new] == old:
                return None
            if any(each.matchers for each in new):
                raise UntranslatableError(f'"{pattern}" would have to become several selectors')
            self._edits.replace(
                matcher.value.start + 1, matcher.value.end - 1, "|".join(each.name for each in new)
            )
            if len(new) > 1 and any(each.factor != 1 for each in new):
                return MIXED
            return new[0]
        if not _SIMPLE.fullmatch(pattern):
            if "DCGM" in pattern:
                raise UntranslatableError(f'the pattern "{pattern}" is not understood')
            return None
        return self._selected(matcher, pattern)

    def _selected(self, matcher: Matcher, pattern: str) -> Series | None:
        try:
            selects = re.compile(pattern).fullmatch
        except re.error:
            raise UntranslatableError(f'the pattern "{pattern}" is not understood') from None
        changing = [old for old in (*self._names.series, *self._names.unequal) if selects(old)]
        if not changing:
            return None
        series = [self._names.series[old] for old in changing if old in self._names.series]
        stays = len(series) == len(changing) and all(selects(each.name) for each in series)
        if matcher.operator != "=~" or not stays:
            listed = ", ".join(changing[:3]) + (", …" if len(changing) > 3 else "")
            raise UntranslatableError(f'the pattern "{pattern}" selects names that change: {listed}')
        return None if all(each.factor == 1 for each in series) else MIXED

    def _renamed(self, name: str) -> Series | None:
        new = self._names.renamed(name)
        if new is not None:
            self.replaced[name] = new
        return new

    def _add_matchers(self, selector: Node, new: Series) -> None:
        if new.matchers:
            added = ", ".join(f'{label}="{value}"' for label, value in new.matchers.items())
            more = ", " if selector.matchers else ""
            text = f"{added}{more}" if selector.braces else f"{{{added}}}"
            self._edits.replace(selector.brace, selector.brace, text)
