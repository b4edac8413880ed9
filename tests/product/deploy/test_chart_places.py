"""The chart makes the same objects as kustomize's components for each place where Prometheus runs."""

from typing import Any

import pytest

from tests.product.deploy.charts import chart, refusal
from tests.product.deploy.rendering import (
    Manifest,
    composed,
    kinds,
    objects_in,
    only,
    scrape_annotations,
    template,
)
from tests.tools import ROOT

pytestmark = pytest.mark.tools

# The component of each place, and the kinds of its monitor and its rules.
PLACES = {
    "prometheus-operator": ("pod-monitor", "PodMonitor", "PrometheusRule"),
    "google": ("google-managed-prometheus", "ClusterPodMonitoring", "ClusterRules"),
    "victoria-metrics": ("victoria-metrics", "VMPodScrape", "VMRule"),
    "azure": ("azure-monitor", "PodMonitor", None),
}
WITH_RULES = [place for place, (_, _, rules) in PLACES.items() if rules]


def _rendered(place: str, **values: Any) -> list[Manifest]:
    enabled = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": place in WITH_RULES}}
    return chart(values={"monitoring": {"place": place}, **enabled, **values})


@pytest.mark.parametrize("place", PLACES)
def test_the_monitor_is_that_of_the_component(place: str) -> None:
    """Except for its selector, which names the release too. No object of another place is made."""
    component, kind, rules = PLACES[place]
    objects = _rendered(place)
    own, other = only(objects, kind), only(composed(component), kind)
    selector, expected = own["spec"].pop("selector"), other["spec"].pop("selector")

    assert (own["apiVersion"], own["spec"]) == (other["apiVersion"], other["spec"])
    assert selector["matchLabels"].items() > expected["matchLabels"].items()
    assert selector["matchLabels"].items() <= template(objects)["metadata"]["labels"].items()
    assert own["metadata"].get("namespace") == other["metadata"].get("namespace")
    of_places = {each for _, *of_place in PLACES.values() for each in of_place}
    assert kinds(objects) & of_places == {kind, rules} - {None}
    assert not scrape_annotations(objects)


@pytest.mark.parametrize("place", WITH_RULES)
def test_the_rules_are_those_of_the_component(place: str) -> None:
    component, _, kind = PLACES[place]
    component = "prometheus-rules" if place == "prometheus-operator" else component
    own, other = only(_rendered(place), kind), only(composed(component), kind)
    (written,) = objects_in((ROOT / other["spec"]).read_text())

    assert (own["apiVersion"], own["spec"]) == (other["apiVersion"], written["spec"])
    assert own["metadata"].get("namespace") == other["metadata"].get("namespace")


MONITOR = {
    "enabled": True,
    "scrapeTimeout": "10s",
    "metricRelabelings": [{"action": "drop", "regex": "DCGM_.*", "sourceLabels": ["__name__"]}],
    "attachMetadata": {"node": True},
}


def test_victoria_metrics_has_other_names_of_fields() -> None:
    spec = only(_rendered("victoria-metrics", podMonitor=MONITOR), "VMPodScrape")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]

    assert spec["attach_metadata"] == {"node": True}
    assert endpoint["metricRelabelConfigs"] == MONITOR["metricRelabelings"]
    assert endpoint["scrapeTimeout"] == "10s"


def test_google_has_other_names_of_fields_and_no_relabeling_of_targets() -> None:
    spec = only(_rendered("google", podMonitor=MONITOR), "ClusterPodMonitoring")["spec"]
    (endpoint,) = spec["endpoints"]

    assert endpoint == {
        "port": "metrics",
        "interval": "15s",
        "timeout": "10s",
        "metricRelabeling": MONITOR["metricRelabelings"],
    }
    assert spec.keys() == {"selector", "endpoints", "targetLabels"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"monitoring": {"place": "thanos"}}, "/monitoring/place"),
        (
            {"monitoring": {"place": "azure"}, "prometheusRule": {"enabled": True}},
            "monitoring.place is azure",
        ),
        (
            {"monitoring": {"place": "google"}, "serviceMonitor": {"enabled": True}},
            "monitoring.place is google, which has none",
        ),
    ],
)
def test_a_place_without_the_object_is_refused(values: dict[str, Any], message: str) -> None:
    """An unknown place, Azure's rules, Google's ServiceMonitor."""
    assert message in refusal(values)
