"""Selectors of devices, evaluated on one device as the scheduler does.

An error in CEL, such as an attribute that the device does not have, is not "false": it ends the attempt of
the scheduler for the pod. Errors of one side of ``&&`` and ``||`` do not matter if the other side decides.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from exporter.model.quantity import billionths
from exporter.waiting.cel_syntax import Call, Domain, Driver, Items, Literal, Node, Value, parse
from exporter.waiting.objects import OfferedDraDevice, Version

_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})(?:-([0-9A-Za-z.-]{1,99}))?(?:\+[0-9A-Za-z.-]{1,99})?"
)


class SelectorError(Exception):
    """CEL reports an error for this device, with the reason."""


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A quantity or version: values of one kind are ordered by rank."""

    kind: str
    rank: Any


def matches(expression: str, device: OfferedDraDevice) -> bool:
    """Return whether a device meets a selector.

    Raises NotSimpleError if the selector is not evaluated here, SelectorError if CEL reports an error.
    """
    return _truth(_evaluate(parse(expression), device))


def _evaluate(node: Node, device: OfferedDraDevice) -> Any:
    match node:
        case Literal(value):
            return value
        case Driver() | Domain() | Value():
            return _read(node, device)
        case Items(items):
            return [_evaluate(item, device) for item in items]
        case Call(("&&" | "||") as name, (left, right)):
            return _logical(name == "||", left, right, device)
        case Call(name, arguments):
            return _OPERATIONS[name](*(_evaluate(each, device) for each in arguments))


def _read(node: Driver | Domain | Value, device: OfferedDraDevice) -> Any:
    match node:
        case Driver():
            return device.name.driver
        case Domain():
            return _domain(device, node)
        case Value(domain, name):
            values = _domain(device, domain)
            if name not in values:
                raise SelectorError(f"{device.name.device} has no {domain.name}/{name}")
            return values[name]


def _domain(device: OfferedDraDevice, domain: Domain) -> dict[str, Any]:
    """Return the values of a domain by name; a domain without values is empty, as in the scheduler."""
    values: Mapping[str, Any] = device.attributes if domain.kind == "attributes" else device.capacity
    prefix = f"{domain.name}/"
    return {
        name.removeprefix(prefix): _converted(domain.kind, value)
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _converted(kind: str, value: Any) -> Any:
    if kind == "capacity":
        return _Ranked("quantity", value)
    return _semver(str(value)) if isinstance(value, Version) else value


def _logical(decisive: bool, left: Node, right: Node, device: OfferedDraDevice) -> bool:
    """Evaluate && or ||, whose decisive value is returned whatever the other side is, even an error."""
    error: SelectorError | None = None
    for side in (left, right):
        try:
            if _truth(_evaluate(side, device)) == decisive:
                return decisive
        except SelectorError as failure:
            error = error or failure
    if error is not None:
        raise error
    return not decisive


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SelectorError("a condition is not true or false")
    return value


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, _Ranked) or isinstance(right, _Ranked):
        return _order(left, right) == 0
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return type(left) is type(right) and bool(left == right)


def _order(left: Any, right: Any) -> int:
    """Return -1, 0 or 1: the order of two values of one kind."""
    if isinstance(left, _Ranked) and isinstance(right, _Ranked) and left.kind == right.kind:
        return int(left.rank > right.rank) - int(left.rank < right.rank)
    if type(left) is type(right) and isinstance(left, str | int):
        return int(left > right) - int(left < right)
    raise SelectorError("values of different types are compared")


def _ranked(left: Any, right: Any) -> int:
    if not isinstance(left, _Ranked):
        raise SelectorError("only quantities and versions are compared by methods")
    return _order(left, right)


def _in(item: Any, values: Any) -> bool:
    if isinstance(values, dict):
        return isinstance(item, str) and item in values
    if not isinstance(values, list):
        raise SelectorError("in is asked of neither a list nor a map")
    return any(_equal(item, each) for each in values)


def _quantity(text: Any) -> _Ranked:
    try:
        return _Ranked("quantity", billionths(_text(text)))
    except ValueError as error:
        raise SelectorError(str(error)) from None


def _semver(text: Any) -> _Ranked:
    """Return a version, whose build is not compared; one with a pre-release comes before that without."""
    match = _SEMVER.fullmatch(_text(text))
    if match is None:
        raise SelectorError("not a semantic version")
    parts = (match[4] or "").split(".") if match[4] else []
    numbered = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
    return _Ranked("semver", (int(match[1]), int(match[2]), int(match[3]), not parts, numbered))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise SelectorError("a text is expected")
    return value


def _ascii(text: Any, *, upper: bool) -> str:
    return "".join(
        (each.upper() if upper else each.lower()) if each.isascii() else each for each in _text(text)
    )


_OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "!": lambda value: not _truth(value),
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _order_plain(left, right) < 0,
    "<=": lambda left, right: _order_plain(left, right) <= 0,
    ">": lambda left, right: _order_plain(left, right) > 0,
    ">=": lambda left, right: _order_plain(left, right) >= 0,
    "in": _in,
    "quantity": _quantity,
    "semver": _semver,
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "contains": lambda text, part: _text(part) in _text(text),
    "lowerAscii": lambda text: _ascii(text, upper=False),
    "upperAscii": lambda text: _ascii(text, upper=True),
    "compareTo": _ranked,
    "isGreaterThan": lambda left, right: _ranked(left, right) > 0,
    "isLessThan": lambda left, right: _ranked(left, right) < 0,
}


def _order_plain(left: Any, right: Any) -> int:
    """Return the order of two texts, numbers or truth values; quantities and versions have methods."""
    if isinstance(left, _Ranked) or isinstance(right, _Ranked):
        raise SelectorError("quantities and versions are compared by methods")
    return _order(left, right)
