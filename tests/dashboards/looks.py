"""What Grafana makes of values: their words, their colours, and where a click on a cell leads.

The rules are those of Grafana 10 to 13: its display processor, its palettes, its state timeline, its table.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

PALETTE = 20
"""The classic palette has at least this many colours."""
_DEFAULT_STEPS = ({"value": None, "color": "green"}, {"value": 80, "color": "red"})
_FIELD = re.compile(r"\$\{__data\.fields\.(\w+)\}")
Config = Mapping[str, Any]


class Shown(NamedTuple):
    """The text and the colour of a value."""

    text: str
    colour: str


def shown(config: Config, value: float | None, place: int = 0) -> Shown:
    """Return how a value is shown by its field's configuration; ``place`` counts the panel's fields."""
    mapped = _mapped(config.get("mappings") or (), value)
    text = mapped.get("text", "" if value is None else f"{value:g}")
    return Shown(text or config.get("noValue", ""), mapped.get("color") or _coloured(config, value, place))


def band(panel: Config, value: float) -> Shown:
    """Return how a value is shown in a state timeline."""
    config = panel["fieldConfig"]["defaults"]
    if panel["options"].get("mergeValues", True) and config["color"]["mode"] == "thresholds":
        # Values of a step are merged into one, which is labelled by the step's limits, not by a mapping.
        limits = "-∞+" if len(_steps(config)) == 1 else "by thresholds"
        return Shown(limits, _coloured(config, value, 0))
    return shown(config, value)


def column(panel: Config, title: str) -> Config:
    """Return the configuration of a column of numbers in a table, with its overrides."""
    found = dict(panel["fieldConfig"]["defaults"])
    wanted = ({"id": "byType", "options": "number"}, {"id": "byName", "options": title})
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] in wanted:
            found |= {each["id"]: each["value"] for each in override["properties"]}
    return found


def links(panel: Config) -> Iterator[str]:
    """Yield the URLs of the columns that have links, with their variables."""
    for override in panel["fieldConfig"]["overrides"]:
        yield from (each["value"][0]["url"] for each in override["properties"] if each["id"] == "links")


def link(panel: Config, url: str, row: Mapping[str, str]) -> str:
    """Return the URL of a cell's link; a field without a value is replaced by the text that it shows."""
    (ordered,) = (step for step in panel["transformations"] if step["id"] == "organize")
    labels = {title: name for name, title in ordered["options"]["renameByName"].items()}
    return _FIELD.sub(lambda use: row.get(labels[use[1]]) or column(panel, use[1]).get("noValue", ""), url)


def _mapped(mappings: Sequence[Config], value: float | None) -> Mapping[str, str]:
    """Return the result of the first mapping that fits; a missing value is NaN to Grafana, too."""
    unknown = {"null": value is None, "nan": value is None or math.isnan(value)}
    unknown["null+nan"] = unknown["nan"]
    for mapping in mappings:
        options = mapping["options"]
        if mapping["type"] == "special" and unknown.get(options["match"]):
            return dict(options["result"])
        if mapping["type"] == "value" and value is not None and (found := options.get(f"{value:g}")):
            return dict(found)
    return {}


def _coloured(config: Config, value: float | None, place: int) -> str:
    colour = config.get("color") or {"mode": "thresholds"}
    if colour["mode"] == "fixed":
        return str(colour["fixedColor"])
    if colour["mode"] == "palette-classic":
        return f"palette {place % PALETTE}"
    if colour["mode"] == "palette-classic-by-name":
        # It is the field's name that counts, and fields of Prometheus are all called "Value".
        return "palette Value"
    first, *others = _steps(config)
    known = value is not None and not math.isnan(value)
    passed = [step for step in others if known and value >= step["value"]]
    return str((passed or [first])[-1]["color"])


def _steps(config: Config) -> Sequence[Config]:
    found: Sequence[Config] = (config.get("thresholds") or {}).get("steps") or _DEFAULT_STEPS
    return found
