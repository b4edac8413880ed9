"""What the overlays bring for Prometheus, Grafana, and for keeping all others out."""

import json
import re
from typing import Any

import pytest

from exporter.config import load_settings
from tests.deploy.rendering import (
    OVERLAYS,
    Manifest,
    composed,
    container,
    objects_in,
    only,
    overlay,
    pod_spec,
)
from tests.deploy.tools import ROOT

MEBIBYTE = 1 << 20
# In all annotations of an object together; `kubectl apply` keeps a copy of the object in one of them.
ANNOTATIONS = 256 << 10
MONITORS = {"service-monitor": "ServiceMonitor", "pod-monitor": "PodMonitor"}


@pytest.fixture(scope="module")
def operator() -> list[Manifest]:
    """Give the objects of the overlay for the Prometheus Operator."""
    return overlay("prometheus-operator")


# Kind and API group of the monitor in each component for a place other than the Prometheus Operator.
PLACES = {
    "google-managed-prometheus": ("ClusterPodMonitoring", "monitoring.googleapis.com"),
    "victoria-metrics": ("VMPodScrape", "operator.victoriametrics.com"),
    "azure-monitor": ("PodMonitor", "azmonitoring.coreos.com"),
}


def _endpoint(monitor: Manifest) -> dict[str, Any]:
    (found,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    return found


@pytest.mark.slow
def test_the_service_monitor_chooses_the_service_and_names_its_port(operator) -> None:
    """Its labels are the Service's, and the Service leads to the pods."""
    monitor, service = only(operator, "ServiceMonitor"), only(operator, "Service")
    pods = only(operator, "DaemonSet")["spec"]["template"]["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert _endpoint(monitor)["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert service["spec"]["selector"].items() <= pods.items()
    assert monitor["spec"]["jobLabel"] in service["metadata"]["labels"]


def test_the_pod_monitor_chooses_the_pods_and_names_their_port() -> None:
    """Its labels are the pods', in their namespace."""
    objects = composed("pod-monitor")
    monitor, daemon_set = only(objects, "PodMonitor"), only(objects, "DaemonSet")
    pods = daemon_set["spec"]["template"]["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert _endpoint(monitor)["port"] in {port["name"] for port in container(objects)["ports"]}
    assert monitor["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert monitor["spec"]["jobLabel"] in pods


def test_labels_of_tenants_stand_and_those_of_the_target_go() -> None:
    """The Operator would give each series the namespace, pod and container of the exporter."""
    endpoint = _endpoint(only(composed("pod-monitor"), "PodMonitor"))
    dropped = endpoint["relabelings"][0]

    assert endpoint["honorLabels"] is True
    assert dropped["action"] == "labeldrop"
    assert all(re.fullmatch(dropped["regex"], label) for label in ("namespace", "pod", "container"))


def test_the_service_monitor_scrapes_as_the_pod_monitor_does() -> None:
    """The target has one more label to drop: that of the Service."""
    own, other = (only(composed(component), kind) for component, kind in MONITORS.items())
    dropped = _endpoint(other)["relabelings"][0]
    dropped["regex"] += "|service"

    assert _endpoint(own) == _endpoint(other)
    assert own["spec"]["jobLabel"] == other["spec"]["jobLabel"]


@pytest.mark.parametrize("component", MONITORS)
def test_no_node_is_scraped_twice(component: str) -> None:
    """A monitor takes the annotations away, and beside another one kustomize refuses to build."""
    template = only(composed(component), "DaemonSet")["spec"]["template"]
    (other,) = MONITORS.keys() - {component}

    assert not [name for name in template["metadata"]["annotations"] if name.startswith("prometheus.io/")]
    with pytest.raises(pytest.fail.Exception, match=r"nonexistent key: prometheus\.io/scrape"):
        composed(component, other)


@pytest.mark.parametrize("component", PLACES)
def test_a_place_scrapes_the_pods_once_and_keeps_their_labels(component: str) -> None:
    """The selector and port are the pods', labels of targets replace none, and annotations are removed."""
    objects = composed(component)
    kind, group = PLACES[component]
    monitor, template = only(objects, kind), only(objects, "DaemonSet")["spec"]["template"]
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]

    assert monitor["apiVersion"].startswith(f"{group}/")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in container(objects)["ports"]}
    assert endpoint.get("honorLabels") or monitor["spec"]["targetLabels"]["metadata"] == []
    assert not [name for name in template["metadata"]["annotations"] if name.startswith("prometheus.io/")]


@pytest.mark.parametrize("component", ["victoria-metrics", "azure-monitor"])
def test_a_place_relabels_as_the_prometheus_operator(component: str) -> None:
    """Both operators took the fields of the PodMonitor; VictoriaMetrics renamed one."""
    there = only(composed(component), PLACES[component][0])["spec"]
    (endpoint,) = there["podMetricsEndpoints"]
    if "relabelConfigs" in endpoint:
        endpoint["relabelings"] = endpoint.pop("relabelConfigs")

    assert there == only(composed("pod-monitor"), "PodMonitor")["spec"]


@pytest.mark.parametrize(
    ("component", "kind", "namespace"),
    [("google-managed-prometheus", "ClusterRules", None), ("victoria-metrics", "VMRule", "gpuslice")],
)
def test_a_place_has_the_rules_of_the_prometheus_operator(
    operator, component: str, kind: str, namespace: str | None
) -> None:
    """All groups are in its object, unchanged; an object of the cluster has no namespace."""
    rules = only(composed(component), kind)

    assert rules["spec"] == only(operator, "PrometheusRule")["spec"]
    assert rules["metadata"].get("namespace") == namespace


def test_the_rules_are_those_that_are_written(operator) -> None:
    """All groups of alerts/operator are in the one PrometheusRule, unchanged."""
    (written,) = objects_in((ROOT / "alerts/operator/gpuslice-rules.yaml").read_text())

    assert only(operator, "PrometheusRule")["spec"] == written["spec"]


def test_every_dashboard_is_in_a_config_map_of_its_own(operator) -> None:
    """As it is written, within a ConfigMap's limit, with the label and folder for Grafana's sidecar."""
    maps = [each for each in operator if each["kind"] == "ConfigMap"]
    boards = {path.name: path.read_text() for path in (ROOT / "dashboards/json").glob("*.json")}

    assert [len(each["data"]) for each in maps] == [1] * len(boards)
    assert {name: text for each in maps for name, text in each["data"].items()} == boards
    assert all(len(text.encode()) < MEBIBYTE for text in boards.values())
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in maps} == {"1"}
    assert {each["metadata"]["annotations"]["grafana_folder"] for each in maps} == {"GPUs"}


@pytest.mark.slow
def test_what_is_too_large_for_kubectl_apply_says_so() -> None:
    """Overlays with an object that has no room for a copy of itself say to apply it by the server."""
    large = {name for name in OVERLAYS if any(len(json.dumps(each)) > ANNOTATIONS for each in overlay(name))}
    telling = {
        name
        for name in OVERLAYS
        if "--server-side" in (ROOT / f"deploy/overlays/{name}/kustomization.yaml").read_text()
    }

    assert large == telling == {"prometheus-operator"}


def test_only_the_namespace_of_prometheus_may_ask_and_only_for_the_port() -> None:
    """The policy opens the pods' one port to one namespace, and lets them ask nobody."""
    objects = overlay("network-policy")
    policy = only(objects, "NetworkPolicy")["spec"]
    (entry,) = policy["ingress"]
    (port,) = container(objects)["ports"]

    assert (
        policy["podSelector"]["matchLabels"] == only(objects, "DaemonSet")["spec"]["selector"]["matchLabels"]
    )
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert entry == {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "ports": [{"port": port["name"], "protocol": port["protocol"]}],
    }
    assert policy.get("egress", []) == []


def test_the_web_config_is_mounted_where_the_program_is_told_to_look() -> None:
    """The variable is the option's, its file lies in the Secret's mount, and probes speak HTTPS."""
    objects = composed("web-config")
    exporter = container(objects)
    variables = {each["name"]: each["value"] for each in exporter["env"] if "value" in each}
    (mount,) = (each for each in exporter["volumeMounts"] if each["name"] == "web")
    (volume,) = (each for each in pod_spec(objects)["volumes"] if each["name"] == "web")
    probes = [exporter[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    plain = [
        container(composed())[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    ]

    assert str(load_settings({}, variables).web_config) == f"{mount['mountPath']}/web-config.yml"
    assert (mount["readOnly"], volume["secret"]["defaultMode"]) == (True, 0o400)
    assert probes == [each | {"scheme": "HTTPS"} for each in plain]


def test_probes_only_connect_where_clients_need_certificates() -> None:
    """The kubelet has no certificate to show."""
    exporter = container(composed("web-config", "client-certificates"))
    probes = [exporter[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]

    assert [probe["tcpSocket"] for probe in probes] == [{"port": "metrics"}] * 3
    assert not [probe for probe in probes if "httpGet" in probe]
