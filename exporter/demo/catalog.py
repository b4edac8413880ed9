"""The scenarios that come with the program, by name, and others by path."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from exporter.demo.scenario import Scenario, ScenarioError, load_file, parse

DEFAULT = "showcase"
_SUFFIX = ".json"


def names() -> tuple[str, ...]:
    """List the scenarios that ``load`` knows by name."""
    return tuple(sorted(entry.name.removesuffix(_SUFFIX) for entry in _folder().iterdir() if _is_one(entry)))


def scenarios() -> tuple[Scenario, ...]:
    """Load every scenario that there is, in the order of ``names``."""
    return tuple(map(load, names()))


def load(name: str = DEFAULT) -> Scenario:
    """Load a scenario by its name here, or from a file when ``name`` is a path (with a slash or .json).

    Raises ScenarioError, which for an unknown name lists those that there are.
    """
    if "/" in name or name.endswith(_SUFFIX):
        return load_file(Path(name))
    if name not in names():
        raise ScenarioError(
            f"there is no scenario {name!r}; choose one of {', '.join(names())}, or give the path of a file"
        )
    return parse((_folder() / f"{name}{_SUFFIX}").read_text("utf-8"), f"{name}{_SUFFIX}")


def _folder() -> Traversable:
    return files("exporter.demo") / "scenarios"


def _is_one(entry: Traversable) -> bool:
    return entry.name.endswith(_SUFFIX)
