"""Unit tests of the rules, changed to what another place has or expects."""

import re
from collections.abc import Iterator
from typing import Any

from tests.product.alerts.committed import Groups, Unit

REPLICAS = ("a", "b")
START = 946_684_800
"""When the unit tests of vmalert begin, as Unix time; those of Prometheus begin at 0."""
TOLERANCE = 0.02
"""Of an increase over less than its range, of which Prometheus 2 extrapolates a part."""
_RECORD = re.compile(r"ALERTS|\w+:")
_TIME = re.compile(r"\w+_timestamp_seconds\{")
_FIRST_NUMBER = re.compile(r"^[\d.]+")


def nearly(unit: Unit) -> Unit:
    """Let increases differ a little.

    Prometheus 3 leaves out the sample at the beginning of a range; VictoriaMetrics does not extrapolate.
    """
    return unit | {"tests": [_nearly(test) for test in unit["tests"]]}


def _nearly(test: dict[str, Any]) -> dict[str, Any]:
    checks = [each for check in test.get("promql_expr_test", ()) for each in _close(check)]
    return test | {"promql_expr_test": checks}


def _close(check: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Turn a query that is rounded, since it extrapolates, into one for each value: what is near it."""
    if not check["expr"].startswith("round("):
        yield check
        return
    for sample in check["exp_samples"]:
        value = sample["value"]
        near = f"group without () (abs({check['expr']} - {value}) < {TOLERANCE * value})"
        yield check | {"expr": near, "exp_samples": [sample | {"value": 1}]}


def doubled(unit: Unit, groups: Groups) -> tuple[Unit, Groups]:
    """Let two replicas of Prometheus report each series; rules are evaluated once, on all of them."""
    return unit | {
        "tests": [
            test | {"input_series": [each for one in test["input_series"] for each in _replicas(one)]}
            for test in unit["tests"]
        ]
    }, groups


def _replicas(series: dict[str, str]) -> list[dict[str, str]]:
    name, _, labels = series["series"].partition("{")
    if _RECORD.match(name):
        return [series]
    rest = f", {labels}" if labels else "}"
    return [series | {"series": f'{name}{{prometheus_replica="{each}"{rest}'} for each in REPLICAS]


def for_vmalert(unit: Unit, groups: Groups) -> tuple[Unit, Groups]:
    """Write a unit file with ``nearly`` the same increases as vmalert-tool reads it.

    Each rule is in a group of its own: vmalert sees the results of a group after the group has ended.
    """
    alone = [
        group | {"name": f"{group['name']}-{number}", "rules": [rule]}
        for group in groups
        for number, rule in enumerate(group["rules"])
    ]
    order = {"group_eval_order": [group["name"] for group in alone]}
    return unit | order | {"tests": [_test(test) for test in unit["tests"]]}, alone


def _test(test: dict[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in test.items() if key != "promql_expr_test"}
    changed["input_series"] = [_later(each) for each in test["input_series"]]
    changed["alert_rule_test"] = [
        check | {"exp_alerts": [_told_later(alert) for alert in check["exp_alerts"] or ()]}
        for check in test.get("alert_rule_test", ())
    ]
    changed["metricsql_expr_test"] = test["promql_expr_test"]
    return changed


def _later(series: dict[str, str]) -> dict[str, str]:
    """Add the start to values that are times."""
    if not _TIME.match(series["series"]):
        return series
    values = (
        _FIRST_NUMBER.sub(lambda number: f"{START + float(number[0]):.0f}", each)
        for each in series["values"].split()
    )
    return series | {"values": " ".join(values)}


def _told_later(alert: dict[str, Any]) -> dict[str, Any]:
    texts = {key: text.replace("1970-01-01", "2000-01-01") for key, text in alert["exp_annotations"].items()}
    return alert | {"exp_annotations": texts}
