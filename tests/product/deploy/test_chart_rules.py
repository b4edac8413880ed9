"""The values that change the rules, alerts and dashboards that the chart installs."""

import json
from typing import Any

import pytest
import yaml

from tests.product.deploy.charts import chart
from tests.product.deploy.rendering import example, kinds, only
from tests.tools import ROOT

RULES = ROOT / "alerts/rules"
IDLE, WASTE, ABSENT = "GpuSliceHolderIdle", "GpuSliceNamespaceWaste", "GpuSliceExporterAbsent"


def _groups(file: str) -> list[dict[str, Any]]:
    return yaml.load((RULES / f"gpuslice-{file}.yaml").read_text(), yaml.CSafeLoader)["groups"]


def _rendered(**values: Any) -> list[dict[str, Any]]:
    objects = chart(values={"prometheusRule": {"enabled": True, **values}})
    return only(objects, "PrometheusRule")["spec"]["groups"]


def _alerts(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


@pytest.fixture(scope="module")
def changed() -> dict[str, dict[str, Any]]:
    """Return the alerts of a release that changes all that can be changed."""
    groups = _rendered(
        recording=False,
        disabled=[WASTE],
        overrides={
            IDLE: {"severity": "warning", "for": "2h", "labels": {"a": "b"}, "annotations": {"c": "d"}}
        },
        alertLabels={"team": "platform"},
        alertAnnotations={"owner": "gpu"},
        runbookUrl="https://wiki.example/gpus/",
        grafanaUrl="https://grafana.example/",
    )
    return _alerts(groups)


@pytest.mark.tools
def test_recording_rules_can_be_installed_without_alerts() -> None:
    assert _rendered(alerts=False) == _groups("recording")


@pytest.mark.tools
def test_an_alert_can_be_turned_off(changed) -> None:
    assert changed.keys() == _alerts(_groups("alerts")).keys() - {WASTE}


@pytest.mark.tools
def test_a_group_without_alerts_is_left_out() -> None:
    groups = _groups("alerts")
    disabled = [rule["alert"] for rule in groups[0]["rules"]]

    assert _rendered(recording=False, disabled=disabled) == groups[1:]


@pytest.mark.tools
def test_one_alert_can_be_changed(changed) -> None:
    """Severity, time, labels and annotations change; its expression and the other alerts do not."""
    before = _alerts(_groups("alerts"))

    assert (changed[IDLE]["labels"], changed[IDLE]["for"]) == (
        {"severity": "warning", "team": "platform", "a": "b"},
        "2h",
    )
    assert changed[IDLE]["annotations"]["c"] == "d"
    assert changed[IDLE]["expr"] == before[IDLE]["expr"]
    assert changed[ABSENT]["labels"] == before[ABSENT]["labels"] | {"team": "platform"}
    assert changed[ABSENT]["for"] == before[ABSENT]["for"]


@pytest.mark.tools
def test_links_lead_to_the_given_addresses(changed) -> None:
    """Those of runbooks and dashboards, in every alert."""
    for name, alert in changed.items():
        assert alert["annotations"]["runbook_url"] == f"https://wiki.example/gpus/{name}.md"
        assert alert["annotations"]["dashboard"].startswith("https://grafana.example/d/gpuslice-")
        assert alert["annotations"]["owner"] == "gpu"


@pytest.mark.tools
def test_a_users_rules_replace_the_charts() -> None:
    """Files that ``python -m alerts`` wrote with other thresholds; other changes apply to them too."""
    rule = {"alert": IDLE, "expr": "a > {{ 1 }}", "labels": {"severity": "info"}, "annotations": {}}
    record = {"record": "a:b:c", "expr": "a"}
    groups = _rendered(
        recordingFile=yaml.safe_dump({"groups": [{"name": "own", "rules": [record]}]}),
        alertsFile=yaml.safe_dump({"groups": [{"name": "mine", "rules": [rule]}]}),
        alertLabels={"team": "x"},
    )

    assert groups == [
        {"name": "own", "rules": [record]},
        {"name": "mine", "rules": [rule | {"labels": {"severity": "info", "team": "x"}}]},
    ]


@pytest.mark.tools
def test_dashboards_can_be_in_a_namespace_of_their_own() -> None:
    """With the content of the project, one in each ConfigMap."""
    objects = chart(values={"dashboards": {"enabled": True, "namespace": "monitoring"}})
    maps = [each for each in objects if each["kind"] == "ConfigMap"]
    boards = {name: json.loads(text) for each in maps for name, text in each["data"].items()}

    assert boards == {
        path.name: json.loads(path.read_text()) for path in (ROOT / "dashboards/json").glob("*.json")
    }
    assert {(each["metadata"]["namespace"], len(each["data"])) for each in maps} == {("monitoring", 1)}


def test_the_chart_without_values_makes_nothing_for_operators_and_no_role() -> None:
    assert kinds(example()) == {"ServiceAccount", "Service", "DaemonSet"}
