"""A simulation of Grafana 10 to 13: texts and colours of values, and the links of cells."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# The classic palette has at least this many colours.
PALETTE = 20
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
        # Values of a step are merged into one, labelled by the limits of the step.
        limits = "-∞+" if len(_steps(config)) == 1 else "by thresholds"
        return Shown(limits, _coloured(config, value, 0))
    return shown(config, value)


def column(panel: Config, title: str) -> Config:
    """Return the configuration of a column of numbers in a table, with its overrides."""
    config = dict(panel["fieldConfig"]["defaults"])
    wanted = ({"id": "byType", "options": "number"}, {"id": "byName", "options": title})
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] in wanted:
            config |= {each["id"]: each["value"] for each in override["properties"]}
    return config


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
    """Return the result of the first mapping that fits; for Grafana a missing value is NaN too."""
    unknown = {"null": value is None, "nan": value is None or math.isnan(value)}
    unknown["null+nan"] = unknown["nan"]
    for mapping in mappings:
        options = mapping["options"]
        if mapping["type"] == "special" and unknown.get(options["match"]):
            return dict(options["result"])
        if mapping["type"] == "value" and value is not None and (result := options.get(f"{value:g}")):
            return dict(result)
    return {}


def _coloured(config: Config, value: float | None, place: int) -> str:
    colour = config.get("color") or {"mode": "thresholds"}
    if colour["mode"] == "fixed":
        return str(colour["fixedColor"])
    if colour["mode"] == "palette-classic":
        return f"palette {place % PALETTE}"
    if colour["mode"] == "palette-classic-by-name":
        # By the name of the field, which is "Value" for all series of Prometheus.
        return "palette Value"
    first, *others = _steps(config)
    known = value is not None and not math.isnan(value)
    passed = [step for step in others if known and value >= step["value"]]
    return str((passed or [first])[-1]["color"])


def _steps(config: Config) -> Sequence[Config]:
    steps: Sequence[Config] = (config.get("thresholds") or {}).get("steps") or _DEFAULT_STEPS
    return steps
