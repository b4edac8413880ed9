"""Finds the expressions of a document: in rules, panels, variables of dashboards, and triggers of KEDA."""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from exporter.translate.actions import Span
from exporter.translate.documents import Mapping, Node, Scalar, Sequence, UnreadableFileError, read, scalars
from exporter.translate.edits import Edit
from exporter.translate.expression import Translated, concerns, translate_expression
from exporter.translate.findings import Finding, Level, listed
from exporter.translate.leftovers import Handled, leftovers
from exporter.translate.names import Names, UntranslatableError
from exporter.translate.queries import field_parts, query_of, variable_parts, variables
from exporter.translate.templates import alert_text, field_text, legend, variable_pattern, variable_query
from exporter.translate.uses import PlacedUse, untranslated_use, use_of

Change = Callable[[str, Names], list[Edit]]

_LEGENDS: Final = ("legendFormat", "textFormat", "titleFormat")
# Texts for people: they may go on naming old series.
_TEXTS: Final = frozenset(
    {"title", "description", "summary", "message", "text", "content", "alert", "name", "label", "help"}
    | {"runbook_url", "displayName", "metricName"}
)
# Where labels are named outside of expressions: in relabeling, routes, filters and annotations.
_LABELS: Final = frozenset(
    {"sourceLabels", "source_labels", "group_by", "groupBy", "equal", "tagKeys", "key", "defaultKeys"}
)
_WORD = re.compile(r"[\w:]+")
_COUNTER = re.compile(r"^ *DCGM_\w+ *, *(?:gauge|counter|label) *,", re.MULTILINE)


class Places:
    """Goes through one document, and collects the changes of its scalars."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._seen: set[int] = set()
        # The places of scalars with documents in them.
        self._documents_at: set[int] = set()
        self.changes: dict[Scalar, list[Edit]] = {}
        self.findings: list[Finding] = []
        self.uses: list[PlacedUse] = []
        # Expressions with a change.
        self.translated = 0
        # New names that dcgm-exporter prints only if its collector file lists them, with the first place.
        self.optional: dict[tuple[str, str], int] = {}

    def translate_all(self, text: str, documents: Collection[Node]) -> None:
        """Find all changes of the documents of a text."""
        for root in documents:
            self._visit(root)
            self._report_rest(root)
        handled = Handled(
            changed=[Span(edit.start, edit.end) for edit in self.edits()],
            reported={finding.place for finding in self.findings} | self._documents_at,
            expressions={use.place for use in self.uses},
        )
        for left in leftovers(text, documents, {*self._names.series, *self._names.unequal}, handled):
            self.findings.append(left)
            if left.level == "problem":
                use = untranslated_use(left.reason, self._names, left.reason)
                self.uses.append(PlacedUse(left.place, "", use))

    def _visit(self, node: Node) -> bool:
        """Return whether there are queries for series of DCGM in a part."""
        if id(node) in self._seen or isinstance(node, Scalar):
            return False
        self._seen.add(id(node))
        if isinstance(node, Sequence):
            return True in [self._visit(item) for item in node.items]
        found = self._own(node)
        for key, value in node.pairs:
            found |= self._embedded(key, value) if isinstance(value, Scalar) else self._visit(value)
        for part in field_parts(node) if found else ():
            for scalar in scalars(part):
                self._change(scalar, field_text)
        if found and isinstance(node.get("data"), Sequence):  # a rule of Grafana
            self._change_alert(node)
        return found

    def _own(self, node: Mapping) -> bool:
        """Translate what a mapping has itself; return whether it is a query for series of DCGM."""
        expr = query_of(node)
        if expr is not None:
            made = self._expression(expr, translate_expression, _owner(node))
            if made is not None and made.is_dcgm:
                self._change_alert(node)
                for key in _LEGENDS:
                    self._change(node.scalar(key), legend)
            return made is not None and made.is_dcgm
        for variable in variables(node):
            self._variable(variable)
        return False

    def _change_alert(self, rule: Mapping) -> None:
        for key in ("annotations", "labels"):
            texts = rule.get(key)
            for _, value in texts.pairs if isinstance(texts, Mapping) else ():
                self._change(value if isinstance(value, Scalar) else None, alert_text)

    def _variable(self, variable: Mapping) -> None:
        scalar, query = variable_parts(variable)
        definition = variable.scalar("definition")
        made = self._expression(scalar, variable_query) if scalar is not None else None
        if definition is not None and scalar is not None and definition.value == scalar.value:
            self._repeat(scalar, definition)
        elif definition is not None and concerns(definition.value, self._names):
            self._expression(definition, variable_query)
        if made is None or not made.is_dcgm or scalar is None:
            return
        if "query_result" in scalar.value:
            self._change(variable.scalar("regex"), variable_pattern)
        if query is not None:
            for key in ("label", "metric"):
                self._change(query.scalar(key), variable_pattern)

    def _expression(
        self, scalar: Scalar, translate: Callable[[str, Names], Translated], owner: str = ""
    ) -> Translated | None:
        """Translate an expression; None if that is not possible, which is reported."""
        if id(scalar) in self._seen:
            return None
        self._seen.add(id(scalar))
        try:
            made = translate(scalar.value, self._names)
            self._set(scalar, made.edits)
        except UntranslatableError as error:
            self._report(scalar, str(error))
            use = untranslated_use(scalar.value, self._names, str(error))
            self.uses.append(PlacedUse(scalar.start, owner, use))
            return None
        self.translated += bool(made.edits)
        self.uses.append(PlacedUse(scalar.start, owner, use_of(scalar.value, self._names, made)))
        for old, new in made.series.items():
            if new.optional:
                self.optional.setdefault((old, new.name), scalar.start)
        return made

    def _change(self, scalar: Scalar | None, change: Change) -> None:
        if scalar is None or id(scalar) in self._seen:
            return
        try:
            edits = change(scalar.value, self._names)
            if edits:
                self._seen.add(id(scalar))
                self._set(scalar, edits)
        except UntranslatableError as error:
            self._seen.add(id(scalar))
            self._report(scalar, str(error))

    def _repeat(self, scalar: Scalar, definition: Scalar) -> None:
        self._seen.add(id(definition))
        if scalar in self.changes:
            self._set(definition, self.changes[scalar])

    def _set(self, scalar: Scalar, edits: list[Edit]) -> None:
        if edits and scalar.text is None:
            raise UntranslatableError("this form of a YAML text cannot be changed in place")
        if edits:
            self.changes[scalar] = sorted(edits, key=lambda edit: edit.start)

    def _report(self, scalar: Scalar, reason: str) -> None:
        self.findings.append(Finding(scalar.start, "problem", reason, " ".join(scalar.value.split())))

    def _embedded(self, key: Node, scalar: Scalar) -> bool:
        """Translate a document in a scalar, such as a dashboard in a ConfigMap."""
        text = scalar.value
        if (
            id(scalar) in self._seen
            or (isinstance(key, Scalar) and key.value in _TEXTS)
            or not concerns(text, self._names)
            or not ("expr" in text or "query" in text or "Query" in text)
        ):
            return False
        try:
            documents = [document for document in read(text) if not isinstance(document, Scalar)]
        except UnreadableFileError:
            return False
        if not documents:
            return False
        self._seen.add(id(scalar))
        inner = Places(self._names)
        self._documents_at.add(scalar.start)
        inner.translate_all(text, documents)
        self.findings += [each._replace(place=_outer_place(scalar, each.place)) for each in inner.findings]
        self.uses += [each._replace(place=_outer_place(scalar, each.place)) for each in inner.uses]
        for names in inner.optional:
            self.optional.setdefault(names, scalar.start)
        self.translated += inner.translated
        try:
            self._set(scalar, list(inner.edits()))
        except UntranslatableError as error:
            self._report(scalar, str(error))
        return False

    def edits(self) -> Iterator[Edit]:
        """Yield all changes in the order of the document."""
        for scalar in sorted(self.changes, key=lambda changed: changed.start):
            if scalar.text is not None:
                yield from map(scalar.text.placed, self.changes[scalar])

    def _report_rest(self, root: Node) -> None:
        """Report old names and labels elsewhere: where they are in use is not known."""
        old = {*self._names.series, *self._names.unequal}
        for key, scalar in _with_keys(root):
            if id(scalar) in self._seen:
                continue
            self._seen.add(id(scalar))
            words = _WORD.findall(scalar.value)
            if named := sorted(old.intersection(words)):
                self._report_names(key, scalar, named)
            elif key in _LABELS and (named := sorted(self._names.labels.keys() & set(words))):
                reason = f"{key} was left as it is: a list of labels, and {listed(named)} is in it"
                self.findings.append(Finding(scalar.start, "problem", reason))

    def _report_names(self, key: str, scalar: Scalar, named: list[str]) -> None:
        level: Level = "note" if key in _TEXTS else "problem"
        where = "a text" if level == "note" else "not a known place of an expression"
        is_counters = _COUNTER.search(scalar.value) is not None
        if is_counters:
            where = "a collector file of dcgm-exporter, which decides which names are printed"
        reason = f"{key or 'a key'} was left as it is: {where}, with {listed(named)}"
        self.findings.append(Finding(scalar.start, level, reason))
        if level == "problem" and not is_counters:
            self.uses.append(PlacedUse(scalar.start, "", untranslated_use(scalar.value, self._names, where)))


def _owner(node: Mapping) -> str:
    kinds = [kind for kind in ("alert", "record") if node.word(kind)]
    return f"{kinds[0]} {node.word(kinds[0])}" if kinds else ""


def _outer_place(scalar: Scalar, place: int) -> int:
    """Return the place in the file of one in the text of a scalar."""
    return scalar.text.place(place) if scalar.text else scalar.start


def _with_keys(root: Node) -> Iterator[tuple[str, Scalar]]:
    """Yield all scalars with the key that they are below; keys have none."""
    seen: set[int] = set()
    waiting: list[tuple[str, Node]] = [("", root)]
    while waiting:
        key, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Scalar):
            yield key, node
        elif isinstance(node, Sequence):
            waiting += [(key, item) for item in reversed(node.items)]
        else:
            for name, value in reversed(node.pairs):
                word = name.value if isinstance(name, Scalar) else ""
                # The name of a metric of an autoscaler is no text.
                waiting += [("metric.name" if (key, word) == ("metric", "name") else word, value), ("", name)]
