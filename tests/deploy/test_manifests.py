"""The manifests are valid, ask for no more than they need, and agree with the program."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import kubernetes_validate
import pytest

from exporter.model import NodeRow, Snapshot
from exporter.settings import Settings, load_settings, settings_markdown
from exporter.web import make_app
from tests.deploy.manifests import COMPONENTS, DEPLOY, in_order, only, pod_spec, renderings, sum_up
from tests.site import site_of

ROOT = DEPLOY.parent
VARIANTS = [(), *((component,) for component in COMPONENTS), ("nvidia-runtime", "mig-monitor", "pods-api")]
VERSIONS = kubernetes_validate.utils.all_versions()
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
    "runai": ("run_root", {"/runai"}),
    "hami-dra": ("kubelet_root", {"/var/lib/kubelet/plugins/hami-core-gpu.project-hami.io"}),
    "dra": ("kubelet_root", {"/var/lib/kubelet/plugins/gpu.nvidia.com"}),
}
READABLE_FROM_HOST |= {(name,): READABLE_FROM_HOST[()] | paths for name, (_, paths) in FILES.items()}


def _container(objects: list) -> dict:
    (container,) = pod_spec(objects)["containers"]
    return container


def _defaults() -> Settings:
    return load_settings({}, {})


@pytest.mark.parametrize("components", VARIANTS, ids="+".join)
def test_kubectl_makes_the_same_of_the_files(components) -> None:
    """Every way to render a variant gives the same objects."""
    expected = in_order(sum_up(*components))

    for objects in renderings(*components):
        assert expected == in_order(objects)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@pytest.mark.parametrize("components", VARIANTS, ids="+".join)
def test_every_object_is_valid(components, version) -> None:
    """Kubernetes, old and new, knows every field of every object."""
    for each in chain.from_iterable(renderings(*components)):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_validator_notices_a_misspelt_field() -> None:
    """A field that Kubernetes does not have is no longer valid."""
    daemon_set = only(sum_up(), "DaemonSet")
    daemon_set["spec"]["template"]["spec"]["hostPid"] = True

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, VERSIONS[-1], strict=True)


def test_all_objects_lie_in_the_one_namespace() -> None:
    """What is namespaced names the namespace that the base makes, which admits pods on the host's pids."""
    namespace, *rest = sum_up("gke")

    assert namespace["kind"] == "Namespace"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert {namespace["metadata"]["name"]} == {each["metadata"]["namespace"] for each in rest}


def test_the_container_is_root_without_rights() -> None:
    """The base gives the container no capability, no way to gain one, no writable root, no free syscalls."""
    objects = sum_up()

    assert _container(objects)["securityContext"] == {
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
    """The pod shares the node's pids, and neither its network nor its interprocess communication."""
    spec = pod_spec(sum_up())

    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "initContainers", "ephemeralContainers"} & spec.keys()


def test_nothing_can_talk_to_the_api_server() -> None:
    """No token is mounted, and no role exists."""
    objects = sum_up()

    assert pod_spec(objects)["automountServiceAccountToken"] is False
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert {each["kind"] for each in objects} == {"Namespace", "ServiceAccount", "DaemonSet", "Service"}


@pytest.mark.parametrize("components", READABLE_FROM_HOST, ids="+".join)
def test_directories_of_the_host_are_mounted_read_only_where_they_are(components) -> None:
    """A volume is a directory that must exist, at the same path inside, and can only be read."""
    objects = sum_up(*components)
    volumes = {each["name"]: each["hostPath"] for each in pod_spec(objects)["volumes"]}
    mounts = {each["name"]: each for each in _container(objects)["volumeMounts"]}

    assert {path["path"] for path in volumes.values()} == READABLE_FROM_HOST[components]
    assert {path["type"] for path in volumes.values()} == {"Directory"}
    assert mounts.keys() == volumes.keys()
    assert all(mount["readOnly"] is True for mount in mounts.values())
    assert {mount["mountPath"] for mount in mounts.values()} == READABLE_FROM_HOST[components]


def test_mounts_are_where_the_program_looks() -> None:
    """The defaults of the settings lie in the directories that are mounted."""
    settings = _defaults()
    mounted = {each["mountPath"] for each in _container(sum_up("pods-api"))["volumeMounts"]}

    assert {
        str(settings.pod_resources_socket.parent),
        str(settings.pods_api_socket.parent),
        str(settings.pod_logs),
    } == mounted


@pytest.mark.parametrize("component", FILES)
def test_files_of_sharing_systems_are_where_the_program_looks(component) -> None:
    """The directory of a component is the default of its setting, or lies in it."""
    setting, paths = FILES[component]
    root = getattr(_defaults(), setting)

    assert any(Path(path).is_relative_to(root) for path in paths)


def test_the_environment_is_what_something_reads() -> None:
    """Each variable is read: by the program, or by the NVIDIA container runtime."""
    variables = {each["name"]: each for each in _container(sum_up("mig-monitor"))["env"]}
    own = {name for name in variables if name.startswith("GPUSLICE_")}

    assert own <= set(re.findall(r"`(GPUSLICE_\w+)`", settings_markdown()))
    assert variables.keys() - own == {
        "NODE_NAME",
        "POD_UID",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_MIG_MONITOR_DEVICES",
    }
    assert load_settings({}, {"NODE_NAME": "worker-7"}).node_name == "worker-7"
    assert '"POD_UID"' in (ROOT / "exporter/sources.py").read_text()
    assert variables["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert variables["POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_probes_ask_for_routes_of_the_program() -> None:
    """Each probe asks the port that is listened on by default for a path that exists."""
    container = _container(sum_up())
    app = make_app(site_of(lambda: Snapshot(timestamp=0.0, sequence=0, node=NodeRow(name="node"))))
    routes = {route.resource.canonical for route in app.router.routes()}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    (port,) = container["ports"]

    assert [probe["path"] for probe in probes] == ["/-/healthy", "/-/healthy", "/-/ready"]
    assert {probe["path"] for probe in probes} <= routes
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert port["containerPort"] == _defaults().listen.port


def test_prometheus_finds_every_node() -> None:
    """The headless service and the annotations lead to the container's port, node by node."""
    objects = sum_up()
    service, template = only(objects, "Service")["spec"], only(objects, "DaemonSet")["spec"]["template"]
    (port,) = _container(objects)["ports"]
    (service_port,) = service["ports"]

    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert (service_port["targetPort"], service_port["port"]) == (port["name"], port["containerPort"])
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_no_gpu_is_taken() -> None:
    """The exporter asks for a little CPU and memory, within a limit of memory, and for no GPU."""
    resources = _container(sum_up())["resources"]

    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


def test_the_image_has_the_version_of_the_project() -> None:
    """The tag in the kustomization is the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert _container(sum_up())["image"] == f"{project['name']}:{project['version']}"


def test_the_driver_is_let_go_while_it_is_exchanged() -> None:
    """Whatever marks a node as one with a GPU, the pod leaves it while the GPU Operator pauses its own."""
    affinity = pod_spec(sum_up())["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    pauses = [term["matchExpressions"][1] for term in terms]

    assert {(pause["key"], pause["operator"]) for pause in pauses} == {
        ("nvidia.com/gpu.deploy.dcgm-exporter", "NotIn")
    }
    assert {value for pause in pauses for value in pause["values"]} == {
        "paused-for-driver-upgrade",
        "paused-for-mig-change",
    }


def test_the_nvidia_runtime_is_left_to_a_component() -> None:
    """The base names no runtime class, for a class that a cluster lacks keeps pods from being made."""
    assert "runtimeClassName" not in pod_spec(sum_up())
    assert pod_spec(sum_up("nvidia-runtime"))["runtimeClassName"] == "nvidia"


def test_components_that_widen_rights_widen_only_these() -> None:
    """Monitoring MIG adds one capability; GKE's device nodes and AMD's need a privileged container."""
    context = {name: _container(sum_up(name))["securityContext"] for name in COMPONENTS}

    assert context["mig-monitor"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert {name for name in COMPONENTS if context[name]["privileged"]} == {"amd", "gke"}
    assert all(each["readOnlyRootFilesystem"] for each in context.values())


def test_nodes_of_amd_are_added_to_those_of_the_base() -> None:
    """The component for AMD takes no node away: on a mixed cluster one DaemonSet serves both."""

    def terms(*components: str) -> list:
        affinity = pod_spec(sum_up(*components))["affinity"]["nodeAffinity"]
        return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert terms("amd")[: len(terms())] == terms()
    added = [rule["key"] for term in terms("amd")[len(terms()) :] for rule in term["matchExpressions"]]
    assert added
    assert all("amd" in key or "1002" in key for key in added)


def test_the_page_on_deploying_names_what_exists() -> None:
    """Every component is on the page, and every variable and flag on the page exists."""
    page = (ROOT / "docs/deploy.md").read_text()
    table = settings_markdown()

    assert [name for name in COMPONENTS if f"components/{name}`" not in page] == []
    assert set(re.findall(r"GPUSLICE_[A-Z_]+", page)) <= set(re.findall(r"GPUSLICE_[A-Z_]+", table))
    assert all(
        Path(ROOT, path).exists() for path in re.findall(r"`((?:deploy|docs|exporter)/[\w./-]+)`", page)
    )
