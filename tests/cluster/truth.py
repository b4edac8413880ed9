"""What containerd runs on a real node, and what the exporter reports of it."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.node import Node, until
from tests.cluster.plugin import VARIABLE

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
    found = [
        (int(pid), json.loads(node.ctr("containers", "info", name)))
        for name, pid, state in rows
        if state == "RUNNING"
    ]
    return [
        _task(pid, info) for pid, info in found if info["Labels"]["io.cri-containerd.kind"] == "container"
    ]


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
    """Return a container of the namespace ``default`` with another id, waiting until it runs."""

    def running() -> Task | None:
        found = [each for each in tasks(node) if (each.pod, each.container) == (f"default/{pod}", container)]
        return next((each for each in found if each.id != instead_of), None)

    return until(f"{pod}/{container} runs", running)


def slices(found: list[Task]) -> dict[Holder, int]:
    """Return the number of devices that each container has of each GPU."""
    held = [
        Holder(each.pod, each.uid, each.container, _gpu(device)) for each in found for device in each.devices
    ]
    return dict(Counter(held))


def _gpu(device: str) -> str:
    return device.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A release of the chart; ``address`` is that of its pod."""

    node: Node
    release: str
    address: str

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
