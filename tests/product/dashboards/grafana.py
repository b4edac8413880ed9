"""A simulation of Grafana 10: the panels, variables and queries of a dashboard."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.together.end_to_end.programs import Prometheus

ALL = "$__all"
# Seconds, as in the settings of the data source.
SCRAPE_INTERVAL = 30

_USE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]")
_LABEL_VALUES = re.compile(r"^label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*$")
_QUERY_RESULT = re.compile(r"^query_result\((.+)\)\s*$")
_SPECIAL = re.compile(r"[$^*{}\[\]+?.()|]")
Labels = Mapping[str, str]


class Window(NamedTuple):
    """The time range of a dashboard."""

    end: float  # Unix time
    length: int = 600  # seconds
    step: int = 60  # seconds

    @property
    def values(self) -> dict[str, str]:
        """The values of Grafana's own variables."""
        rate = max(self.step + SCRAPE_INTERVAL, 4 * SCRAPE_INTERVAL)
        return {
            "__interval": f"{self.step}s",
            "__interval_ms": str(self.step * 1000),
            "__rate_interval": f"{rate}s",
            "__range": f"{self.length}s",
            "__range_s": str(self.length),
            "__range_ms": str(self.length * 1000),
        }


class Series(NamedTuple):
    """A series of an answer."""

    labels: Labels
    values: Mapping[float, float]  # by Unix time


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a dashboard with the chosen values."""

    made: Mapping[str, Mapping[str, Any]]
    window: Window
    chosen: dict[str, list[str]] = field(default_factory=dict)  # ALL alone means all that are offered
    offered: dict[str, list[str]] = field(default_factory=dict)

    def expand(self, text: str) -> str:
        """Return a text with its variables replaced; unknown names, as the $1 of label_replace, stay."""
        return _USE.sub(self._replaced, text)

    def _replaced(self, use: re.Match[str]) -> str:
        name = use[1] or use[2] or use[4]
        if name.startswith("__"):
            return self.window.values[name]
        if name not in self.made:
            return use[0]
        variable, values = self.made[name], self.chosen[name]
        if values == [ALL]:
            if variable.get("allValue"):
                # Not escaped.
                return self.expand(variable["allValue"])
            values = self.offered[name]
        return _written(
            values, use[3] or use[5], plain=not (variable.get("multi") or variable.get("includeAll"))
        )


def _written(values: Sequence[str], form: str | None, *, plain: bool) -> str:
    if form == "raw":
        return ",".join(values)
    if form == "pipe":
        return "|".join(values)
    if form == "regex":
        values = [re.sub(r"[\\^$*+?.()|\[\]{}\-/]", r"\\\g<0>", value) for value in values]
    elif form is None and plain:
        return ",".join(values).replace("\\", "\\\\").replace("'", "\\\\'")
    elif form is None:
        # Twice, since the string of PromQL is unescaped once.
        values = [_SPECIAL.sub(r"\\\\\g<0>", value.replace("\\", "\\\\\\\\")) for value in values]
    else:
        raise KeyError(form)
    return values[0] if len(values) == 1 else f"({'|'.join(values)})"


def choose(
    board: Mapping[str, Any], server: Prometheus, window: Window, chosen: Mapping[str, Sequence[str]]
) -> Variables:
    """Return the variables, filled in their order as Grafana does when it loads a dashboard.

    A variable that is not ``chosen`` has the current value of the dashboard, else the first that is offered.
    """
    listed = board["templating"]["list"]
    variables = Variables({variable["name"]: variable for variable in listed}, window)
    for variable in listed:
        name = variable["name"]
        offered = _offered(variable, variables, server)
        variables.offered[name] = offered
        current = variable.get("current", {}).get("value", "")
        wanted = list(chosen.get(name, [current] if isinstance(current, str) else current))
        if wanted == [ALL]:
            variables.chosen[name] = wanted if variable.get("includeAll") else offered
        else:
            # An empty text if nothing is offered.
            variables.chosen[name] = (wanted if wanted not in ([], [""]) else offered[:1]) or [""]
    return variables


def _offered(variable: Mapping[str, Any], variables: Variables, server: Prometheus) -> list[str]:
    if variable["type"] == "datasource":
        return ["prometheus"]
    if variable["type"] in ("textbox", "constant"):
        return [variable["query"]]
    if variable["type"] == "custom":
        return [each.split(" : ")[-1].strip() for each in variable["query"].split(",")]
    texts = _values_of(variables.expand(variable["query"]), server, variables.window)
    return list(dict.fromkeys(_picked(texts, variable.get("regex", ""))))


def _values_of(query: str, server: Prometheus, window: Window) -> list[str]:
    span = {"start": str(window.end - window.length), "end": str(window.end)}
    if match := _LABEL_VALUES.match(query):
        selector = {} if match[1] is None else {"match[]": match[1]}
        values: list[str] = server.api(f"label/{match[2]}/values", **selector, **span)
        return values
    if match := _QUERY_RESULT.match(query):
        rows = server.api("query", query=match[1], time=str(window.end))["result"]
        return [_row(each["metric"], *each["value"]) for each in rows]
    raise KeyError(query)


def _row(labels: dict[str, str], at: float, value: str) -> str:
    name = labels.pop("__name__", "")
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value} {at * 1000:.0f}"


def _picked(texts: Sequence[str], written: str) -> Iterator[str]:
    if not written:
        yield from texts
        return
    pattern = re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", written.strip("/")))
    for text in texts:
        if match := pattern.search(text):
            groups = match.groupdict()
            yield groups.get("value") or groups.get("text") or (match[1] if pattern.groups else text)


def panels(board: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the panels that are not rows, those inside of collapsed rows too."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def ask(target: Mapping[str, Any], variables: Variables, server: Prometheus) -> list[Series]:
    """Return the answer to a query as its panel sends it: for the end of the window, or its range."""
    window, expr = variables.window, variables.expand(target["expr"])
    if target.get("instant"):
        result = server.api("query", query=expr, time=str(window.end))["result"]
        return [Series(each["metric"], _values([each["value"]])) for each in result]
    span = {"start": str(window.end - window.length), "end": str(window.end), "step": str(window.step)}
    result = server.api("query_range", query=expr, **span)["result"]
    return [Series(each["metric"], _values(each["values"])) for each in result]


def _values(samples: Sequence[tuple[float, str]]) -> dict[float, float]:
    return {at: float(value) for at, value in samples}
