"""Answers of a real Prometheus, to be compared before and after a translation."""

import json
import math
from http.client import HTTPException
from urllib.parse import urlencode

from benchmarks.prometheus import Prometheus
from exporter.metrics.dcgm.dialects import LABELS

Answer = dict[tuple[tuple[str, str], ...], float]
NEW_LABELS = {label.old: label.new for label in LABELS}


class RefusedError(Exception):
    """Prometheus has no answer to an expression."""


def answer(server: Prometheus, expression: str, time: float, labels: dict[str, str] | None = None) -> Answer:
    """Return the values by labels under their new names, without the name of the series."""
    query = urlencode({"query": expression, "time": time})
    try:
        data = json.loads(server.process.get(f"api/v1/query?{query}")[1])["data"]
    except HTTPException as error:
        raise RefusedError(expression) from error
    if data["resultType"] == "scalar":
        return {(): float(data["result"][1])}
    new = labels or {}
    return {
        tuple(
            sorted((new.get(name, name), text) for name, text in one["metric"].items() if name != "__name__")
        ): (float(one["value"][1]))
        for one in data["result"]
    }


def close(before: Answer, after: Answer, slack: float, step: float = 1e-12) -> bool:
    """Return whether two answers have the same labels and values, but for a share or a step of them."""
    return before.keys() == after.keys() and all(
        math.isclose(value, after[key], rel_tol=slack, abs_tol=step)
        or (math.isnan(value) and math.isnan(after[key]))
        for key, value in before.items()
    )
