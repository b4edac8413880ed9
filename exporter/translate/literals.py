"""The numbers of an expression: their values, and those by which it is multiplied or divided."""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from exporter.translate.tree import Node

_DECIMAL = re.compile(r"[-+]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][-+]?[0-9]{1,2})?")
_LARGEST_POWER = 64
# Larger results are in no real expression, and take long to compute.
_MOST_BITS = 2048


class Factor(NamedTuple):
    """A number that the value of an expression is proportional to, or inversely."""

    product: Node  # which has it as one of its two parts
    part: Node
    value: Fraction
    divides: bool

    @property
    def removable(self) -> bool:
        """Return whether the rest of the product makes sense without it."""
        return self.product.name == "*" or self.part is self.product.parts[1]


def number(node: Node) -> Fraction | None:
    """Return the value of an expression that is made of numbers only; None for others."""
    if node.kind == "number":
        return _value(node.name)
    parts = [number(part) for part in node.parts] if node.kind in ("paren", "unary", "binary") else []
    if node.kind == "binary" and len(parts) == 2 and parts[0] is not None and parts[1] is not None:
        return _computed(parts[0], node.name, parts[1])
    if len(parts) == 1 and parts[0] is not None:
        return -parts[0] if node.name == "-" else parts[0]
    return None


def factors(node: Node, *, divides: bool = False) -> Iterator[Factor]:
    """Yield the numbers of a product, from the first to the last."""
    if node.kind == "paren":
        yield from factors(node.parts[0], divides=divides)
    if node.kind != "binary" or node.name not in ("*", "/"):
        return
    for part in node.parts:
        inverse = divides != (node.name == "/" and part is node.parts[1])
        value = number(part)
        if value is None:
            yield from factors(part, divides=inverse)
        elif value > 0:
            yield Factor(node, part, value, inverse)


def _value(text: str) -> Fraction | None:
    return Fraction(text) if _DECIMAL.fullmatch(text) else None


def _computed(left: Fraction, operator: str, right: Fraction) -> Fraction | None:
    if max(abs(part) for value in (left, right) for part in value.as_integer_ratio()) >= 1 << _MOST_BITS:
        return None
    if operator == "^" and right.denominator == 1 and 0 <= right <= _LARGEST_POWER:
        return left**right.numerator
    if operator == "/" and right:
        return left / right
    return {"*": left * right, "+": left + right, "-": left - right}.get(operator)
