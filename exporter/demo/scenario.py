"""A scenario: everything about a node, in one JSON document.

``parse`` and ``load_file`` give a complete ``Scenario`` (see ``exporter.demo.schema`` for the fields and
``exporter.demo.expand`` for the shorthands); ``dump`` writes one so that it loads again as the same.
"""

import json
from pathlib import Path
from typing import NoReturn

from exporter.demo.check import check
from exporter.demo.codec import ScenarioError, decode, encode
from exporter.demo.expand import expand
from exporter.demo.schema import Scenario

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
    """Write a scenario as JSON. ``parse`` of it gives an equal one."""
    return json.dumps(encode(scenario), indent=2) + "\n"


def _no_number(constant: str) -> NoReturn:
    raise ScenarioError(f"{constant} is no number of JSON")
