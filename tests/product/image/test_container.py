"""The image runs as in the DaemonSet: with its restrictions, mounts and probes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.product.deploy.rendering import composed, pod_spec
from tests.product.image.engine import output, podman, require_engine
from tests.product.image.node import CONTAINER, GPU, POD, Node, running_node
from tests.product.image.pod import NODE_NAME, Running, Spec, once, running

# The first test of a run waits for the image, for minutes if nothing is cached.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]

WRITE = "import sys; open(sys.argv[1] + '/written', 'w')"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Run a node; only root can make the cgroup of its process."""
    require_engine()
    with running_node() as node:
        yield node


@pytest.fixture(scope="module")
def spec() -> Spec:
    """Return the spec of the pods on a kubelet with the Pods API."""
    return pod_spec(composed("pods-api"))


@pytest.fixture(scope="module")
def pod(image: str, spec: Spec, node: Node) -> Iterator[Running]:
    """Run the image until it is ready."""
    with running(image, spec, node) as pod:
        yield pod


def _status(pod: Running) -> dict[str, str]:
    """Return the kernel's status of the program's process."""
    lines = Path(f"/proc/{pod.inspect()['State']['Pid']}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_the_program_is_root_without_capabilities(pod: Running):
    """It cannot gain any, and has a seccomp filter."""
    status = _status(pod)

    assert status["Uid"].split() == status["Gid"].split() == ["0"] * 4
    capabilities = [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    assert capabilities == ["0" * 16] * 5
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_the_program_cannot_write(pod: Running):
    """Not to the root, the folder for temporary files, or a mount of the manifest."""
    mounts = [mount["mountPath"] for mount in pod.spec["containers"][0]["volumeMounts"]]

    for folder in ("", "/tmp", "/root", "/run", "/opt/gpuslice", *mounts):
        done = pod.execute("python", "-c", WRITE, folder)
        assert "Read-only file system" in done.stderr, folder


def test_page_metrics_and_probes_answer(pod: Running):
    """With 200, to a client inside."""
    container = pod.spec["containers"][0]
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}

    answers = {path: pod.fetch(path) for path in ("/", "/metrics", *probes)}

    assert {path: status for path, (status, _) in answers.items()} == dict.fromkeys(answers, 200)
    assert f"<title>{NODE_NAME}" in answers["/"][1]
    assert f'uuid="{GPU}"' in answers["/metrics"][1]


def test_the_page_loads_the_script_of_its_charts(pod: Running):
    _, page = pod.fetch("/")
    (address, *_) = [word for word in page.split('"') if word.endswith("plotly.min.js")]

    status, script = pod.fetch(f"/{address}")

    assert status == 200
    assert "plotly.js v" in script[:500]


def test_a_process_of_the_node_is_found_in_its_pod(pod: Running):
    """The driver's memory of a real process of the machine is that of its pod and container."""
    _, metrics = pod.fetch("/metrics")

    labels = f'namespace="{POD.namespace}",pod="{POD.name}",container="worker"'
    lines = [line for line in metrics.splitlines() if labels in line and f'uuid="{GPU}"' in line]
    used = [line for line in lines if line.startswith("gpuslice_container_memory_used_bytes")]
    assert [float(line.split()[-1]) for line in used] == [2 << 30], lines


def test_the_health_check_of_the_image_succeeds(pod: Running):
    """Engines without probes run it."""
    output(*podman("healthcheck", "run", pod.name))


def test_the_container_has_the_limit_of_memory(pod: Running):
    """The program has not reached it."""
    (container,) = pod.spec["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20

    assert pod.inspect()["HostConfig"]["Memory"] == limit
    assert int(_status(pod)["VmHWM"].split()[0]) << 10 < limit


def _doctor(*arguments: Any, **options: Any) -> tuple[int, dict[str, dict[str, str]], str]:
    done = once(*arguments, "doctor", "--json", **options)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return done.returncode, {check["name"]: check for check in report["checks"]}, done.stdout


def test_the_doctor_finds_all_well(image: str, spec: Spec, node: Node):
    """Except what the hardware does not have."""
    code, checks, text = _doctor(image, spec, node)

    assert code == 0, text
    assert {check["status"] for check in checks.values()} <= {"OK", "absent"}
    needed = ("driver", "GPU 0", "pod-resources", "device ids", "processes", "pod names")
    assert {name: checks[name]["status"] for name in needed} == dict.fromkeys(needed, "OK")


def _problems(checks: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] not in ("OK", "absent")}


def test_the_doctor_names_the_missing_mount(image: str, spec: Spec, node: Node):
    (container,) = spec["containers"]
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] != "pod-resources"]
    code, checks, text = _doctor(image, spec | {"containers": [container | {"volumeMounts": mounts}]}, node)

    assert code == 3, text
    assert _problems(checks) == {"pod-resources"}
    assert "/var/lib/kubelet/pod-resources" in checks["pod-resources"]["remedy"]


def test_the_doctor_asks_for_the_pid_namespace_of_the_host(image: str, spec: Spec, node: Node):
    """If the view of processes is missing without it."""
    code, checks, text = _doctor(image, spec | {"hostPID": False}, node)

    assert code == 3, text
    assert _problems(checks) == {"processes"}
    assert "hostPID: true" in checks["processes"]["remedy"]


def test_the_doctor_says_how_to_get_the_driver_into_the_container(image: str, spec: Spec, node: Node):
    """If no runtime has injected it: by the runtime class and the variable."""
    code, checks, text = _doctor(image, spec, node, driver=False)

    assert code == 3, text
    assert "libnvidia-ml.so.1" in checks["driver"]["found"]
    assert "runtimeClassName nvidia and NVIDIA_VISIBLE_DEVICES=all" in checks["driver"]["found"]


def test_it_ends_by_the_signal_of_kubernetes(image: str, spec: Spec, node: Node):
    """By itself: the grace period is long enough on any machine."""
    with running(image, spec, node) as pod:
        output(*podman("stop", "--time=120", pod.name))

        assert pod.inspect()["State"]["ExitCode"] == 0


def test_the_demo_needs_only_a_folder_for_temporary_files(image: str):
    """In the same image, with nothing else that is writable."""
    limits = ["--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096"]
    confined = ["--rm", "--network=none", "--read-only", "--cap-drop=all", "--tmpfs=/tmp", *limits]
    words = podman("run", *confined, image, "snapshot", "--scenario", "a100-mig-mixed")

    assert "A100" in output(*words)


def test_the_cgroup_of_the_pod_is_the_kubelets(node: Node):
    """That of the process on the machine."""
    assert f"pod{POD.uid}/{CONTAINER}" in Path(f"/proc/{node.holder}/cgroup").read_text()
    assert os.getuid() == 0
