"""The dashboards as the code makes them, and their queries."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dashboards.write import board_files
from tests.product.dashboards.grafana import panels

FILES: dict[str, dict[str, Any]] = {
    path.removeprefix("json/gpuslice-").removesuffix(".json"): json.loads(text)
    for path, text in board_files().items()
}
each_board = pytest.mark.parametrize("board", FILES.values(), ids=FILES)


def queries(board: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield every query of a dashboard with its panel."""
    for panel in panels(board):
        for target in panel.get("targets") or ():
            yield panel, target


def variable_queries(board: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, expression and label of every variable with a query; query_result has no label."""
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            function, _, inside = variable["query"].removesuffix(")").partition("(")
            assert function in ("label_values", "query_result")
            expr, _, label = inside.rpartition(",") if function == "label_values" else (inside, "", "")
            yield variable["name"], expr, label.strip()
