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


def _hub(**more: Any) -> dict[str, Any]:
    """Return values of a hub with a monitor."""
    monitor = {"enabled": True, **more.pop("monitor", {})}
    return {"hub": {"enabled": True, "prometheusUrl": "http://p", "monitor": monitor, **more}}


def _of_hub(objects: list[Manifest]) -> Manifest:
    """Return the monitor of the hub."""
    (found,) = [
        each for each in objects if each["kind"] in KINDS and each["metadata"]["name"].endswith("-hub")
    ]
    return found


@pytest.mark.tools
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_the_monitor_of_the_hub_selects_the_hub_alone(kind: str) -> None:
    """By labels and port of its pod, or of its Service; that of the nodes does not select it."""
    objects = chart(values={**_hub(monitor={"kind": kind}), "podMonitor": {"enabled": True}})
    deployment, monitor = only(objects, "Deployment"), _of_hub(objects)
    (service,) = [
        each for each in objects if each["kind"] == "Service" and each["metadata"]["name"].endswith("-hub")
    ]
    labels = service["metadata"] if kind == "ServiceMonitor" else deployment["spec"]["template"]["metadata"]
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    (nodes,) = [each for each in objects if each["kind"] == "PodMonitor" and each is not monitor]

    assert monitor["kind"] == kind
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= labels["labels"].items()
    assert endpoint["port"] == service["spec"]["ports"][0]["name"] == "http"
    assert not nodes["spec"]["selector"]["matchLabels"].items() <= labels["labels"].items()
    daemonset = only(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert not wanted.items() <= daemonset.items()


@pytest.mark.tools
@pytest.mark.parametrize(
    ("place", "kind"),
    [("google", "ClusterPodMonitoring"), ("victoria-metrics", "VMPodScrape"), ("azure", "PodMonitor")],
)
def test_the_monitor_of_the_hub_is_of_the_place(place: str, kind: str) -> None:
    values = {"monitoring": {"place": place}, **_hub()}

    assert _of_hub(chart(values=values))["kind"] == kind
    assert "hub.monitor.kind is ServiceMonitor" in refusal(
        {"monitoring": {"place": place}, **_hub(monitor={"kind": "ServiceMonitor"})}
    )


@pytest.mark.tools
def test_the_monitor_of_the_hub_is_off_and_speaks_the_scheme_of_the_hub() -> None:
    plain = chart(values={"hub": {"enabled": True, "prometheusUrl": "http://p"}})
    secure = chart(values=_hub(webConfig={"existingSecret": "web", "scheme": "https"}))

    assert [each for each in plain if each["kind"] in KINDS] == []
    assert _of_hub(secure)["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"
    assert "hub.monitor.enabled is true, but hub.enabled is not" in refusal(_hub(enabled=False))
    assert "hub.monitor.interval is 5m" in refusal(_hub(monitor={"interval": "5m"}))


@pytest.mark.tools
def test_a_hub_has_the_annotations_of_the_nodes_unless_a_monitor_is_enabled() -> None:
    def scraped(values: dict[str, Any]) -> list[str | None]:
        """Return the port of the annotations of the nodes, and of the hub."""
        objects = chart(values=values)
        templates = [only(objects, kind)["spec"]["template"] for kind in ("DaemonSet", "Deployment")]
        found = [each["metadata"].get("annotations", {}) for each in templates]
        return [each.get("prometheus.io/port") for each in found]

    hub = {"enabled": True, "prometheusUrl": "http://p", "config": {"listen": ":9999"}}
    assert scraped({"hub": hub}) == ["9836", "9999"]
    assert scraped({"hub": hub, "scrapeAnnotations": False}) == [None, None]
    assert scraped({"hub": hub, "podMonitor": {"enabled": True}}) == [None, None]
    assert scraped({"hub": {**hub, "monitor": {"enabled": True}}}) == [None, None]


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
