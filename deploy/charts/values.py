"""Reading values.yaml: each value with its default and the comment above it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_MARK = "# -- "
_TYPES = {bool: "bool", int: "int", str: "string", list: "list", dict: "object"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart."""

    path: str
    """Its keys, joined by dots."""
    default: Any
    text: str
    """Its description, in one line."""

    @property
    def type(self) -> str:
        """Type of the default, as helm-docs names it."""
        return _TYPES[type(self.default)]


def read_values(path: Path) -> list[Value]:
    """Return all values in the order of the file. Raises ValueError for one without a description.

    A mapping with a description is one value; one without is a group of values.
    """
    text = path.read_text("utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        message = f"{path} must be a mapping"
        raise TypeError(message)
    return list(_walk(root, yaml.safe_load(text), text.splitlines(), ""))


def _walk(node: yaml.MappingNode, data: dict[str, Any], lines: list[str], prefix: str) -> Iterator[Value]:
    for key, child in node.value:
        path = f"{prefix}{key.value}"
        text = _description(lines, key.start_mark.line)
        if text:
            yield Value(path, data[key.value], text)
        elif isinstance(child, yaml.MappingNode):
            yield from _walk(child, data[key.value], lines, f"{path}.")
        else:
            message = f"values.yaml, line {key.start_mark.line + 1}: {path} needs a description above it"
            raise ValueError(message)


def _description(lines: list[str], below: int) -> str:
    """Return the comment right above a line, joined, if it begins with the mark of descriptions."""
    first = below
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    comment = [line.strip() for line in lines[first:below]]
    if not comment or not comment[0].startswith(_MARK):
        return ""
    return " ".join(line.removeprefix(_MARK).removeprefix("# ") for line in comment)
