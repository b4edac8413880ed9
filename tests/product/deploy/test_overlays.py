"""Each overlay differs from the base in what its platform or purpose needs, and in nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.product.deploy import render
from tests.product.deploy.rendering import (
    DEPLOY,
    OVERLAYS,
    Manifest,
    composed,
    container,
    kinds,
    node_selector_terms,
    only,
    overlay,
    pod_spec,
    template,
)
from tests.product.deploy.tools import tool

# Labels of the operator's own exporter, with a device plugin and without.
PAUSES = ("nvidia.com/gpu.deploy.dcgm-exporter", "nvidia.com/gpu.deploy.dcgm-exporter-dra")
# A label that each platform gives its GPU nodes, in addition to those of feature discovery.
NODES = {
    "gke": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "eks": {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
    "aks": {"kubernetes.azure.com/accelerator": "nvidia"},
    "ack": {"aliyun.accelerator/nvidia_name": "NVIDIA-A10"},
}
# Here the default container runtime of GPU nodes is already NVIDIA's, or NVIDIA's is not installed.
WITHOUT_CLASS = {"device-plugin", "gke", "eks", "aks", "ack", "gpu-cluster"}

BASE: dict[str, Any] = {
    "host": {"hostPID"},
    "privileged": False,
    "capabilities": (),
    "selinux": None,
    "token": False,
    "verbs": set(),
    "files": {"/var/lib/kubelet/pod-resources", "/var/log/pods"},
    "kinds": {"Namespace", "ServiceAccount", "DaemonSet", "Service"},
}
READ = {"verbs": {"list pods", "watch pods", "list nodes", "watch nodes"}}
# What an overlay has in addition to the base; overlays that are not here have the same.
RIGHTS: dict[str, dict[str, Any]] = {
    "gke": {
        "privileged": True,
        "files": BASE["files"] | {"/home/kubernetes/bin/nvidia"},
        "kinds": BASE["kinds"] | {"ResourceQuota"},
    },
    "gpu-cluster": {
        "files": BASE["files"] | {"/var/lib/kubelet/plugins/gpu.nvidia.com"},
        "kinds": BASE["kinds"] | {"ResourceClaimTemplate"},
    },
    "openshift": {
        "selinux": "spc_t",
        "verbs": {"use securitycontextconstraints"},
        "kinds": BASE["kinds"] | {"SecurityContextConstraints", "Role", "RoleBinding"},
    },
    "microk8s": {"files": {"/var/snap/microk8s/common/var/lib/kubelet/pod-resources", "/var/log/pods"}},
    "k0s": {"files": {"/var/lib/k0s/kubelet/pod-resources", "/var/log/pods"}},
    "hostpid-off": {"host": set()},
    "kubernetes-api": {**READ, "token": True, "kinds": BASE["kinds"] | {"ClusterRole", "ClusterRoleBinding"}},
    "mig": {"capabilities": ("SYS_ADMIN",)},
    "prometheus-operator": {"kinds": BASE["kinds"] | {"ServiceMonitor", "PrometheusRule", "ConfigMap"}},
    "network-policy": {"kinds": BASE["kinds"] | {"NetworkPolicy"}},
}


def _verbs(objects: list[Manifest]) -> Iterator[str]:
    for role in objects:
        for rule in role.get("rules", ()) if role["kind"] in {"Role", "ClusterRole"} else ():
            yield from (f"{verb} {resource}" for verb in rule["verbs"] for resource in rule["resources"])


def _rights(objects: list[Manifest]) -> dict[str, Any]:
    spec, security = pod_spec(objects), container(objects)["securityContext"]
    return {
        "host": {name for name in ("hostPID", "hostNetwork", "hostIPC") if spec.get(name)},
        "privileged": security["privileged"],
        "capabilities": tuple(security["capabilities"].get("add", ())),
        "selinux": security.get("seLinuxOptions", {}).get("type"),
        "token": spec["automountServiceAccountToken"],
        "verbs": set(_verbs(objects)),
        "files": {volume["hostPath"]["path"] for volume in spec["volumes"]},
        "kinds": kinds(objects),
    }


def _takes(objects: list[Manifest], labels: dict[str, str]) -> bool:
    """Return whether the DaemonSet's affinity takes a node with these labels, as the scheduler does."""
    holds = {
        "Exists": lambda rule: rule["key"] in labels,
        "In": lambda rule: labels.get(rule["key"]) in rule["values"],
        "NotIn": lambda rule: labels.get(rule["key"]) not in rule["values"],
    }
    return any(
        all(holds[rule["operator"]](rule) for rule in term["matchExpressions"])
        for term in node_selector_terms(objects)
    )


def test_every_platform_and_purpose_has_an_overlay() -> None:
    platforms = {"gpu-operator", "gpu-cluster", "device-plugin", "gke", "eks", "aks", "ack", "openshift"}
    platforms |= {"k3s", "rke2", "microk8s", "k0s", "talos"}
    purposes = {"hostpid-off", "kubernetes-api", "mig", "prometheus-operator", "network-policy"}

    assert set(OVERLAYS) == platforms | purposes


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_has_the_rights_of_the_table(name: str) -> None:
    """Host namespaces, capabilities, files of the node, verbs and kinds."""
    assert _rights(overlay(name)) == BASE | RIGHTS.get(name, {})


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_runtime_class_is_named_if_the_platform_has_one(name: str) -> None:
    """It brings the driver if NVIDIA's runtime is not the default; a missing class stops pods."""
    assert pod_spec(overlay(name)).get("runtimeClassName") == (None if name in WITHOUT_CLASS else "nvidia")


@pytest.mark.parametrize("name", OVERLAYS)
def test_nodes_are_chosen_by_labels_of_their_platform(name: str) -> None:
    """Nodes with the label of feature discovery or the platform are taken unless paused; others are not."""
    objects = overlay(name)
    plain = {"kubernetes.io/os": "linux"}

    assert not _takes(objects, plain)
    for label in ({"nvidia.com/gpu.present": "true"}, NODES.get(name, {"nvidia.com/gpu.present": "true"})):
        assert _takes(objects, plain | label)
        for pause in PAUSES:
            assert _takes(objects, plain | label | {pause: "true"})
            assert not _takes(objects, plain | label | {pause: "paused-for-driver-upgrade"})


def test_a_claim_with_admin_access_takes_no_gpu_from_others() -> None:
    """It claims all GPUs, tainted ones too, in a namespace that allows such claims."""
    objects = overlay("gpu-cluster")
    claims, spec = only(objects, "ResourceClaimTemplate"), pod_spec(objects)
    (request,) = claims["spec"]["spec"]["devices"]["requests"]
    (claim,) = spec["resourceClaims"]

    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "All",
        "adminAccess": True,
        "tolerations": [{"operator": "Exists"}],
    }
    assert claim["resourceClaimTemplateName"] == claims["metadata"]["name"]
    assert container(objects)["resources"]["claims"] == [{"name": claim["name"]}]
    assert only(objects, "Namespace")["metadata"]["labels"]["resource.kubernetes.io/admin-access"] == "true"


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_says_that_it_replaces_the_image(name: str) -> None:
    """Before anything else: it has the image of the base, whatever the cluster runs."""
    text = (DEPLOY / f"overlays/{name}/kustomization.yaml").read_text()
    top = " ".join(line.removeprefix("# ") for line in text.partition("apiVersion")[0].splitlines())

    assert container(overlay(name))["image"] == container(composed())["image"]
    assert "applied over an installation with an image of your own, it puts that image back" in top
    assert "docs/deploy.md" in top


def test_hostpid_off_changes_one_field() -> None:
    expected = overlay("gpu-operator")
    pod_spec(expected)["hostPID"] = False

    assert overlay("hostpid-off") == expected


@pytest.mark.parametrize("name", ["microk8s", "k0s"])
def test_another_kubelet_root_is_mounted_where_the_program_looks(name: str) -> None:
    """Only the path on the node differs: the container sees the usual one."""
    assert container(overlay(name))["volumeMounts"] == container(composed())["volumeMounts"]


def test_openshift_admits_exactly_what_is_asked_for() -> None:
    objects = composed("web-config", "kubernetes-api", of="overlays/openshift")
    allowed, spec = only(objects, "SecurityContextConstraints"), pod_spec(objects)
    asked = container(objects)["securityContext"]
    volumes = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}

    # The API server adds the volume of the token.
    assert volumes | {"projected"} == set(allowed["volumes"])
    assert allowed["allowHostDirVolumePlugin"] is True
    for field, name in {
        "allowHostPID": "hostPID",
        "allowHostNetwork": "hostNetwork",
        "allowHostIPC": "hostIPC",
    }.items():
        assert allowed[field] is spec.get(name, False)
    assert allowed["allowHostPorts"] is any("hostPort" in port for port in container(objects)["ports"])
    assert allowed["allowPrivilegedContainer"] is asked["privileged"]
    assert allowed["allowPrivilegeEscalation"] is asked["allowPrivilegeEscalation"]
    assert allowed["readOnlyRootFilesystem"] is asked["readOnlyRootFilesystem"]
    assert allowed["requiredDropCapabilities"] == asked["capabilities"]["drop"]
    assert (allowed["allowedCapabilities"], allowed["defaultAddCapabilities"]) == (None, None)
    assert allowed["runAsUser"] == {"type": "MustRunAs", "uid": spec["securityContext"]["runAsUser"]}
    assert (allowed["seccompProfiles"], spec["securityContext"]["seccompProfile"]) == (
        ["runtime/default"],
        {"type": "RuntimeDefault"},
    )
    assert "users" not in allowed
    assert "groups" not in allowed


@pytest.mark.tools
def test_another_namespace_moves_all_that_names_it() -> None:
    """One line in a user's overlay moves objects, subjects of bindings, and the namespace with its labels."""
    tool("kustomize")
    components = [f"components/{name}" for name in ("kubernetes-api", "pod-monitor", "network-policy")]
    own = {"namespace": "gpus", "resources": ["overlays/openshift"], "components": components}
    objects = render.kustomize(own)
    of_cluster = {"Namespace", "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints"}
    subjects = [subject for each in objects for subject in each.get("subjects", [])]

    assert only(objects, "Namespace")["metadata"]["name"] == "gpus"
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] not in of_cluster} == {"gpus"}
    assert [subject["namespace"] for subject in subjects] == ["gpus", "gpus"]
    assert "gpuslice" not in {
        value for each in objects for value in str(each).replace("'", " ").replace(",", " ").split()
    }


def test_openshift_lets_only_the_exporter_use_it() -> None:
    """The role names the one object, is bound to the one account, and the pod requests that object."""
    objects = overlay("openshift")
    role, binding = only(objects, "Role"), only(objects, "RoleBinding")
    name = only(objects, "SecurityContextConstraints")["metadata"]["name"]
    annotations = template(objects)["metadata"]["annotations"]

    assert role["rules"] == [
        {
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [name],
            "verbs": ["use"],
        }
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": pod_spec(objects)["serviceAccountName"], "namespace": "gpuslice"}
    ]
    assert annotations["openshift.io/required-scc"] == name
