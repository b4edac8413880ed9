"""Parts of an object that is parsed JSON, each of the type that it must have or empty."""

from collections.abc import Mapping
from typing import Any


def mapping(parent: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at a path, {} where there is none."""
    for name in path:
        found = parent.get(name)
        if not isinstance(found, dict):
            return {}
        parent = found
    return parent


def text(parent: Mapping[str, Any], name: str) -> str:
    """Return the text of a name, "" where there is none."""
    found = parent.get(name)
    return found if isinstance(found, str) else ""


def texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the texts of an object by name; other values are left out."""
    return {key: value for key, value in mapping(parent, name).items() if isinstance(value, str)}


def objects(parent: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list; other values are left out."""
    found = parent.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
