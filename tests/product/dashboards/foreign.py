"""The queries of public dashboards and rules for dcgm-exporter."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.product.dashboards.grafana import ALL, Variables, Window, choose
from tests.together.end_to_end.programs import Prometheus

FOREIGN = json.loads(
    (Path(__file__).parents[2] / "core/exposition/dcgm_dashboards.json").read_text(encoding="utf-8")
)
_COMPARISON = re.compile(r"\s(?:>=|<=|==|!=|>|<)\s")
# Variables with all values chosen, and those with one value.
_VARIABLES = {
    "Hostname": "label_values(DCGM_FI_DEV_FB_FREE, Hostname)",
    "hostname": "label_values(DCGM_FI_DEV_FB_FREE, Hostname)",
    "gpu": "label_values(DCGM_FI_DEV_FB_FREE, gpu)",
    "instance": "label_values(DCGM_FI_DEV_GPU_TEMP, instance)",
}
_ONE = {
    "uuid": "label_values(DCGM_FI_PROF_GR_ENGINE_ACTIVE, UUID)",
    "server": "label_values(dcgm_gpu_temp, instance)",
}


def _variable(name: str, query: str) -> dict[str, Any]:
    several = name in _VARIABLES
    current = {"value": [ALL] if several else ""}
    return {"type": "query", "name": name, "query": query, "multi": several} | {
        "includeAll": several,
        "current": current,
    }


_BOARD = {"templating": {"list": [_variable(*each) for each in (_VARIABLES | _ONE).items()]}}


def compared(expression: str) -> str:
    """Return the query of an alert without comparisons: it has a row for each GPU that it may fire for.

    Labels are not renamed, as with ``honor_labels``.
    """
    return _COMPARISON.sub(" - ", expression).replace("exported_", "")


def choices(server: Prometheus, window: Window) -> Iterator[Variables]:
    """Yield choices of all values of each variable, for one GPU after the other."""
    first = choose(_BOARD, server, window, {})
    for uuid in first.offered["uuid"]:
        yield choose(_BOARD, server, window, {"uuid": [uuid]})
