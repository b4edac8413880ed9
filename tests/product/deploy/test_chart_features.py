"""What each value changes in the objects, if no overlay shows it."""

import json
from typing import Any

import pytest

from exporter.config import load_settings
from tests.product.deploy.charts import chart
from tests.product.deploy.rendering import (
    Manifest,
    container,
    environment,
    example,
    kinds,
    mount_paths,
    named,
    node_selector_terms,
    only,
    pod_spec,
    scrape_annotations,
    template,
)

DIGEST = "sha256:" + "a" * 64
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def _node_labels(objects: list[Manifest]) -> list[tuple[str, list[str] | None]]:
    """Return the label of each kind of nodes, with its values."""
    rules = [term["matchExpressions"][0] for term in node_selector_terms(objects)]
    return [(rule["key"], rule.get("values")) for rule in rules]


@pytest.mark.tools
@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({"repository": "r.example:5000/gpus/x", "tag": "1.2.3"}, "r.example:5000/gpus/x:1.2.3"),
        ({"tag": "1.2.3", "digest": DIGEST}, f"all.example/gpuslice-exporter@{DIGEST}"),
    ],
)
def test_the_image_is_named_by_tag_or_digest(image, name) -> None:
    """A digest replaces the tag, and a registry for all charts is used if the name has none."""
    shared = {"imageRegistry": "all.example", "imagePullSecrets": ["t", {"name": "s"}]}
    objects = chart("hub", values={"image": image, "imagePullSecrets": [{"name": "s"}], "global": shared})
    specs = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]

    assert len(specs) == 2
    assert {spec["containers"][0]["image"] for spec in specs} == {name}
    assert all(spec["imagePullSecrets"] == [{"name": "s"}, {"name": "t"}] for spec in specs)


@pytest.mark.tools
def test_another_root_of_the_kubelet_moves_all_of_its_files() -> None:
    """Each is still mounted where the program looks."""
    values = {"kubeletRoot": "/mnt/kubelet", "podsApi": {"enabled": True}}
    drivers = ("dra", "hami-dra", "vgpu-manager-dra", "amd-dra", "intel-dra")
    spec = pod_spec(chart(*drivers, values=values))
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounts = mount_paths(spec)
    below = {"pod-resources", "pods-api", *drivers}

    assert below == {name for name, path in mounts.items() if path.startswith("/var/lib/kubelet/")}
    assert {name: paths[name] for name in below} == {
        name: mounts[name].replace("/var/lib/kubelet/", "/mnt/kubelet/") for name in below
    }
    assert mounts["pod-resources"] == str(load_settings({}, {}).pod_resources_socket.parent)


@pytest.mark.tools
def test_the_port_follows_the_option() -> None:
    """Those of container, annotation and probes; the Service has a name."""
    objects = chart(values={"config": {"listen": "[::]:9900"}})
    rendered = container(objects)
    annotations = template(objects)["metadata"]["annotations"]

    assert [port["containerPort"] for port in rendered["ports"]] == [9900]
    assert load_settings({}, environment(rendered)).listen.port == 9900
    assert annotations["prometheus.io/port"] == "9900"
    assert {rendered[probe]["httpGet"]["port"] for probe in PROBES} == {"metrics"}
    assert only(objects, "Service")["spec"]["ports"][0]["targetPort"] == "metrics"


@pytest.mark.tools
def test_labels_of_nodes_are_added_and_removed() -> None:
    """A user's label is added to those of the chart, ``null`` removes one, and an affinity replaces all."""
    own = {"gpuNodes": {"example.com/gpu": "*", "cloud.google.com/gke-accelerator": None, "other": None}}
    affinity = {"podAntiAffinity": {}}
    before, after = map(str, _node_labels(example())), map(str, _node_labels(chart(values=own)))

    assert set(before) ^ set(after) == {
        str(("example.com/gpu", None)),
        str(("cloud.google.com/gke-accelerator", None)),
    }
    assert pod_spec(chart(values={"affinity": affinity}))["affinity"] == affinity
    assert _node_labels(chart(values={"gpuNodes": None})) == [
        ("nvidia.com/gpu.deploy.dcgm-exporter", ["paused-for-driver-upgrade", "paused-for-mig-change"])
    ]


@pytest.mark.tools
def test_a_monitor_removes_the_annotations() -> None:
    """A Prometheus that discovers pods by annotations would scrape each node a second time."""
    assert scrape_annotations(example()) == {"prometheus.io/scrape", "prometheus.io/port"}
    assert not scrape_annotations(chart(values={"podMonitor": {"enabled": True}}))
    assert not scrape_annotations(chart(values={"scrapeAnnotations": False}))


@pytest.mark.tools
def test_a_monitor_takes_every_field() -> None:
    """Further fields of endpoint and spec are passed on, and override the chart's."""
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


@pytest.mark.tools
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
def test_openshift_allows_what_the_pods_need(values, differs) -> None:
    """Its constraints follow the other values; nothing else in them changes."""

    def constraints(**more: Any) -> Manifest:
        return only(chart(values={"openshift": {"enabled": True}, **more}), "SecurityContextConstraints")

    before, after = constraints(), constraints(**values)
    changed = {key: after[key] for key in after if after[key] != before[key]}
    # As text: a number with a point would be another one.
    assert json.dumps(changed, sort_keys=True) == json.dumps(differs, sort_keys=True)


@pytest.mark.tools
def test_an_existing_account_and_roles_are_used() -> None:
    """The chart makes none."""
    values = {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "kubernetesApi": {"enabled": True},
    }
    objects = chart(values=values)

    assert kinds(objects) == {"DaemonSet", "Service"}
    assert pod_spec(objects)["serviceAccountName"] == "mine"
    assert pod_spec(objects)["automountServiceAccountToken"] is True


@pytest.mark.tools
def test_a_network_policy_without_peers_lets_nothing_in() -> None:
    """Kubernetes reads an empty list of peers as all peers. A way out may be opened, by TCP by default."""
    policy = {"enabled": True, "from": [], "egress": [{"ports": [{"port": 6443}]}]}
    egress = [{"ports": [{"port": 6443, "protocol": "TCP"}]}]
    spec = only(chart(values={"networkPolicy": policy}), "NetworkPolicy")["spec"]

    assert (spec["ingress"], spec["egress"]) == ([], egress)
    assert spec["policyTypes"] == ["Ingress", "Egress"]


def test_the_hub_has_no_rights() -> None:
    """It is not root, sees nothing of the node, has no token and no GPU, and cannot write."""
    objects = example("hub")
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


@pytest.mark.tools
def test_openshift_chooses_the_user_of_the_hub() -> None:
    """It would not admit a pod that names a user or a group by number."""
    hub = named(chart("openshift", "hub"), "Deployment", "-hub")["spec"]["template"]["spec"]

    assert hub["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.tools
def test_values_of_kubernetes_are_passed_on() -> None:
    """The objects have them as they were given."""
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
    pods = template(objects)["metadata"]

    assert pods["labels"].items() >= {"a": "b", "team": "x"}.items()
    assert (pods["annotations"]["c"], daemon_set["metadata"]["annotations"]) == ("d", {"e": "f"})
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
