"""What each value changes in the objects, where no overlay shows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.settings import load_settings
from exporter.web.access.web_config import parse_web_config
from tests.deploy.charts import chart, environment, named
from tests.deploy.rendering import Manifest, container, only, pod_spec

DIGEST = "sha256:" + "a" * 64
HASH = "$2y$10$" + "a" * 53
TLS = {"cert_file": "/etc/gpuslice/tls/tls.crt", "key_file": "/etc/gpuslice/tls/tls.key"}
CLIENTS = {
    "client_ca_file": "/etc/gpuslice/client-ca/ca.crt",
    "client_auth_type": "RequireAndVerifyClientCert",
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def _daemon_set(**values: Any) -> Manifest:
    return only(chart(values=values), "DaemonSet")


def _mounts(spec: Manifest) -> dict[str, str]:
    """Give where each volume of a pod's only container is mounted."""
    (only_one,) = spec["containers"]
    return {each["name"]: each["mountPath"] for each in only_one["volumeMounts"]}


def _terms(objects: list[Manifest]) -> list[tuple[str, list[str] | None]]:
    affinity = pod_spec(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    first = [term["matchExpressions"][0] for term in affinity["nodeSelectorTerms"]]
    return [(rule["key"], rule.get("values")) for rule in first]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({"repository": "r.example:5000/gpus/x", "tag": "1.2.3"}, "r.example:5000/gpus/x:1.2.3"),
        ({"tag": "1.2.3", "digest": DIGEST}, f"gpuslice-exporter@{DIGEST}"),
    ],
)
def test_the_image_is_named_by_tag_or_digest(image, name) -> None:
    """A digest stands in place of the tag, for the hub as well."""
    objects = chart("hub", values={"image": image, "imagePullSecrets": [{"name": "s"}]})
    specs = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]

    assert len(specs) == 2
    assert {spec["containers"][0]["image"] for spec in specs} == {name}
    assert all(spec["imagePullSecrets"] == [{"name": "s"}] for spec in specs)


def test_another_root_of_the_kubelet_moves_all_of_its_files() -> None:
    """Whatever lies below the kubelet's root comes from there, and is mounted where the program looks."""
    values = {"kubeletRoot": "/mnt/kubelet", "podsApi": {"enabled": True}}
    spec = pod_spec(chart("hami-dra", "dra", values=values))
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounts = _mounts(spec)
    below = {"pod-resources", "pods-api", "dra", "hami-dra"}

    assert below == {name for name, path in mounts.items() if path.startswith("/var/lib/kubelet/")}
    assert {name: paths[name] for name in below} == {
        name: mounts[name].replace("/var/lib/kubelet/", "/mnt/kubelet/") for name in below
    }
    assert mounts["pod-resources"] == str(load_settings({}, {}).pod_resources_socket.parent)


def test_the_port_follows_the_option() -> None:
    """Container, annotation and probes go where the exporter is told to listen; the Service need not."""
    objects = chart(values={"config": {"listen": "[::]:9900"}})
    rendered = container(objects)
    annotations = only(objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]

    assert [port["containerPort"] for port in rendered["ports"]] == [9900]
    assert load_settings({}, environment(rendered)).listen.port == 9900
    assert annotations["prometheus.io/port"] == "9900"
    assert {rendered[probe]["httpGet"]["port"] for probe in PROBES} == {"metrics"}
    assert only(objects, "Service")["spec"]["ports"][0]["targetPort"] == "metrics"


def test_marks_of_nodes_are_added_and_taken_away() -> None:
    """A label of one's own stands beside those of the chart, ``null`` takes one away, and an affinity all."""
    own = {"gpuNodes": {"example.com/gpu": "*", "cloud.google.com/gke-accelerator": None}}
    affinity = {"podAntiAffinity": {}}

    before, after = _terms(chart()), _terms(chart(values=own))
    assert set(map(str, after)) - set(map(str, before)) == {str(("example.com/gpu", None))}
    assert set(map(str, before)) - set(map(str, after)) == {str(("cloud.google.com/gke-accelerator", None))}
    assert pod_spec(chart(values={"affinity": affinity}))["affinity"] == affinity


def test_a_monitor_takes_the_annotations_away() -> None:
    """A Prometheus that goes by annotations would scrape each node a second time."""

    def annotations(**values: Any) -> set[str]:
        found = _daemon_set(**values)["spec"]["template"]["metadata"]["annotations"]
        return {name for name in found if name.startswith("prometheus.io/")}

    assert annotations() == {"prometheus.io/scrape", "prometheus.io/port"}
    assert annotations(podMonitor={"enabled": True}) == annotations(scrapeAnnotations=False) == set()


def test_a_monitor_is_open_to_every_field() -> None:
    """Further fields of endpoint and spec are handed on, and stand over the chart's."""
    monitor = {
        "enabled": True,
        "scrapeTimeout": "10s",
        "metricRelabelings": [{"action": "drop"}],
        "endpoint": {"path": "/gpus/metrics", "honorLabels": False},
        "spec": {"sampleLimit": 5000},
    }
    spec = only(chart(values={"serviceMonitor": monitor}), "ServiceMonitor")["spec"]
    (endpoint,) = spec["endpoints"]

    assert (endpoint["path"], endpoint["honorLabels"]) == ("/gpus/metrics", False)
    assert endpoint["scrapeTimeout"] == "10s"
    assert endpoint["metricRelabelings"] == [{"action": "drop"}]
    assert spec["sampleLimit"] == 5000


def test_the_web_configuration_of_the_values_is_one_that_the_program_reads() -> None:
    """The Secret that the chart makes lies where the option says, and the program understands it."""
    content = {"tls_server_config": TLS | CLIENTS, "basic_auth_users": {"prometheus": HASH}}
    web = {"content": content, "tlsSecret": "cert", "clientCaSecret": "ca"}
    objects = chart(values={"webConfig": web})
    secret, rendered = only(objects, "Secret"), container(objects)
    path = load_settings({}, environment(rendered)).web_config
    mounts, volumes = (
        _mounts(pod_spec(objects)),
        {each["name"]: each for each in pod_spec(objects)["volumes"]},
    )
    read = parse_web_config(secret["stringData"][path.name].encode(), path.parent)

    assert read.tls.client_auth == "RequireAndVerifyClientCert"
    assert set(read.users) == {b"prometheus"}
    assert (volumes["web"]["secret"]["secretName"], mounts["web"]) == (
        secret["metadata"]["name"],
        str(path.parent),
    )
    assert mounts["web-tls"] == str(Path(TLS["cert_file"]).parent)
    assert mounts["web-client-ca"] == str(Path(CLIENTS["client_ca_file"]).parent)
    assert {volumes[name]["secret"]["defaultMode"] for name in ("web", "web-tls", "web-client-ca")} == {0o400}


@pytest.mark.parametrize(
    ("content", "probe", "scheme"),
    [
        ({"basic_auth_users": {"a": HASH}}, {"port": "metrics"}, None),
        ({"tls_server_config": TLS}, {"port": "metrics", "scheme": "HTTPS"}, "https"),
        ({"tls_server_config": TLS | CLIENTS}, None, "https"),
    ],
    ids=["password", "tls", "client certificates"],
)
def test_probes_and_monitor_go_by_what_the_port_speaks(content, probe, scheme) -> None:
    """With TLS both ask by HTTPS; where the kubelet is asked for a certificate, probes only connect."""
    objects = chart(values={"webConfig": {"content": content}, "podMonitor": {"enabled": True}})
    (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    asked = [container(objects)[name] for name in PROBES]

    assert endpoint.get("scheme") == scheme
    for each in asked:
        http = each.get("httpGet")
        assert (http and {key: http[key] for key in http.keys() - {"path"}}) == probe
        assert ("tcpSocket" in each) is (probe is None)


def test_pods_are_replaced_when_the_web_configuration_changes() -> None:
    """The template of the pods carries a sum of the Secret's content, and nothing of it."""

    def annotations(burst: int) -> dict[str, str]:
        content = {"rate_limit": {"interval": "1s", "burst": burst}}
        return _daemon_set(webConfig={"content": content})["spec"]["template"]["metadata"]["annotations"]

    assert annotations(1) != annotations(2)
    assert "burst" not in json.dumps(annotations(1))


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({"hostPID": False}, {"allowHostPID": False}),
        ({"migMonitor": {"enabled": True}}, {"allowedCapabilities": ["SYS_ADMIN"]}),
        ({"privileged": True}, {"allowPrivilegedContainer": True, "allowPrivilegeEscalation": True}),
        (
            {"extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "b"}}]},
            {"volumes": ["configMap", "emptyDir", "hostPath", "projected", "secret"]},
        ),
    ],
    ids=["hostPID", "mig", "privileged", "volumes"],
)
def test_openshift_allows_what_the_pods_ask_for(values, differs) -> None:
    """Its constraints follow the other values, and nothing else in them changes."""

    def constraints(**more: Any) -> Manifest:
        return only(chart(values={"openshift": {"enabled": True}, **more}), "SecurityContextConstraints")

    before, after = constraints(), constraints(**values)
    assert {key: after[key] for key in after if after[key] != before[key]} == differs


def test_an_account_and_roles_of_ones_own_are_used() -> None:
    """With an account that exists and roles that somebody else makes the chart makes none."""
    values = {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "kubernetesApi": {"enabled": True},
    }
    objects = chart(values=values)

    assert {each["kind"] for each in objects} == {"DaemonSet", "Service"}
    assert pod_spec(objects)["serviceAccountName"] == "mine"
    assert pod_spec(objects)["automountServiceAccountToken"] is True


def test_a_network_policy_for_nobody_lets_nobody_in() -> None:
    """An empty list of peers is not taken for everybody, as Kubernetes does; a way out may be opened."""
    policy = {"enabled": True, "from": [], "egress": [{"ports": [{"port": 6443}]}]}
    spec = only(chart(values={"networkPolicy": policy}), "NetworkPolicy")["spec"]

    assert (spec["ingress"], spec["egress"]) == ([], [{"ports": [{"port": 6443}]}])
    assert spec["policyTypes"] == ["Ingress", "Egress"]


def test_the_hub_has_no_rights() -> None:
    """It is not root, sees nothing of the node, has no token and no GPU, and writes nowhere."""
    objects = chart("hub")
    spec = named(objects, "Deployment", "-hub")["spec"]["template"]["spec"]
    (rendered,) = spec["containers"]

    assert spec["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC", "volumes", "serviceAccountName"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert rendered["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert environment(rendered)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert named(objects, "Service", "-hub")["spec"]["ports"][0]["targetPort"] == rendered["ports"][0]["name"]


def test_the_hub_reads_its_own_secret() -> None:
    """Not being root, it reads the Secret by its group, and its probes ask by HTTPS."""
    web = {"existingSecret": "hub-web", "scheme": "https"}
    spec = named(chart("hub", values={"hub": {"webConfig": web}}), "Deployment", "-hub")["spec"]["template"][
        "spec"
    ]
    (rendered,), (volume,) = spec["containers"], spec["volumes"]
    path = load_settings({}, environment(rendered)).web_config

    assert volume["secret"] == {"secretName": "hub-web", "defaultMode": 0o440}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    assert _mounts(spec) == {"web": str(path.parent)}
    assert rendered["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_values_that_hand_on_are_handed_on() -> None:
    """What Kubernetes has a word for stands in the objects as it was given."""
    given = {
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "annotations": {"e": "f"},
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priorityClassName": "",
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "resources": {"limits": {"memory": "1Gi"}},
        "commonLabels": {"team": "x"},
        "extraVolumes": [{"name": "jobs", "hostPath": {"path": "/jobs"}}],
        "extraVolumeMounts": [{"name": "jobs", "mountPath": "/jobs"}],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
    }
    objects = chart(values=given)
    daemon_set, spec, rendered = only(objects, "DaemonSet"), pod_spec(objects), container(objects)
    template = daemon_set["spec"]["template"]["metadata"]

    assert template["labels"].items() >= {"a": "b", "team": "x"}.items()
    assert (template["annotations"]["c"], daemon_set["metadata"]["annotations"]) == ("d", {"e": "f"})
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "gpu"}
    assert spec["tolerations"] == given["tolerations"]
    assert "priorityClassName" not in spec
    assert daemon_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert rendered["resources"]["limits"] == {"memory": "1Gi"}
    assert all(each["metadata"]["labels"]["team"] == "x" for each in objects)
    assert given["extraVolumes"][0] in spec["volumes"]
    assert given["extraVolumeMounts"][0] in rendered["volumeMounts"]
    assert environment(rendered)["TZ"] == "UTC"
