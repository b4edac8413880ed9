"""What each value changes in the objects, where no overlay shows it."""

import json
from typing import Any

import pytest

from exporter.config import load_settings
from tests.deploy.charts import chart, environment, mount_paths, named
from tests.deploy.rendering import Manifest, container, only, pod_spec

DIGEST = "sha256:" + "a" * 64
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def _daemon_set(**values: Any) -> Manifest:
    return only(chart(values=values), "DaemonSet")


def _terms(objects: list[Manifest]) -> list[tuple[str, list[str] | None]]:
    affinity = pod_spec(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    first = [term["matchExpressions"][0] for term in affinity["nodeSelectorTerms"]]
    return [(rule["key"], rule.get("values")) for rule in first]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({"repository": "r.example:5000/gpus/x", "tag": "1.2.3"}, "r.example:5000/gpus/x:1.2.3"),
        ({"tag": "1.2.3", "digest": DIGEST}, f"all.example/gpuslice-exporter@{DIGEST}"),
    ],
)
def test_the_image_is_named_by_tag_or_digest(image, name) -> None:
    """A digest stands in place of the tag, and a registry for all charts before a name without one."""
    shared = {"imageRegistry": "all.example", "imagePullSecrets": ["t", {"name": "s"}]}
    objects = chart("hub", values={"image": image, "imagePullSecrets": [{"name": "s"}], "global": shared})
    specs = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]

    assert len(specs) == 2
    assert {spec["containers"][0]["image"] for spec in specs} == {name}
    assert all(spec["imagePullSecrets"] == [{"name": "s"}, {"name": "t"}] for spec in specs)


def test_another_root_of_the_kubelet_moves_all_of_its_files() -> None:
    """Whatever lies below the kubelet's root comes from there, and is mounted where the program looks."""
    values = {"kubeletRoot": "/mnt/kubelet", "podsApi": {"enabled": True}}
    spec = pod_spec(chart("hami-dra", "dra", values=values))
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounts = mount_paths(spec)
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


@pytest.mark.slow
def test_marks_of_nodes_are_added_and_taken_away() -> None:
    """A label of one's own stands beside those of the chart, ``null`` takes one away, and an affinity all."""
    own = {"gpuNodes": {"example.com/gpu": "*", "cloud.google.com/gke-accelerator": None}}
    affinity = {"podAntiAffinity": {}}

    before, after = _terms(chart()), _terms(chart(values=own))
    assert set(map(str, after)) - set(map(str, before)) == {str(("example.com/gpu", None))}
    assert set(map(str, before)) - set(map(str, after)) == {str(("cloud.google.com/gke-accelerator", None))}
    assert pod_spec(chart(values={"affinity": affinity}))["affinity"] == affinity
    assert _terms(chart(values={"gpuNodes": None})) == [
        ("nvidia.com/gpu.deploy.dcgm-exporter", ["paused-for-driver-upgrade", "paused-for-mig-change"])
    ]


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({"hostPID": False}, {"allowHostPID": False}),
        ({"hostNetwork": True}, {"allowHostNetwork": True, "allowHostPorts": True}),
        (
            {"podSecurityContext": {"runAsUser": 1_000_680_000}},
            {"runAsUser": {"type": "MustRunAs", "uid": 1_000_680_000}},
        ),
        ({"migMonitor": {"enabled": True}}, {"allowedCapabilities": ["SYS_ADMIN"]}),
        ({"privileged": True}, {"allowPrivilegedContainer": True, "allowPrivilegeEscalation": True}),
        (
            {"extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "b"}}]},
            {"volumes": ["configMap", "emptyDir", "hostPath", "projected", "secret"]},
        ),
    ],
    ids=["hostPID", "hostNetwork", "uid", "mig", "privileged", "volumes"],
)
def test_openshift_allows_what_the_pods_ask_for(values, differs) -> None:
    """Its constraints follow the other values, and nothing else in them changes."""

    def constraints(**more: Any) -> Manifest:
        return only(chart(values={"openshift": {"enabled": True}, **more}), "SecurityContextConstraints")

    before, after = constraints(), constraints(**values)
    changed = {key: after[key] for key in after if after[key] != before[key]}
    # As text, for which a number with a point is another one.
    assert json.dumps(changed, sort_keys=True) == json.dumps(differs, sort_keys=True)


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


def test_openshift_chooses_the_user_of_the_hub() -> None:
    """It would not admit a pod that asks for a user or a group by number."""
    hub = named(chart("openshift", "hub"), "Deployment", "-hub")["spec"]["template"]["spec"]

    assert hub["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_values_that_hand_on_are_handed_on() -> None:
    """What Kubernetes has a word for stands in the objects as it was given."""
    given = {
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "annotations": {"e": "f"},
        "nodeSelector": {"pool": "gpu"},
        "hostNetwork": True,
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
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert daemon_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert rendered["resources"]["limits"] == {"memory": "1Gi"}
    assert all(each["metadata"]["labels"]["team"] == "x" for each in objects)
    assert given["extraVolumes"][0] in spec["volumes"]
    assert given["extraVolumeMounts"][0] in rendered["volumeMounts"]
    assert environment(rendered)["TZ"] == "UTC"
