"""Each overlay is valid, and differs from the base in what its platform or purpose needs and nothing else."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.rendering import (
    DEPLOY,
    OVERLAYS,
    SINCE,
    Manifest,
    composed,
    container,
    kustomized,
    objects_in,
    only,
    overlay,
    pod_spec,
)
from tests.deploy.schemas import NEWEST, OLDEST, validate
from tests.deploy.tools import output

# Of the operator's own exporter, with a device plugin and without.
PAUSES = ("nvidia.com/gpu.deploy.dcgm-exporter", "nvidia.com/gpu.deploy.dcgm-exporter-dra")
# A label that each platform gives to its GPU nodes, beside those that feature discovery does.
NODES = {
    "gke": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "eks": {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
    "aks": {"kubernetes.azure.com/accelerator": "nvidia"},
    "ack": {"aliyun.accelerator/nvidia_name": "NVIDIA-A10"},
}
# Where the default container runtime of GPU nodes is NVIDIA's already, or there is none.
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
# What an overlay has that the base has not; those that are not here have the same.
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
        "kinds": {each["kind"] for each in objects},
    }


def _chosen(objects: list[Manifest], labels: dict[str, str]) -> bool:
    """Say whether the DaemonSet's affinity takes a node, as the scheduler does."""
    affinity = pod_spec(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    holds = {
        "Exists": lambda rule: rule["key"] in labels,
        "In": lambda rule: labels.get(rule["key"]) in rule["values"],
        "NotIn": lambda rule: labels.get(rule["key"]) not in rule["values"],
    }
    return any(
        all(holds[rule["operator"]](rule) for rule in term["matchExpressions"])
        for term in affinity["nodeSelectorTerms"]
    )


def test_every_platform_and_purpose_has_an_overlay() -> None:
    """None that the page promises is missing."""
    platforms = {"gpu-operator", "gpu-cluster", "device-plugin", "gke", "eks", "aks", "ack", "openshift"}
    platforms |= {"k3s", "rke2", "microk8s", "k0s", "talos"}
    purposes = {"hostpid-off", "kubernetes-api", "mig", "prometheus-operator", "network-policy"}

    assert set(OVERLAYS) == platforms | purposes


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_object_is_valid(name: str, version: str) -> None:
    """Kubernetes, old and new, the Prometheus Operator and OpenShift know every field."""
    validate(overlay(name), max(version, SINCE.get(name, version)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", OVERLAYS)
def test_kubectl_makes_the_same(name: str) -> None:
    """``kubectl apply -k`` needs no option: the kustomize in kubectl makes the same objects."""

    def sort(objects: list[Manifest]) -> list[Manifest]:
        return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))

    made = objects_in(output("kubectl", "kustomize", DEPLOY / "overlays" / name))

    assert sort(made) == sort(overlay(name))


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_overlay_has_more_rights_than_stated(name: str) -> None:
    """Host namespaces, capabilities, files of the node, verbs and kinds are those of the table above."""
    assert _rights(overlay(name)) == BASE | RIGHTS.get(name, {})


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_runtime_class_is_named_where_there_is_one(name: str) -> None:
    """It brings the driver where NVIDIA's runtime is not the default; a class that is missing stops pods."""
    assert pod_spec(overlay(name)).get("runtimeClassName") == (None if name in WITHOUT_CLASS else "nvidia")


@pytest.mark.parametrize("name", OVERLAYS)
def test_nodes_are_chosen_by_labels_of_their_platform(name: str) -> None:
    """GPU nodes are taken by feature discovery's label or the platform's, unless paused; others are not."""
    objects = overlay(name)
    plain = {"kubernetes.io/os": "linux"}

    assert not _chosen(objects, plain)
    for label in ({"nvidia.com/gpu.present": "true"}, NODES.get(name, {"nvidia.com/gpu.present": "true"})):
        assert _chosen(objects, plain | label)
        for pauses in PAUSES:
            assert _chosen(objects, plain | label | {pauses: "true"})
            assert not _chosen(objects, plain | label | {pauses: "paused-for-driver-upgrade"})


def test_a_claim_with_admin_access_takes_no_gpu_from_others() -> None:
    """All GPUs are claimed for the container; the namespace may have such claims, and taints are borne."""
    objects = overlay("gpu-cluster")
    template, spec = only(objects, "ResourceClaimTemplate"), pod_spec(objects)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    (claim,) = spec["resourceClaims"]

    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "All",
        "adminAccess": True,
        "tolerations": [{"operator": "Exists"}],
    }
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert container(objects)["resources"]["claims"] == [{"name": claim["name"]}]
    assert only(objects, "Namespace")["metadata"]["labels"]["resource.kubernetes.io/admin-access"] == "true"


def test_hostpid_off_changes_one_field() -> None:
    """Everything else is as in the overlay that it stands on."""
    expected = overlay("gpu-operator")
    pod_spec(expected)["hostPID"] = False

    assert overlay("hostpid-off") == expected


@pytest.mark.parametrize("name", ["microk8s", "k0s"])
def test_another_kubelet_root_is_mounted_where_the_program_looks(name: str) -> None:
    """Only the place on the node differs: the container sees the usual path."""
    assert container(overlay(name))["volumeMounts"] == container(composed())["volumeMounts"]


def test_openshift_admits_exactly_what_is_asked_for() -> None:
    """Each permission of the SecurityContextConstraints is one that the pod needs, and none is missing."""
    objects = composed("web-config", "kubernetes-api", of="overlays/openshift")
    allowed, spec = only(objects, "SecurityContextConstraints"), pod_spec(objects)
    asked = container(objects)["securityContext"]
    volumes = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}

    assert volumes | {"projected"} == set(
        allowed["volumes"]
    )  # The token's volume is the API server's to add.
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


def test_another_namespace_moves_all_that_names_it() -> None:
    """One line in an own overlay moves objects, subjects of bindings, and the namespace with its labels."""
    components = [f"components/{name}" for name in ("kubernetes-api", "pod-monitor", "network-policy")]
    own = {"namespace": "gpus", "resources": ["overlays/openshift"], "components": components}
    objects = kustomized(own)
    whole = {"Namespace", "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints"}
    subjects = [subject for each in objects for subject in each.get("subjects", [])]

    assert only(objects, "Namespace")["metadata"]["name"] == "gpus"
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] not in whole} == {"gpus"}
    assert [subject["namespace"] for subject in subjects] == ["gpus", "gpus"]
    assert "gpuslice" not in {
        value for each in objects for value in str(each).replace("'", " ").replace(",", " ").split()
    }


def test_openshift_lets_only_the_exporter_use_it() -> None:
    """The role names the one object, is bound to the one account, and the pod asks for that object."""
    objects = overlay("openshift")
    role, binding = only(objects, "Role"), only(objects, "RoleBinding")
    name = only(objects, "SecurityContextConstraints")["metadata"]["name"]
    annotations = only(objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]

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
