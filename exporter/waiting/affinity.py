"""Conditions on labels and names, as the scheduler evaluates them: node selectors, affinity, label selectors.

A condition that the API server accepts and the scheduler cannot evaluate, such as ``Gt`` with text, makes its
whole term match nothing. Semantics:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from exporter.waiting.objects import ClusterNode, NodeTerm, Requirement

NAME: Final = "metadata.name"
_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE: Final = re.compile(rf"(?:{_WORD})?")
_LABEL_KEY: Final = re.compile(rf"(?:[a-z0-9.-]{{1,253}}/)?{_WORD}")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")


def selected(selector: Mapping[str, str], node: ClusterNode) -> bool:
    """Return whether a node has all labels of a node selector."""
    return all(node.labels.get(key) == value for key, value in selector.items())


def any_term_matches(terms: Iterable[NodeTerm], node: ClusterNode) -> bool:
    """Return whether one of the terms matches a node."""
    return any(_term_matches(term, node) for term in terms)


def asked_labels(selector: Mapping[str, str], terms: tuple[NodeTerm, ...] | None) -> tuple[str, ...]:
    """Return the names of all labels that a node selector and terms ask for."""
    names = {each.key for term in terms or () for each in term.labels}
    return tuple(sorted(names.union(selector)))


def labels_match(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet all conditions; a condition that cannot be evaluated is not met."""
    return all(_valid(each) and _met(each, labels) for each in requirements)


def named_nodes(terms: tuple[NodeTerm, ...] | None) -> frozenset[str] | None:
    """Return the nodes that all terms name by ``metadata.name``; None if some term names none.

    The scheduler looks at no others. An empty set: the names of each term contradict each other.
    """
    names: frozenset[str] = frozenset()
    for term in terms or ():
        lists = [set(each.values) for each in term.fields if each.key == NAME and each.operator == "In"]
        if not lists:
            return None
        names |= set.intersection(*lists)
    return names if terms else None


def _term_matches(term: NodeTerm, node: ClusterNode) -> bool:
    if not term.labels and not term.fields:
        return False
    return labels_match(term.labels, node.labels) and all(_field_met(each, node) for each in term.fields)


def _valid(condition: Requirement) -> bool:
    """Return whether the scheduler can evaluate a condition on a label."""
    values = condition.values
    if not _LABEL_KEY.fullmatch(condition.key) or not all(map(_LABEL_VALUE.fullmatch, values)):
        return False
    match condition.operator:
        case "In" | "NotIn":
            return bool(values)
        case "Exists" | "DoesNotExist":
            return not values
        case "Gt" | "Lt":
            return len(values) == 1 and integer(values[0]) is not None
    return False


def _met(condition: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(condition.key), condition.values
    match condition.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, limit = integer(value or ""), integer(values[0])
    if number is None or limit is None:
        return False
    return number > limit if condition.operator == "Gt" else number < limit


def _field_met(condition: Requirement, node: ClusterNode) -> bool:
    """Return whether a node meets a condition on a field, which has exactly one value."""
    if len(condition.values) != 1 or condition.operator not in {"In", "NotIn"}:
        return False
    value = node.name if condition.key == NAME else ""
    return (value == condition.values[0]) == (condition.operator == "In")


def integer(text: str) -> int | None:
    """Return the number of a text as the scheduler parses labels; None if it is not one of 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
