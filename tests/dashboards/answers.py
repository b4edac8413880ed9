"""What the panels of a dashboard are answered by the Prometheus of a scene."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dashboards.write import board_files
from tests.dashboards.expressions import parts
from tests.dashboards.grafana import ALL, Series, Variables, Window, ask, choose, panels
from tests.dashboards.records import series_labels
from tests.dashboards.scene import Scene

FILES = {
    path.removeprefix("json/gpuslice-").removesuffix(".json"): json.loads(text)
    for path, text in board_files().items()
}
EVERYTHING = {"node": [ALL]}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
Labels: TypeAlias = frozenset[tuple[str, str]]


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
        """The labels that its series may have, and those that it keeps of others."""
        found = parts(self.target["expr"])
        known = frozenset().union(*(series_labels(selector.name) for selector in found.selectors))
        return found.labels | found.made | known

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


def says_none(series: Series) -> bool:
    """Return whether a row is one that says "none" or "unknown": one label, and NaN."""
    return len(series.labels) <= 1 and all(map(math.isnan, series.values.values()))


def choice(name: str, seen: Scene, chosen: Mapping[str, Sequence[str]]) -> Variables:
    """Open a dashboard with some variables chosen, and all nodes."""
    return choose(FILES[name], seen.server, Window(seen.later), EVERYTHING | chosen)


def drawn(name: str, seen: Scene, variables: Variables) -> Iterator[Answer]:
    """Ask every query of a dashboard."""
    for panel in panels(FILES[name]):
        for target in panel.get("targets") or ():
            yield Answer(panel, target, ask(target, variables, seen.server))


def _called(legend: str, labels: Mapping[str, str]) -> str:
    return LEGEND.sub(lambda use: labels.get(use[1], ""), legend)
