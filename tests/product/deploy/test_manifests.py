"""The base and its components ask for no more than they need, and agree with the program."""

import re
from collections import Counter
from pathlib import Path

import pytest

from alerts.reference_pages import settings_page
from exporter import __version__
from exporter.config import load_settings
from exporter.model import NodeRow, Snapshot
from exporter.web.node.app import make_app
from tests.product.deploy.render import AFTER
from tests.product.deploy.rendering import (
    COMPONENTS,
    composed,
    container,
    example,
    node_selector_terms,
    only,
    pod_spec,
    template,
)
from tests.site import site_of
from tests.tools import ROOT

READABLE_FROM_HOST = {
    (): {"/var/lib/kubelet/pod-resources", "/var/log/pods"},
    ("pods-api",): {"/var/lib/kubelet/pod-resources", "/var/log/pods", "/var/lib/kubelet/pods-api"},
    ("gke",): {"/var/lib/kubelet/pod-resources", "/var/log/pods", "/home/kubernetes/bin/nvidia"},
}
# The files of sharing systems, by the setting that names their root; a DRA driver's lie below the kubelet's.
FILES = {
    "hami": ("hami_root", {"/usr/local/vgpu"}),
    "hami-vnpu": ("hami_vnpu_root", {"/usr/local/hami-vnpu-core"}),
    "gpu-manager": ("vcuda_root", {"/etc/gpu-manager/vm", "/etc/gpu-manager/checkpoint"}),
    "vgpu-manager": ("vgpu_manager_root", {"/etc/vgpu-manager"}),
    "mps": ("mps_root", {"/run/nvidia/mps"}),
    "runai": ("runai_root", {"/runai"}),
    "hami-dra": ("kubelet_root", {"/var/lib/kubelet/plugins/hami-core-gpu.project-hami.io"}),
    "dra": ("kubelet_root", {"/var/lib/kubelet/plugins/gpu.nvidia.com"}),
    "vgpu-manager-dra": ("kubelet_root", {"/var/lib/kubelet/plugins/manager.nvidia.com"}),
    "amd-dra": ("kubelet_root", {"/var/lib/kubelet/plugins/gpu.amd.com"}),
    "intel-dra": ("kubelet_root", {"/var/lib/kubelet/plugins/gpu.intel.com"}),
    "memory-limits": ("cgroup_root", {"/sys/fs/cgroup"}),
}
READABLE_FROM_HOST |= {
    (name,): READABLE_FROM_HOST[()] | paths for name, (_, paths) in FILES.items() if name not in AFTER
}
READABLE_FROM_HOST["hami", "hami-dra"] = READABLE_FROM_HOST["hami",] | FILES["hami-dra"][1]


def _alone(component: str) -> tuple[str, ...]:
    """Return a component with those that it has to follow."""
    return (*AFTER.get(component, ()), component)


def test_all_objects_are_in_the_one_namespace() -> None:
    """Each namespaced object has the namespace of the base, which admits pods that share the host's pids."""
    namespace = only(composed(), "Namespace")["metadata"]
    of_cluster = {"Namespace", "ClusterRole", "ClusterRoleBinding", "ClusterPodMonitoring", "ClusterRules"}
    of_cluster |= {"SecurityContextConstraints"}
    objects = [each for name in COMPONENTS for each in composed(*_alone(name))]

    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    namespaces = {each["metadata"]["namespace"] for each in objects if each["kind"] not in of_cluster}
    assert namespaces == {namespace["name"]}


def test_the_container_is_root_without_rights() -> None:
    """No capability, no way to gain one, no writable root, and filtered system calls."""
    objects = composed()

    assert container(objects)["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod_spec(objects)["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_only_the_pid_namespace_is_the_hosts() -> None:
    spec = pod_spec(composed())

    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "initContainers", "ephemeralContainers"} & spec.keys()


@pytest.mark.parametrize("components", READABLE_FROM_HOST, ids="+".join)
def test_directories_of_the_host_are_mounted_read_only_at_the_same_path(components) -> None:
    """A volume is a directory that must exist."""
    objects = composed(*components)
    volumes = {each["name"]: each["hostPath"] for each in pod_spec(objects)["volumes"]}
    mounts = {each["name"]: each for each in container(objects)["volumeMounts"]}

    assert {path["path"] for path in volumes.values()} == READABLE_FROM_HOST[components]
    assert {path["type"] for path in volumes.values()} == {"Directory"}
    assert mounts.keys() == volumes.keys()
    assert all(mount["readOnly"] is True for mount in mounts.values())
    assert {mount["mountPath"] for mount in mounts.values()} == READABLE_FROM_HOST[components]


def test_mounts_are_where_the_program_looks() -> None:
    """The defaults of the settings are in the directories that the base and the components mount."""
    settings = load_settings({}, {})
    mounted = {each["mountPath"] for each in container(composed("pods-api"))["volumeMounts"]}

    assert mounted == {
        str(settings.pod_resources_socket.parent),
        str(settings.pods_api_socket.parent),
        str(settings.pod_log_dir),
    }
    for setting, paths in FILES.values():
        assert any(Path(path).is_relative_to(getattr(settings, setting)) for path in paths), setting


def test_each_variable_is_read() -> None:
    """By the program, or by the NVIDIA container runtime."""
    variables = {each["name"]: each for each in container(composed("mig-monitor"))["env"]}
    own = {name for name in variables if name.startswith("GPUSLICE_")}

    assert own <= set(re.findall(r"`(GPUSLICE_\w+)`", settings_page()))
    assert variables.keys() - own == {
        "NODE_NAME",
        "POD_UID",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_MIG_MONITOR_DEVICES",
    }
    assert load_settings({}, {"NODE_NAME": "worker-7"}).node_name == "worker-7"
    assert '"POD_UID"' in (ROOT / "exporter/poll/sources.py").read_text()
    assert variables["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert variables["POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_probes_ask_for_routes_of_the_program() -> None:
    exporter = container(composed())
    app = make_app(site_of(lambda: Snapshot(timestamp=0.0, sequence=0, node=NodeRow(name="node"))))
    routes = {route.resource.canonical for route in app.router.routes()}
    probes = [exporter[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    (port,) = exporter["ports"]

    assert [probe["path"] for probe in probes] == ["/-/healthy", "/-/healthy", "/-/ready"]
    assert {probe["path"] for probe in probes} <= routes
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert port["containerPort"] == load_settings({}, {}).listen.port


def test_prometheus_finds_every_node() -> None:
    """The headless service and the annotations lead to the container's port on each node."""
    objects = composed()
    service, pods = only(objects, "Service")["spec"], template(objects)["metadata"]
    (port,) = container(objects)["ports"]
    (service_port,) = service["ports"]

    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= pods["labels"].items()
    assert (service_port["targetPort"], service_port["port"]) == (port["name"], port["containerPort"])
    assert pods["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_no_gpu_is_requested() -> None:
    """Only a little CPU and memory, with a limit of memory."""
    resources = container(composed())["resources"]

    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


def test_the_image_has_the_version_of_the_project() -> None:
    """In kustomize and in the chart."""
    images = {container(objects)["image"] for objects in (composed(), example())}

    assert images == {f"gpuslice-exporter:{__version__}"}


def test_the_pod_leaves_a_node_while_the_driver_is_replaced() -> None:
    """Whichever label marks the node as one with a GPU: the GPU Operator pauses its own pods by these."""
    terms = node_selector_terms(composed())
    pauses = [pause for term in terms for pause in term["matchExpressions"][1:]]

    assert Counter((pause["key"], pause["operator"]) for pause in pauses) == {
        ("nvidia.com/gpu.deploy.dcgm-exporter", "NotIn"): len(terms),
        ("nvidia.com/gpu.deploy.dcgm-exporter-dra", "NotIn"): len(terms),
    }
    assert {value for pause in pauses for value in pause["values"]} == {
        "paused-for-driver-upgrade",
        "paused-for-mig-change",
    }


def test_the_nvidia_runtime_class_comes_with_a_component() -> None:
    """The base names no runtime class: a class that a cluster lacks keeps pods from being created."""
    assert "runtimeClassName" not in pod_spec(composed())
    assert pod_spec(composed("nvidia-runtime"))["runtimeClassName"] == "nvidia"


def test_components_that_widen_rights_widen_only_these() -> None:
    """Monitoring MIG adds a capability, SELinux a type; device nodes of GKE and AMD need privileges."""
    plain = container(composed())["securityContext"]
    contexts = {name: container(composed(*_alone(name)))["securityContext"] for name in COMPONENTS}
    privileged = {"privileged": True, "allowPrivilegeEscalation": True}

    assert {name: context for name, context in contexts.items() if context != plain} == {
        "amd": plain | privileged,
        "gke": plain | privileged,
        "mig-monitor": plain | {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
        "selinux-spc": plain | {"seLinuxOptions": {"type": "spc_t"}},
    }


def test_amd_nodes_are_added_to_those_of_the_base() -> None:
    """On a mixed cluster one DaemonSet serves both."""
    base, mixed = node_selector_terms(composed()), node_selector_terms(composed("amd"))
    added = [rule["key"] for term in mixed[len(base) :] for rule in term["matchExpressions"]]

    assert mixed[: len(base)] == base
    assert added
    assert all("amd" in key or "1002" in key for key in added)


def test_each_permission_is_explained() -> None:
    """docs/security.md has a row for each, and names components that exist."""
    text = (ROOT / "docs/security.md").read_text()
    rows = set(re.findall(r"^\| `?([^|`]+?)`? *\|", text, re.MULTILINE))
    paths = {volume["hostPath"]["path"] for volume in pod_spec(composed())["volumes"]}

    assert {"uid 0", "hostPID: true", "NVIDIA container runtime", *paths} <= rows
    assert set(re.findall(r"`components/([\w-]+)`", text)) <= set(COMPONENTS)
