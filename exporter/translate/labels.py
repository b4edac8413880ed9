"""The labels of an expression: in matchers, in lists of labels, and in label_replace() and its like."""

from collections.abc import Mapping, Sequence

from exporter.translate.edits import Edits
from exporter.translate.names import Names, UntranslatableError
from exporter.translate.tokens import VARIABLE, Token
from exporter.translate.tree import Node

# The first and the last argument with a label; None is the last one of the call.
_ARGUMENTS: Mapping[str, Sequence[tuple[int, int | None]]] = {
    "label_replace": ((1, 1), (3, 3)),
    "label_join": ((1, 1), (3, None)),
    "sort_by_label": ((1, None),),
    "sort_by_label_desc": ((1, None),),
}
_NAME = "__name__"
# Their values are those of targets, and not of nodes or GPUs.
_TARGET_LABELS = frozenset({"job", "instance", "service", "endpoint"})


class Labels:
    """Replaces the labels of series of DCGM wherever they appear in an expression."""

    def __init__(self, names: Names, edits: Edits) -> None:
        self._names = names
        self._edits = edits
        # New labels by the old ones.
        self.replaced: dict[str, str] = {}

    def rename(self, root: Node) -> None:
        """Replace all labels; raises UntranslatableError."""
        for node in root.walk():
            if node.kind == "selector" and self._is_dcgm(node):
                self._check_target(node)
                self._replace([matcher.label for matcher in node.matchers if matcher.label is not None])
            elif node.kind == "aggregate" and self.carries(node):
                self._group([token for tokens in node.groups.values() for token in tokens])
            elif node.kind == "binary" and node.groups:
                self._match(node)
            elif node.kind == "call" and node.name in _ARGUMENTS:
                self._call(node)

    def carries(self, node: Node) -> bool:
        """Return whether the result has labels of DCGM's series, or of others that were given theirs."""
        return any(
            self._is_dcgm(part) if part.kind == "selector" else self._makes_label(part)
            for part in node.walk()
        )

    def _is_dcgm(self, selector: Node) -> bool:
        named = [m.value.text.strip("\"'`") for m in selector.matchers if _names_metric(m.label)]
        return any("DCGM" in name or self._names.is_dcgm(name) for name in (selector.name, *named))

    def _check_target(self, selector: Node) -> None:
        """Refuse a selector for the targets of dcgm-exporter, if the new series are of another exporter."""
        for label, _, value in selector.matchers if self._names.complete else ():
            fixed = value.text[1:-1] not in ("", ".*", ".+") and VARIABLE.search(value.text) is None
            if fixed and label is not None and _label(label) in _TARGET_LABELS:
                raise UntranslatableError(f"{_label(label)}={value.text} selects targets of dcgm-exporter")

    def _makes_label(self, node: Node) -> bool:
        if node.kind != "call" or node.name not in ("label_replace", "label_join"):
            return False
        token = node.parts[1].token if len(node.parts) > 1 else None
        return token is not None and token.text[1:-1] in self._names.labels

    def _group(self, tokens: Sequence[Token]) -> None:
        if any(_label(token) == _NAME for token in tokens):
            raise UntranslatableError("the names of the series, which change, are a label of the result")
        self._replace(tokens)

    def _match(self, node: Node) -> None:
        left, right = (self.carries(part) for part in node.parts)
        if not (left or right):
            return
        for keyword, tokens in node.groups.items():
            if keyword in ("group_left", "group_right"):
                # Those of the side with one series for several of the other.
                if right if keyword == "group_left" else left:
                    self._replace(tokens)
                continue
            renamed = [token for token in tokens if self._new(token) != _label(token)]
            other = node.parts[0 if right else 1]
            if keyword == "on" and renamed and not (left and right) and _has_series(other):
                raise UntranslatableError(
                    f"the label {_label(renamed[0])} is matched with series that are not of DCGM"
                )
            self._replace(tokens)

    def _call(self, node: Node) -> None:
        for first, last in _ARGUMENTS[node.name]:
            for number, part in enumerate(node.parts):
                in_range = first <= number <= (len(node.parts) if last is None else last)
                is_new = number == 1 and not node.name.startswith("sort")
                if in_range and part.token and (is_new or self.carries(node.parts[0])):
                    self._group([part.token])

    def _replace(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            new = self._new(token)
            if new != _label(token):
                self.replaced[_label(token)] = new
                quoted = token.kind == "string"
                self._edits.replace(token.start + quoted, token.end - quoted, new)

    def _new(self, token: Token) -> str:
        return self._names.label(_label(token))


def _label(token: Token) -> str:
    return token.text[1:-1] if token.kind == "string" else token.text


def _names_metric(label: Token | None) -> bool:
    return label is None or _label(label) == _NAME


def _has_series(node: Node) -> bool:
    return any(part.kind == "selector" for part in node.walk())
