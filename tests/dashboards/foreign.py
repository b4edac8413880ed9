"""What public dashboards and rules ask of dcgm-exporter, made ready to be asked."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.dashboards.grafana import ALL, Variables, Window, choose
from tests.end_to_end.programs import Prometheus

FOREIGN = json.loads(
    (Path(__file__).parents[1] / "exposition/dcgm_dashboards.json").read_text(encoding="utf-8")
)
_COMPARISON = re.compile(r"\s(?:>=|<=|==|!=|>|<)\s")
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
"""Variables of which one is chosen."""


def _variable(name: str, query: str, *, several: bool) -> dict[str, Any]:
    current = {"value": [ALL] if several else ""}
    return {
        "type": "query",
        "name": name,
        "query": query,
        "multi": several,
        "includeAll": several,
        "current": current,
    }


_BOARD = {
    "templating": {
        "list": [
            *(_variable(name, query, several=True) for name, query in _VARIABLES.items()),
            *(_variable(name, query, several=False) for name, query in _ONE.items()),
        ]
    }
}


def compared(expression: str) -> str:
    """Take the comparisons off an alert: what is left has a row for each that it could fire for.

    Labels are those of dcgm-exporter, which Prometheus renames only where it does not honour them.
    """
    return _COMPARISON.sub(" - ", expression).replace("exported_", "")


def choices(server: Prometheus, window: Window) -> Iterator[Variables]:
    """Choose all of what can be chosen together, with one after the other of what cannot."""
    first = choose(_BOARD, server, window, {})
    for uuid in first.offered["uuid"]:
        yield choose(_BOARD, server, window, {"uuid": [uuid]})
