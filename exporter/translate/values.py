"""Keeps the value of an expression while the units of its series change.

Every part has a factor: its new value is the old one times that. A factor goes outward through whatever is
proportional to its operand, cancels where two of the same unit are divided, and is undone where it would
change a result: ``avg(UTIL) > 80`` becomes ``avg(UTIL_RATIO) * 100 > 80``.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from exporter.translate.edits import Edits
from exporter.translate.literals import Factor, factors, number
from exporter.translate.metrics import MIXED, Metrics
from exporter.translate.names import Series, UntranslatableError
from exporter.translate.tree import Node

Exactness: TypeAlias = Literal["", "sign", "zero", "equal", "step"]
"""Why the old unit's rounding matters: whether a value is above 0, is 0, is equal, or how it is rounded."""

_ONE = Fraction(1)
_COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_LOOSE: Final = _COMPARISONS | {"+", "-", "and", "or", "unless"}
"""Operators that bind less than a multiplication."""

# Functions and aggregations whose result is proportional to their operand.
_ORDERED = frozenset({"min_over_time", "max_over_time", "last_over_time", "first_over_time"})
_LINEAR = _ORDERED | frozenset(
    {"rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "avg_over_time"}
    | {"sum_over_time", "quantile_over_time", "stddev_over_time", "mad_over_time", "holt_winters"}
    | {"double_exponential_smoothing"}
)
_PASSING = frozenset({"abs", "scalar", "vector", "label_replace", "label_join"})
_LINEAR_AGGREGATES = frozenset({"sum", "avg", "min", "max", "stddev", "quantile"})
_ROUNDING_AGGREGATES = frozenset({"sum", "avg", "min", "max"})
# Those that count series or samples: their result does not depend on the values.
_COUNTING = frozenset(
    {"count_over_time", "present_over_time", "absent", "absent_over_time", "timestamp", "count", "group"}
    | {"ts_of_min_over_time", "ts_of_max_over_time", "ts_of_last_over_time", "ts_of_first_over_time"}
)
_STEPS = frozenset({"changes", "resets"})


class Values:
    """Replaces the series of an expression, and undoes the changes of their units."""

    def __init__(self, text: str, metrics: Metrics, edits: Edits) -> None:
        self._text = text
        self._metrics = metrics
        self._edits = edits
        self._series: dict[Node, Series] = {}
        self._gone: set[Node] = set()
        self._kinds: Mapping[str, Callable[[Node, Exactness], Fraction]] = {
            "selector": self._selector,
            "call": self._call,
            "aggregate": self._aggregate,
            "binary": self._binary,
        }

    def keep(self, node: Node, exact: Exactness = "", *, tight: bool = False) -> None:
        """Replace the series of a part so that its value stays; raises UntranslatableError.

        ``tight``: whether what is around it binds as much as a multiplication.
        """
        self._undo(node, self.factor(node, exact), tight=tight)

    def factor(self, node: Node, exact: Exactness = "") -> Fraction:
        """Replace the series of a part, and return its factor; 0 for several units."""
        if node.kind in self._kinds:
            return self._kinds[node.kind](node, exact)
        if node.kind in ("range", "subquery", "unary", "paren"):
            return self.factor(node.parts[0], exact if node.kind == "paren" else "")
        return _ONE

    def _selector(self, node: Node, exact: Exactness) -> Fraction:
        series = self._metrics.rename(node)
        if series is None:
            return _ONE
        self._series[node] = series
        return self._round(node, series.factor, exact)

    def _round(self, node: Node, factor: Fraction, exact: Exactness) -> Fraction:
        """Give a part the rounding of the old unit if that matters; return its factor."""
        steps = {each.steps for each in self._of(node)}
        if exact and "finer" in steps:
            name = "floor"
        # A percentage that was divided by 100 is not always the same after a multiplication by 100.
        elif exact in ("equal", "step") and factor < 1:
            name = "round"
        else:
            return factor
        self._edits.surround(node.start, node.end, f"{name}(", f"{_division(factor)})")
        return _ONE

    def _of(self, *nodes: Node) -> Iterator[Series]:
        return (self._series[part] for node in nodes for part in node.walk() if part in self._series)

    def _call(self, node: Node, exact: Exactness) -> Fraction:
        if node.name in _COUNTING | _STEPS:
            return self._counted(node)
        if node.name == "stdvar_over_time":
            return self.factor(node.parts[0]) ** 2
        if node.name not in _LINEAR | _PASSING:
            for part in node.parts:
                self._argument(node, part)
            return _ONE
        return self._proportional(node, exact)

    def _counted(self, node: Node) -> Fraction:
        self.factor(node.parts[0])
        if node.name in _STEPS and any(each.steps != "same" for each in self._of(node)):
            raise UntranslatableError(f"{node.name}() counts other steps in the new unit")
        return _ONE

    def _proportional(self, node: Node, exact: Exactness) -> Fraction:
        operand = _operand(node)
        for part in node.parts:
            if part is not operand:
                self.keep(part)
        if node.name in _PASSING:
            return self.factor(operand, exact)
        factor = self.factor(operand)
        if node.name in _ORDERED:
            return self._round(node, factor, exact)
        if exact in ("zero", "equal") and any(each.steps == "finer" for each in self._of(node)):
            raise UntranslatableError(
                f"{node.name}() of values that the old unit rounded is compared with an exact number"
            )
        return factor

    def _argument(self, call: Node, part: Node) -> None:
        """Keep the value of an argument of a function that is not proportional to it."""
        inner = part
        while inner.kind == "paren":
            inner = inner.parts[0]
        if inner.kind == "subquery":
            self.keep(inner.parts[0], tight=True)
        elif inner.kind != "range":
            self.keep(part, "step" if call.name in ("ceil", "floor") else "")
        elif self.factor(inner) != 1:
            raise UntranslatableError(f"{call.name}() is not proportional to its values")

    def _aggregate(self, node: Node, exact: Exactness) -> Fraction:
        operand = node.parts[-1]
        for part in node.parts[:-1]:
            self.keep(part)
        if node.name in _COUNTING:
            self.factor(operand)
            return _ONE
        if node.name in _LINEAR_AGGREGATES:
            return self.factor(operand, exact if node.name in _ROUNDING_AGGREGATES else "")
        self.keep(operand, "equal" if node.name == "count_values" else exact)
        return _ONE

    def _binary(self, node: Node, exact: Exactness) -> Fraction:
        left, right = node.parts
        if node.name in ("*", "/"):
            return self._product(node, exact)
        if node.name in ("and", "unless"):
            self.keep(left, exact)
            self.factor(right)
            return _ONE
        if node.name in _COMPARISONS:
            exact = self._exactness(node)
        elif node.name == "%":
            exact = "step"
        if node.name in ("or", "^"):
            factors_of = [_ONE, _ONE]
            for part in node.parts:
                self.keep(part, exact, tight=node.name == "^")
        else:
            factors_of = [self.factor(part, exact) for part in node.parts]
        if factors_of[0] == factors_of[1] != MIXED.factor:
            return _ONE if node.returns_bool or node.name == "atan2" else factors_of[0]
        tight = node.name in ("%", "atan2")
        self._undo(left, factors_of[0], tight=tight)
        self._undo(right, factors_of[1], tight=tight)
        return _ONE

    def _exactness(self, comparison: Node) -> Exactness:
        with_zero = 0 in [number(part) for part in comparison.parts]
        if comparison.name in ("==", "!="):
            return "zero" if with_zero else "equal"
        return "sign" if with_zero else ""

    def _product(self, node: Node, exact: Exactness) -> Fraction:
        left, right = node.parts
        with_number = number(left) is not None or number(right) is not None
        first, second = (self.factor(part, exact if with_number else "") for part in node.parts)
        if MIXED.factor in (first, second):
            return MIXED.factor
        factor = first * second if node.name == "*" else first / second
        return self._cancelled(node, factor)

    def _cancelled(self, node: Node, factor: Fraction) -> Fraction:
        """Remove the numbers of a product if they do no more than convert the old unit into the new one."""
        found = [each for each in factors(node) if each.part not in self._gone]
        product = _ONE
        for each in found:
            product *= 1 / each.value if each.divides else each.value
        if factor == 1 or product != factor or not all(each.removable for each in found):
            return factor
        # From the number to the other operand.
        spans = [
            (left.end, right.end) if each.part is right else (left.start, right.start)
            for each in found
            for left, right in [each.product.parts]
        ]
        if any("#" in self._text[start:end] for start, end in spans):  # a comment, which would be lost
            return factor
        for start, end in spans:
            self._edits.replace(start, end, "")
        self._gone.update(each.part for each in found)
        return _ONE

    def _undo(self, node: Node, factor: Fraction, *, tight: bool = False) -> None:
        """Put the opposite of a factor around a part, or into a number of it."""
        if factor == 1:
            return
        if factor == MIXED.factor:
            raise UntranslatableError("several names whose units change are selected at once")
        if node.kind in ("range", "subquery"):
            raise UntranslatableError("the values of a range cannot be converted")
        if self._absorbed(node, factor):
            return
        before, after = "", _division(factor)
        if node.kind == "binary" and node.name in _LOOSE:
            before, after = "(", f"){after}"
        if tight:
            before, after = f"({before}", f"{after})"
        self._edits.surround(node.start, node.end, before, after)

    def _absorbed(self, node: Node, factor: Fraction) -> bool:
        """Change a number of a product instead, if both are round."""
        if str(max(factor, 1 / factor)).strip("0") != "1":
            return False
        for each in reversed([*self._numbers(node)]):
            value = each.value * factor if each.divides else each.value / factor
            if each.part not in self._gone and value.denominator == 1 and 1 < value < 10**15:
                self._edits.replace(each.part.start, each.part.end, str(value))
                self._gone.add(each.part)
                return True
        return False

    def _numbers(self, node: Node) -> Iterator[Factor]:
        """Yield the numbers that a part is proportional to, also in what its functions are applied to."""
        while True:
            if node.kind == "call" and node.name in _LINEAR | _PASSING:
                node = _operand(node)
            elif node.kind == "aggregate" and node.name in _LINEAR_AGGREGATES:
                node = node.parts[-1]
            elif node.kind in ("paren", "subquery") and number(node) is None:
                node = node.parts[0]
            else:
                break
        yield from factors(node)


def _operand(call: Node) -> Node:
    """Return the argument of a function that its result is proportional to."""
    return call.parts[1 if call.name == "quantile_over_time" else 0]


def _division(factor: Fraction) -> str:
    """Return the text that divides by a factor."""
    text = ""
    for operator, value in (("*", factor.denominator), ("/", factor.numerator)):
        parts = [value]
        while parts[0] > 1024 and parts[0] % 1024 == 0 and parts[0] & (parts[0] - 1) == 0:
            parts = [parts[0] // 1024, 1024, *parts[1:]]
        text += "".join(f" {operator} {part}" for part in parts if part != 1)
    return text
