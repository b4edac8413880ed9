"""Reading values.yaml: each value with its default, and with what the comment above it says."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_MARK = "# -- "
_TYPES = {bool: "bool", int: "int", str: "string", list: "list", dict: "object"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value that can be set. ``path`` has dots between keys, ``text`` is its description, in one line."""

    path: str
    default: Any
    text: str

    @property
    def type(self) -> str:
        """What the default is, in the words of helm-docs."""
        return _TYPES[type(self.default)]


def read_values(path: Path) -> list[Value]:
    """Read all values in the order of the file. Raises ValueError for one without a description.

    What has a description is one value, be it a mapping; a mapping without is a group of others.
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
    """Join the comment right above a line, if it begins as descriptions do."""
    first = below
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    comment = [line.strip() for line in lines[first:below]]
    if not comment or not comment[0].startswith(_MARK):
        return ""
    return " ".join(line.removeprefix(_MARK).removeprefix("# ") for line in comment)
