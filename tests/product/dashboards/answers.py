"""The answers of the Prometheus of a scene to the queries of a dashboard."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tests.product.dashboards.boards import FILES, queries
from tests.product.dashboards.expressions import parts
from tests.product.dashboards.grafana import ALL, Series, Variables, Window, ask, choose
from tests.product.dashboards.records import series_labels
from tests.product.dashboards.scene import Scene

EVERYTHING = {"node": [ALL]}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
Labels: TypeAlias = frozenset[tuple[str, str]]


class Answer(NamedTuple):
    """The answer to a query of a panel."""

    panel: Mapping[str, Any]
    target: Mapping[str, Any]
    series: Sequence[Series]

    @property
    def called(self) -> str:
        """The panel and the query, for messages."""
        return f"{self.panel['title']} {self.target['refId']}"

    @property
    def labels(self) -> frozenset[str]:
        """The labels that its series may have."""
        expr = parts(self.target["expr"])
        return expr.labels.union(expr.made, *(series_labels(selector.name) for selector in expr.selectors))

    @property
    def found(self) -> list[Series]:
        """Its series without a row of the text "none" or "unknown"."""
        return [series for series in self.series if not says_none(series)]

    @property
    def rows(self) -> frozenset[Labels]:
        """The labels of each found series."""
        return frozenset(frozenset(series.labels.items()) for series in self.found)

    @property
    def lines(self) -> list[str]:
        """The names of its series by the legend; empty for a table, or if Grafana chooses them."""
        legend = self.target.get("legendFormat", "__auto")
        if self.panel["type"] == "table" or legend == "__auto":
            return []
        return sorted(_named(legend, each.labels) for each in self.series)


def says_none(series: Series) -> bool:
    """Return whether a row is one of the text "none" or "unknown": one label, and NaN."""
    return len(series.labels) <= 1 and all(map(math.isnan, series.values.values()))


def choice(name: str, scene: Scene, chosen: Mapping[str, Sequence[str]]) -> Variables:
    """Return the variables of a dashboard with some chosen, and all nodes."""
    return choose(FILES[name], scene.server, Window(scene.later), EVERYTHING | chosen)


def drawn(name: str, scene: Scene, variables: Variables) -> Iterator[Answer]:
    """Yield the answer to every query of a dashboard."""
    for panel, target in queries(FILES[name]):
        yield Answer(panel, target, ask(target, variables, scene.server))


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return LEGEND.sub(lambda use: labels.get(use[1], ""), legend)
