"""What the panels of a dashboard are answered by the Prometheus of a scene."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dashboards.write import board_files
from tests.dashboards.expressions import parts
from tests.dashboards.grafana import ALL, Series, Variables, Window, ask, choose, panels
from tests.dashboards.scene import IDLE_SECONDS, Scene

FILES = {
    path.removeprefix("json/gpuslice-").removesuffix(".json"): json.loads(text)
    for path, text in board_files().items()
}
EVERYTHING = {"node": [ALL], "idle": [str(IDLE_SECONDS)]}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
Labels: TypeAlias = frozenset[tuple[str, str]]
_RECORD = re.compile(r"\b[a-z]+:gpuslice_\w+:\w+")
_MINUTES = ":1m]"
_OF_TARGET = {"cluster", "job", "instance"}
_FEWEST_LISTED = 20


class Answer(NamedTuple):
    """What a query of a panel was answered."""

    panel: Mapping[str, Any]
    target: Mapping[str, Any]
    series: Sequence[Series]

    @property
    def called(self) -> str:
        """The panel and the query, for whoever reads that it failed."""
        return f"{self.panel['title']} {self.target['refId']}"

    @property
    def labels(self) -> frozenset[str]:
        """The labels that its series have, and those that it keeps of others."""
        found = parts(self.target["expr"])
        return found.labels | found.made | {label for series in self.series for label in series.labels}

    @property
    def found(self) -> list[Series]:
        """Its series without a row that says "none" or "unknown"."""
        return [series for series in self.series if not says_none(series)]

    @property
    def rows(self) -> frozenset[Labels]:
        """The labels of each series that was found."""
        return frozenset(frozenset(series.labels.items()) for series in self.found)

    @property
    def lines(self) -> list[str]:
        """What its series are called by their legend; none in a table, or where Grafana chooses."""
        legend = self.target.get("legendFormat", "__auto")
        if self.panel["type"] == "table" or legend == "__auto":
            return []
        return sorted(_called(legend, each.labels) for each in self.series)

    def untargeted(self) -> object:
        """Give the values by labels other than those of the target; where only the largest are listed, alone.

        Which of several that are equally large is among these is left to chance.
        """
        if "topk" in self.target["expr"] and len(self.series) >= _FEWEST_LISTED:
            return sorted(sample for each in self.series for sample in _rounded(each))
        return {
            frozenset(pair for pair in each.labels.items() if pair[0] not in _OF_TARGET): _rounded(each)
            for each in self.series
        }


class BothWays(NamedTuple):
    """What a query of a panel is answered where the rules are loaded, and where they are not."""

    called: str
    expr: str
    recorded: dict[Labels, float]
    reckoned: dict[Labels, float]

    @property
    def by_minutes(self) -> bool:
        """Whether what was recorded is added up minute by minute."""
        return _MINUTES in self.expr


def says_none(series: Series) -> bool:
    """Return whether a row is one that says "none" or "unknown": one label, and NaN."""
    return len(series.labels) <= 1 and all(map(math.isnan, series.values.values()))


def choice(name: str, seen: Scene, chosen: Mapping[str, Sequence[str]]) -> Variables:
    """Open a dashboard with some variables chosen, all nodes, and short idleness."""
    return choose(FILES[name], seen.server, Window(seen.later), EVERYTHING | chosen)


def drawn(name: str, seen: Scene, variables: Variables) -> Iterator[Answer]:
    """Ask every query of a dashboard."""
    for panel in panels(FILES[name]):
        for target in panel.get("targets") or ():
            yield Answer(panel, target, ask(target, variables, seen.server))


def both_ways(seen: Scene) -> Iterator[BothWays]:
    """Ask each query of the fleet that takes what was recorded, and ask it as if there were no rules."""
    board = FILES["fleet"]
    bare = json.loads(_RECORD.sub("no:such:record", json.dumps(board)))
    # What was recorded is as old as the last rules; a subquery goes by full minutes.
    kept, raw = (
        [choose(each, seen.server, Window(end), EVERYTHING) for end in (seen.now, seen.later)]
        for each in (board, bare)
    )
    assert [each.chosen["fallback"] for each in (*kept, *raw)] == [[""], [""], [".+"], [".+"]]
    for panel, other in zip(panels(board), panels(bare), strict=True):
        for target, own in zip(panel.get("targets") or (), other.get("targets") or (), strict=True):
            if _RECORD.search(expr := target["expr"]):
                later = _MINUTES in expr
                yield BothWays(
                    f"{panel['title']} {target['refId']}",
                    expr,
                    _last(ask(target, kept[later], seen.server)),
                    _last(ask(own, raw[later], seen.server)),
                )


def _called(legend: str, labels: Mapping[str, str]) -> str:
    return LEGEND.sub(lambda use: labels.get(use[1], ""), legend)


def _last(found: Sequence[Series]) -> dict[Labels, float]:
    return {frozenset(each.labels.items()): each.values[max(each.values)] for each in found}


def _rounded(series: Series) -> tuple[tuple[float, str], ...]:
    """Give times and values; sums differ in their last digits by the order of what is added."""
    return tuple((at, f"{value:.9g}") for at, value in series.values.items())
