"""Reading and writing of scenarios: everything about a node, in one JSON document.

``parse`` and ``load_file`` return a complete ``Scenario`` (fields: ``schema.py``, shorthands: ``expand.py``),
and so does ``load``, by the name of a scenario that comes with the program.
"""

import json
from importlib import resources
from pathlib import Path
from typing import NoReturn

from exporter.demo.scenario.check import check
from exporter.demo.scenario.codec import ScenarioError, decode, encode
from exporter.demo.scenario.expand import expand
from exporter.demo.scenario.schema import Scenario

__all__ = ["Scenario", "ScenarioError", "dump", "load_file", "parse"]

DEFAULT = "showcase"
_FOLDER, _SUFFIX = resources.files("exporter.demo") / "scenarios", ".json"


def parse(text: str, source: str = "scenario") -> Scenario:
    """Return the scenario in a JSON text; raise ScenarioError with ``source`` and the path of the mistake."""
    try:
        scenario = expand(decode(Scenario, json.loads(text, parse_constant=_refuse_constant)))
        check(scenario)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ScenarioError(f"{source}: {place}: is not JSON: {error.msg}") from None
    except ScenarioError as error:
        raise ScenarioError(f"{source}: {error}") from None
    except (RecursionError, ValueError) as error:
        raise ScenarioError(f"{source}: cannot be read as JSON: {error}") from None
    return scenario


def load_file(path: Path) -> Scenario:
    """Return the scenario in a file; raise ScenarioError also if the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ScenarioError(f"{path}: {reason}") from None
    return parse(text, str(path))


def dump(scenario: Scenario) -> str:
    """Return a scenario as JSON, which ``parse`` reads as an equal one."""
    return json.dumps(encode(scenario), indent=2) + "\n"


def _refuse_constant(constant: str) -> NoReturn:
    raise ScenarioError(f"{constant} is not a number in JSON")


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows."""
    files = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX)))


def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios that come with the program, in the order of ``names``."""
    return tuple(map(load, names()))


def load(name: str = DEFAULT) -> Scenario:
    """Return a scenario by name, or from a file if ``name`` is a path (with a slash or .json).

    Raises ScenarioError, which for an unknown name lists the known ones.
    """
    if "/" in name or name.endswith(_SUFFIX):
        return load_file(Path(name))
    if name not in names():
        raise ScenarioError(
            f"there is no scenario {name!r}; choose one of {', '.join(names())}, or give the path of a file"
        )
    return parse((_FOLDER / f"{name}{_SUFFIX}").read_text("utf-8"), f"{name}{_SUFFIX}")
