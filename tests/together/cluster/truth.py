"""The containers that containerd runs on a real node, and the exporter's reports on them."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.together.cluster.node import Node
from tests.together.cluster.plugin import VARIABLE
from tests.waiting import wait_until

PORT = 9836


class Holder(NamedTuple):
    """A container on a GPU."""

    pod: str  # namespace/name
    uid: str
    container: str
    gpu: str  # UUID


@dataclass(frozen=True, slots=True)
class Task:
    """A container that runs, as containerd has it."""

    id: str
    pid: int  # of its first process
    pod: str  # namespace/name
    uid: str
    container: str
    devices: tuple[str, ...]  # ids that the device plugin gave it

    @property
    def key(self) -> tuple[str, str, str]:
        """The labels of its samples: GPU, pod and container."""
        return (_gpu(self.devices[0]), self.pod, self.container)


def tasks(node: Node) -> list[Task]:
    """Return the containers of pods that run, without their sandboxes."""
    rows = [line.split() for line in node.ctr("tasks", "list").splitlines()[1:]]
    running = [(int(pid), name) for name, pid, state in rows if state == "RUNNING"]
    infos = [(pid, json.loads(node.ctr("containers", "info", name))) for pid, name in running]
    kind = "io.cri-containerd.kind"
    return [_task(pid, info) for pid, info in infos if info["Labels"][kind] == "container"]


def _task(pid: int, info: dict[str, Any]) -> Task:
    labels = {key.removeprefix("io.kubernetes."): text for key, text in info["Labels"].items()}
    environment = dict(each.split("=", 1) for each in info["Spec"]["process"]["env"])
    return Task(
        id=info["ID"],
        pid=pid,
        pod=f"{labels['pod.namespace']}/{labels['pod.name']}",
        uid=labels["pod.uid"],
        container=labels["container.name"],
        # The image of the exporter asks for "all" by the same variable.
        devices=tuple(each for each in environment.get(VARIABLE, "").split(",") if each.startswith("GPU-")),
    )


def task(node: Node, pod: str, container: str, *, instead_of: str = "") -> Task:
    """Wait until a container of the namespace ``default`` runs, with another id, and return it."""

    def running() -> Task | None:
        name = (f"default/{pod}", container)
        running = [each for each in tasks(node) if (each.pod, each.container) == name]
        return next((each for each in running if each.id != instead_of), None)

    return wait_until(running, f"{pod}/{container} runs")


def slices(running: list[Task]) -> dict[Holder, int]:
    """Return the number of devices that each container has of each GPU."""
    held = [
        Holder(each.pod, each.uid, each.container, _gpu(device))
        for each in running
        for device in each.devices
    ]
    return dict(Counter(held))


def _gpu(device: str) -> str:
    return device.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A release of the chart."""

    node: Node
    release: str
    address: str  # of its pod

    def fetch(self, path: str) -> str:
        """Return the body of a response with status 200."""
        url = f"http://{self.address}:{PORT}{path}"
        return self.node.output("curl", "--fail", "--silent", "--show-error", "--noproxy", "*", url)

    def rows(self) -> dict[Holder, dict[str, Any]]:
        """Return the rows of containers in the snapshot."""
        rows = json.loads(self.fetch("/api/v1/snapshot"))["containers"]
        return {
            Holder(f"{row['namespace']}/{row['pod']}", row["pod_uid"], row["container"], row["uuid"]): row
            for row in rows
        }

    def slices(self) -> dict[Holder, int | None]:
        """Return the number of slices that each holder has by the snapshot."""
        return {holder: row["slices"] for holder, row in self.rows().items()}

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the samples of a series by GPU, pod (namespace/name) and container, if it has these."""
        families = text_string_to_metric_families(self.fetch("/metrics"))
        samples = [sample for family in families for sample in family.samples]
        return {_key(each.labels): each.value for each in samples if each.name == f"gpuslice_{name}"}

    def doctor(self) -> list[dict[str, Any]]:
        """Return the checks of ``doctor``, run in the pod."""
        words = ("exec", f"daemonset/{self.release}-gpuslice-exporter", "--namespace=gpuslice", "--")
        return list(json.loads(self.node.kubectl(*words, "gpuslice-exporter", "doctor", "--json"))["checks"])


def _key(labels: dict[str, str]) -> tuple[str, ...]:
    pod = (f"{labels['namespace']}/{labels['pod']}", labels.get("container", "")) if "pod" in labels else ()
    return (labels.get("uuid", ""), *pod)
