"""A scenario: everything about a node, in one JSON document.

``parse`` and ``load_file`` return a complete ``Scenario`` (fields: ``schema.py``, shorthands: ``expand.py``).
``dump`` writes one so that it loads again as the same. ``load`` finds those of the program by name.
"""

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NoReturn

from exporter.demo.scenario.check import check
from exporter.demo.scenario.codec import ScenarioError, decode, encode
from exporter.demo.scenario.expand import expand
from exporter.demo.scenario.schema import Scenario

__all__ = ["Scenario", "ScenarioError", "dump", "load_file", "parse"]


def parse(text: str, source: str = "scenario") -> Scenario:
    """Read a scenario; raise ScenarioError that names ``source`` and the path of what is wrong in it."""
    try:
        scenario = expand(decode(Scenario, json.loads(text, parse_constant=_no_number)))
        check(scenario)
    except json.JSONDecodeError as error:
        raise ScenarioError(
            f"{source}: line {error.lineno}, column {error.colno}: is no JSON: {error.msg}"
        ) from None
    except ScenarioError as error:
        raise ScenarioError(f"{source}: {error}") from None
    except (RecursionError, ValueError) as error:
        raise ScenarioError(f"{source}: cannot be read as JSON: {error}") from None
    return scenario


def load_file(path: Path) -> Scenario:
    """Read a scenario from a file; raise ScenarioError also when the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        raise ScenarioError(f"{path}: {reason}") from None
    return parse(text, str(path))


def dump(scenario: Scenario) -> str:
    """Return a scenario as JSON. ``parse`` of it gives an equal one."""
    return json.dumps(encode(scenario), indent=2) + "\n"


def _no_number(constant: str) -> NoReturn:
    raise ScenarioError(f"{constant} is no number of JSON")


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
