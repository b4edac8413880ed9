"""What the chart creates for each place where Prometheus runs: the objects of kustomize's components."""

from typing import Any

import pytest

from tests.deploy.charts import chart, refusal
from tests.deploy.rendering import Manifest, composed, only

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


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_the_monitor_is_that_of_the_component(place: str) -> None:
    """But for its selector, which names the release as well."""
    component, kind, _ = PLACES[place]
    objects = _rendered(place)
    own, other = only(objects, kind), only(composed(component), kind)
    selector, expected = own["spec"].pop("selector"), other["spec"].pop("selector")

    assert own["apiVersion"] == other["apiVersion"]
    assert own["spec"] == other["spec"]
    assert selector["matchLabels"].items() > expected["matchLabels"].items()
    assert selector["matchLabels"].items() <= (
        only(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"].items()
    )
    assert own["metadata"].get("namespace") == other["metadata"].get("namespace")


@pytest.mark.slow
@pytest.mark.parametrize("place", WITH_RULES)
def test_the_rules_are_those_of_the_component(place: str) -> None:
    """All groups, in the place's object."""
    component, _, kind = PLACES[place]
    components = [component] if place != "prometheus-operator" else ["prometheus-rules"]
    own, other = only(_rendered(place), kind), only(composed(*components), kind)

    assert own["apiVersion"] == other["apiVersion"]
    assert own["spec"] == other["spec"]
    assert own["metadata"].get("namespace") == other["metadata"].get("namespace")


@pytest.mark.parametrize("place", PLACES)
def test_no_object_of_another_place_is_created(place: str) -> None:
    """And pods are not found by annotations as well."""
    objects = _rendered(place)
    others = {kind for _, *kinds in PLACES.values() for kind in kinds} - set(PLACES[place])

    assert not others & {each["kind"] for each in objects}
    annotations = only(objects, "DaemonSet")["spec"]["template"]["metadata"].get("annotations", {})
    assert not [name for name in annotations if name.startswith("prometheus.io/")]


MONITOR = {
    "enabled": True,
    "scrapeTimeout": "10s",
    "metricRelabelings": [{"action": "drop", "regex": "DCGM_.*", "sourceLabels": ["__name__"]}],
    "attachMetadata": {"node": True},
}


def test_victoria_metrics_has_its_own_names_of_fields() -> None:
    """Three differ from the Prometheus Operator's."""
    spec = only(_rendered("victoria-metrics", podMonitor=MONITOR), "VMPodScrape")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]

    assert spec["attach_metadata"] == {"node": True}
    assert endpoint["metricRelabelConfigs"] == MONITOR["metricRelabelings"]
    assert endpoint["scrapeTimeout"] == "10s"


@pytest.mark.slow
def test_google_has_its_own_names_of_fields() -> None:
    """And no relabeling of targets."""
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
    ("values", "said"),
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
def test_what_a_place_does_not_have_is_refused(values: dict[str, Any], said: str) -> None:
    """A place that there is not, its rules or its ServiceMonitor."""
    assert said in refusal(values)
