"""The rules, alerts and dashboards that the chart installs, and what values change of them."""

import json
from typing import Any

import pytest
import yaml

from tests.deploy.charts import CHART, chart
from tests.deploy.rendering import Manifest, only
from tests.deploy.tools import ROOT

RULES = ROOT / "alerts/rules"
MEBIBYTE = 1 << 20
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
    """Give the alerts of a release that changes all that can be changed of them."""
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


@pytest.fixture(scope="module")
def boards() -> list[Manifest]:
    """Give the ConfigMaps of dashboards."""
    objects = chart(values={"dashboards": {"enabled": True, "namespace": "monitoring"}})
    return [each for each in objects if each["kind"] == "ConfigMap"]


@pytest.mark.slow
def test_the_rules_are_those_of_the_project() -> None:
    """Helm changes no letter of a group: neither expressions nor what Prometheus fills into braces."""
    assert _rendered() == [*_groups("recording"), *_groups("alerts")]
    assert "{{ $labels" in json.dumps(_groups("alerts"))


def test_either_sort_of_rules_can_be_left_out() -> None:
    """Recording rules without alerts are for a cluster whose alerts are made elsewhere."""
    assert _rendered(alerts=False) == _groups("recording")


def test_an_alert_can_be_turned_off(changed) -> None:
    """All others stay."""
    assert changed.keys() == _alerts(_groups("alerts")).keys() - {WASTE}


def test_a_group_without_alerts_is_left_out() -> None:
    """Where every alert of a group is turned off, the group goes."""
    groups = _groups("alerts")
    gone = [rule["alert"] for rule in groups[0]["rules"]]

    assert _rendered(recording=False, disabled=gone) == groups[1:]


def test_one_alert_can_be_changed(changed) -> None:
    """Severity, time, labels and annotations of one alert do not touch the others, nor its expression."""
    before = _alerts(_groups("alerts"))

    assert (changed[IDLE]["labels"], changed[IDLE]["for"]) == (
        {"severity": "warning", "team": "platform", "a": "b"},
        "2h",
    )
    assert changed[IDLE]["annotations"]["c"] == "d"
    assert changed[IDLE]["expr"] == before[IDLE]["expr"]
    assert changed[ABSENT]["labels"] == before[ABSENT]["labels"] | {"team": "platform"}
    assert changed[ABSENT]["for"] == before[ABSENT]["for"]


def test_links_lead_to_ones_own_places(changed) -> None:
    """Runbooks and dashboards of every alert begin with the given addresses."""
    for name, alert in changed.items():
        assert alert["annotations"]["runbook_url"] == f"https://wiki.example/gpus/{name}.md"
        assert alert["annotations"]["dashboard"].startswith("https://grafana.example/d/gpuslice-")
        assert alert["annotations"]["owner"] == "gpu"


def test_rules_of_ones_own_thresholds_take_the_place_of_the_charts() -> None:
    """Files that ``python -m alerts`` wrote elsewhere are used, and other changes apply to them too."""
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


def test_dashboards_are_those_of_the_project(boards) -> None:
    """Each is a ConfigMap of its own that the sidecar finds, with the same content, and small enough."""
    found = {name: text for each in boards for name, text in each["data"].items()}

    assert {name: json.loads(text) for name, text in found.items()} == {
        path.name: json.loads(path.read_text()) for path in (ROOT / "dashboards/json").glob("*.json")
    }
    assert {len(each["data"]) for each in boards} == {1}
    assert max(len(text.encode()) for text in found.values()) < MEBIBYTE
    assert {each["metadata"]["namespace"] for each in boards} == {"monitoring"}
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in boards} == {"1"}
    assert {each["metadata"]["annotations"]["grafana_folder"] for each in boards} == {"GPUs"}


def test_what_is_not_asked_for_is_not_made() -> None:
    """Without values there is nothing for operators, and no right of any sort."""
    assert {each["kind"] for each in chart()} == {"ServiceAccount", "Service", "DaemonSet"}
    assert (CHART / "files/rules/gpuslice-alerts.yaml").is_file()
