"""Rules and dashboards of clouds, of KEDA and of Perses, in forms of their own."""

import json
from typing import Any

import pytest

from exporter.translate.files import recording_rules
from tests.core.translate.laws import held_file

FORMS: dict[str, Any] = {
    "Google Cloud, a dashboard": {
        "dashboardFilters": [],
        "mosaicLayout": {
            "tiles": [
                {"widget": {"xyChart": {"dataSets": [{"timeSeriesQuery": {"prometheusQuery": "QUERY"}}]}}},
            ]
        },
    },
    "Google Cloud, an alert": {
        "displayName": "hot",
        "conditions": [{"conditionPrometheusQueryLanguage": {"query": "QUERY", "duration": "60s"}}],
    },
    "Azure, a group of rules": {
        "type": "Microsoft.AlertsManagement/prometheusRuleGroups",
        "properties": {
            "rules": [
                {"record": "gpu:util:avg", "expression": "QUERY"},
                {"alert": "Hot", "expression": "QUERY", "annotations": {"summary": "{{ $labels.LABEL }}"}},
            ]
        },
    },
    "KEDA, a job": {"triggers": [{"type": "prometheus", "metadata": {"query": "QUERY", "threshold": "80"}}]},
    "Perses, a panel": {
        "queries": [
            {
                "kind": "TimeSeriesQuery",
                "spec": {"plugin": {"kind": "PrometheusTimeSeriesQuery", "spec": {"query": "QUERY"}}},
            }
        ]
    },
}


def _made(form: str, query: str, label: str) -> str:
    return json.dumps(FORMS[form]).replace("QUERY", query).replace("LABEL", label)


@pytest.mark.parametrize("form", FORMS)
def test_its_queries_are_translated(form: str) -> None:
    done = held_file(_made(form, "avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", "Hostname"))

    assert done.text == _made(form, "avg by (hostname) (DCGM_FI_DEV_GPU_UTIL_RATIO) * 100", "hostname")
    assert done.findings == []


def test_records_of_azure_are_followed() -> None:
    form = _made("Azure, a group of rules", "DCGM_FI_DEV_GPU_UTIL", "a")

    assert [*recording_rules(form)] == [("gpu:util:avg", "DCGM_FI_DEV_GPU_UTIL")]
