"""Monitors of the chart: times that Prometheus accepts, and the fields that the API server would add."""

from typing import Any

import pytest

from tests.product.deploy.charts import chart, refusal
from tests.product.deploy.render import AFTER
from tests.product.deploy.rendering import COMPONENTS, Manifest, composed, only

MONITORS = ("podMonitor", "serviceMonitor")
LIMIT = "Set at most 2m."
# Fields of relabelings by place.
RELABELINGS = (
    "relabelings",
    "metricRelabelings",
    "metricRelabeling",
    "relabelConfigs",
    "metricRelabelConfigs",
)
KINDS = {"PodMonitor", "ServiceMonitor", "VMPodScrape", "ClusterPodMonitoring"}


def _relabelings(objects: list[Manifest]) -> list[dict[str, Any]]:
    specs = [each["spec"] for each in objects if each["kind"] in KINDS]
    endpoints = [one for spec in specs for one in spec.get("endpoints") or spec["podMetricsEndpoints"]]
    return [rule for one in endpoints for name in RELABELINGS for rule in one.get(name, ())]


@pytest.mark.tools
@pytest.mark.parametrize("monitor", MONITORS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interval": "5m"}, ".interval is 5m: Prometheus forgets a series 5 minutes after its last sample"),
        ({"interval": "5m"}, LIMIT),
        ({"interval": "2m1ms"}, LIMIT),
        ({"interval": "1h"}, LIMIT),
        ({"interval": "121s"}, LIMIT),
        ({"endpoint": {"interval": "3m"}}, ".interval is 3m"),
        ({"scrapeTimeout": "20s"}, ".scrapeTimeout is 20s: Prometheus refuses one above the interval."),
        ({"scrapeTimeout": "20s"}, "Set at most 15s."),
        ({"interval": "1500ms", "scrapeTimeout": "2s"}, "Set at most 1500ms."),
        ({"interval": "1m30s", "scrapeTimeout": "91s"}, "Set at most 1m30s."),
        ({"interval": "010s", "scrapeTimeout": "11s"}, "Set at most 010s."),
        ({"interval": "", "scrapeTimeout": "31s"}, "Set at most 30s."),
        ({"endpoint": {"scrapeTimeout": "16s"}}, ".scrapeTimeout is 16s"),
        ({"interval": "30s1m"}, "interval"),
        ({"interval": "1.5m"}, "interval"),
        ({"endpoint": {"scrapeTimeout": 10}}, "endpoint/scrapeTimeout': got number, want string"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_times_that_cannot_work_are_refused(monitor: str, values: dict[str, Any], message: str) -> None:
    """A timeout above the interval, an interval with which series vanish, and what is no duration."""
    refused = refusal({monitor: {"enabled": True, **values}})

    assert message in refused
    assert monitor in refused


@pytest.mark.tools
@pytest.mark.parametrize(
    ("place", "endpoint"),
    [
        ("google", {"interval": "5m"}),
        ("google", {"timeout": "16s"}),
        ("victoria-metrics", {"scrape_interval": "5m"}),
        ("azure", {"scrapeTimeout": "1m"}),
    ],
)
def test_times_of_other_places_are_refused_too(place: str, endpoint: dict[str, str]) -> None:
    assert "podMonitor." in refusal(
        {"monitoring": {"place": place}, "podMonitor": {"enabled": True, "endpoint": endpoint}}
    )


@pytest.mark.tools
@pytest.mark.parametrize("monitor", MONITORS)
def test_times_that_work_are_taken_as_they_are(monitor: str) -> None:
    """Up to the limits themselves, in any unit."""
    for interval, timeout in (
        ("2m", "120s"),
        ("1m30s", "90s"),
        ("90s", "1m30s"),
        ("1500ms", "1s500ms"),
        ("", "30s"),
    ):
        objects = chart(values={monitor: {"enabled": True, "interval": interval, "scrapeTimeout": timeout}})
        assert timeout in str([each for each in objects if each["kind"] in KINDS])


@pytest.mark.tools
@pytest.mark.parametrize(
    "values", [{"refresh": "2h"}, {"refresh": "500ms"}, {"window": "30m"}, {"window": 10}]
)
def test_times_that_the_hub_refuses_are_refused(values: dict[str, Any]) -> None:
    (name,) = values

    assert f"hub.{name} is {values[name]}: " in refusal(
        {"hub": {"enabled": True, "prometheusUrl": "http://p", **values}}
    )


@pytest.mark.tools
@pytest.mark.parametrize("place", ["prometheus-operator", "google", "victoria-metrics", "azure"])
def test_the_action_of_each_relabeling_is_written_out(place: str) -> None:
    """Argo CD compares lists whole: what the API server adds there would be a difference for ever."""
    own = [{"sourceLabels": ["a"], "targetLabel": "b"}, {"action": "drop", "regex": "c"}]
    monitor = {"enabled": True, "metricRelabelings": own, "endpoint": {"relabelings": own}}
    objects = chart(values={"monitoring": {"place": place}, "podMonitor": monitor})

    actions = [rule["action"] for rule in _relabelings(objects)]
    assert actions.count("replace") >= 2
    assert actions.count("drop") == 2


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_components_write_every_action_out(component: str) -> None:
    objects = composed(*AFTER.get(component, ()), component)

    assert [rule for rule in _relabelings(objects) if "action" not in rule] == []


@pytest.mark.tools
def test_both_names_of_a_rule_are_written_out_for_victoria_metrics() -> None:
    """The definition of a VMRule has an empty text as their default."""
    values = {"monitoring": {"place": "victoria-metrics"}, "prometheusRule": {"enabled": True}}
    rules = [
        rule for group in only(chart(values=values), "VMRule")["spec"]["groups"] for rule in group["rules"]
    ]

    assert rules
    assert [rule for rule in rules if bool(rule["alert"]) is bool(rule["record"])] == []


def test_ports_are_written_out() -> None:
    """Protocol and target of Services and network policies."""
    for component in ((), ("network-policy",)):
        for each in composed(*component):
            spec = each.get("spec", {})
            ports = spec.get("ports", []) + [
                port for rule in spec.get("ingress", ()) for port in rule["ports"]
            ]
            assert [port for port in ports if port["protocol"] != "TCP"] == []
            assert each["kind"] != "Service" or [port["targetPort"] for port in ports] == ["metrics"]
