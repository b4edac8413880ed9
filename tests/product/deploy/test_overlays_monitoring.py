"""What the overlays contain for Prometheus, Grafana, and network policies."""

import json
import re
import subprocess
from typing import Any

import pytest

from exporter.config import load_settings
from tests.product.deploy import render
from tests.product.deploy.rendering import (
    OVERLAYS,
    Manifest,
    composed,
    container,
    environment,
    objects_in,
    only,
    overlay,
    pod_spec,
    scrape_annotations,
    template,
)
from tests.product.deploy.tools import ROOT, tool

MEBIBYTE = 1 << 20
# In all annotations of an object together; `kubectl apply` keeps a copy of the object in one of them.
MOST_ANNOTATIONS = 256 << 10
MONITORS = {"service-monitor": "ServiceMonitor", "pod-monitor": "PodMonitor"}
# Kind and API group of the monitor in each component for a place other than the Prometheus Operator.
PLACES = {
    "google-managed-prometheus": ("ClusterPodMonitoring", "monitoring.googleapis.com"),
    "victoria-metrics": ("VMPodScrape", "operator.victoriametrics.com"),
    "azure-monitor": ("PodMonitor", "azmonitoring.coreos.com"),
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.fixture
def operator() -> list[Manifest]:
    """Return the objects of the overlay for the Prometheus Operator."""
    return overlay("prometheus-operator")


def _endpoint(monitor: Manifest) -> dict[str, Any]:
    endpoint: dict[str, Any]
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    return endpoint


def test_the_service_monitor_chooses_the_service_and_names_its_port(operator) -> None:
    """Its labels are the Service's, and the Service leads to the pods."""
    monitor, service = only(operator, "ServiceMonitor"), only(operator, "Service")
    pods = template(operator)["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert _endpoint(monitor)["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert service["spec"]["selector"].items() <= pods.items()
    assert monitor["spec"]["jobLabel"] in service["metadata"]["labels"]


def test_the_pod_monitor_chooses_the_pods_and_names_their_port() -> None:
    objects = composed("pod-monitor")
    monitor, daemon_set = only(objects, "PodMonitor"), only(objects, "DaemonSet")
    pods = template(objects)["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert _endpoint(monitor)["port"] in {port["name"] for port in container(objects)["ports"]}
    assert monitor["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert monitor["spec"]["jobLabel"] in pods


def test_labels_of_tenants_stay_and_those_of_the_target_are_dropped() -> None:
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
    """A monitor removes the annotations."""
    assert not scrape_annotations(composed(component))


@pytest.mark.tools
def test_two_monitors_are_refused() -> None:
    """The second finds no annotations to remove, and kustomize refuses to build."""
    tool("kustomize")
    with pytest.raises(subprocess.CalledProcessError):
        render.build(MONITORS)


@pytest.mark.parametrize("component", PLACES)
def test_a_place_scrapes_the_pods_once_and_keeps_their_labels(component: str) -> None:
    """The selector and port are the pods', labels of targets replace none, and annotations are removed."""
    objects = composed(component)
    kind, group = PLACES[component]
    monitor, labels = only(objects, kind), template(objects)["metadata"]["labels"]
    endpoint = _endpoint(monitor)

    assert monitor["apiVersion"].startswith(f"{group}/")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert endpoint["port"] in {port["name"] for port in container(objects)["ports"]}
    assert endpoint.get("honorLabels") or monitor["spec"]["targetLabels"]["metadata"] == []
    assert not scrape_annotations(objects)


@pytest.mark.parametrize("component", ["victoria-metrics", "azure-monitor"])
def test_a_place_relabels_as_the_prometheus_operator(component: str) -> None:
    """Both operators took the fields of the PodMonitor; VictoriaMetrics renamed one."""
    there = only(composed(component), PLACES[component][0])["spec"]
    (endpoint,) = there["podMetricsEndpoints"]
    if "relabelConfigs" in endpoint:
        endpoint["relabelings"] = endpoint.pop("relabelConfigs")

    assert there == only(composed("pod-monitor"), "PodMonitor")["spec"]


def test_each_place_has_all_rules() -> None:
    """The object of each place has the same groups; an object of the cluster has no namespace."""
    objects = (
        only(composed("prometheus-rules"), "PrometheusRule"),
        only(composed("google-managed-prometheus"), "ClusterRules"),
        only(composed("victoria-metrics"), "VMRule"),
    )
    files = [ROOT / each["spec"] for each in objects]
    specs = [written["spec"] for file in files for written in objects_in(file.read_text())]

    assert [file.parent.name for file in files] == ["operator", "google", "victoria-metrics"]
    for group in specs[2]["groups"]:
        # The definition of a VMRule has these defaults.
        group["rules"] = [{key: value for key, value in rule.items() if value} for rule in group["rules"]]
    assert specs[0] == specs[1] == specs[2]
    assert [each["metadata"].get("namespace") for each in objects] == ["gpuslice", None, "gpuslice"]


def test_every_dashboard_is_in_a_config_map_of_its_own(operator) -> None:
    """Within a ConfigMap's limit, with the label and folder for Grafana's sidecar."""
    maps = [each for each in operator if each["kind"] == "ConfigMap"]
    boards = {path.name: path for path in (ROOT / "dashboards/json").glob("*.json")}

    assert [len(each["data"]) for each in maps] == [1] * len(boards)
    assert {name: ROOT / path for each in maps for name, path in each["data"].items()} == boards
    assert all(path.stat().st_size < MEBIBYTE for path in boards.values())
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in maps} == {"1"}
    assert {each["metadata"]["annotations"]["grafana_folder"] for each in maps} == {"GPUs"}


def _size_when_applied(path: str) -> int:
    """Return the size of a file's content within an object."""
    text = (ROOT / path).read_text()
    return len(json.dumps(text if path.endswith(".json") else objects_in(text)))


def test_overlays_too_large_for_kubectl_apply_say_so() -> None:
    """An object of rules or a dashboard has no room for a copy of itself: the server has to apply it."""
    contents = {name: re.findall(r"(?:alerts|dashboards)/[\w/.-]+", str(overlay(name))) for name in OVERLAYS}
    large = {
        name
        for name in OVERLAYS
        if any(_size_when_applied(path) > MOST_ANNOTATIONS for path in contents[name])
    }
    texts = {name: (ROOT / f"deploy/overlays/{name}/kustomization.yaml").read_text() for name in OVERLAYS}

    assert large == {name for name in OVERLAYS if "--server-side" in texts[name]} == {"prometheus-operator"}


def test_only_the_namespace_of_prometheus_can_connect_and_only_to_the_port() -> None:
    """The policy opens the pods' one port to one namespace, and no way out."""
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


def test_the_web_config_is_mounted_where_the_option_says() -> None:
    """The variable is the option's, its file lies in the Secret's mount, and probes speak HTTPS."""
    objects = composed("web-config")
    exporter = container(objects)
    (mount,) = (each for each in exporter["volumeMounts"] if each["name"] == "web")
    (volume,) = (each for each in pod_spec(objects)["volumes"] if each["name"] == "web")
    probes = [exporter[name]["httpGet"] for name in PROBES]
    plain = [container(composed())[name]["httpGet"] for name in PROBES]

    assert str(load_settings({}, environment(exporter)).web_config) == f"{mount['mountPath']}/web-config.yml"
    assert (mount["readOnly"], volume["secret"]["defaultMode"]) == (True, 0o400)
    assert probes == [each | {"scheme": "HTTPS"} for each in plain]


def test_probes_only_connect_if_clients_need_certificates() -> None:
    """The kubelet has no certificate to show."""
    exporter = container(composed("web-config", "client-certificates"))
    probes = [exporter[name] for name in PROBES]

    assert [probe["tcpSocket"] for probe in probes] == [{"port": "metrics"}] * 3
    assert not [probe for probe in probes if "httpGet" in probe]
