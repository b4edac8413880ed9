"""Processes that no GPU knows: the sandbox of each pod, and one of each container that uses no GPU.

A container that runs has a process, and a pod that runs has one more that holds its namespaces.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from exporter.demo import cgroups
from exporter.demo.present import Present
from exporter.demo.schema import CgroupStyle
from exporter.demo.schema_pods import Pod

# Above the pids of scenarios, below the highest that a kernel gives out.
BYSTANDERS = range(4_010_000, 4_190_000)
OVER = frozenset({"Succeeded", "Failed"})


class Bystander(NamedTuple):
    """A process by its command name, the uid of its pod and the path of its cgroup."""

    command: str
    uid: str
    path: str


def bystanders(now: Present, style: CgroupStyle) -> Iterator[Bystander]:
    """Yield the processes without a GPU; pods that are over have none, init containers have ended."""
    busy = {(each.pod.uid, each.container.name) for each in now.running if each.pod and each.container}
    for pod in now.pods:
        if pod.phase in OVER:
            continue
        sandbox = hashlib.sha256(pod.uid.encode()).hexdigest()
        yield Bystander("pause", pod.uid, _path(pod, sandbox, style))
        for container in pod.containers:
            runs = container.container_id and not container.init and (pod.uid, container.name) not in busy
            if runs:
                yield Bystander("sleep", pod.uid, _path(pod, container.container_id, style))


def _path(pod: Pod, container_id: str, style: CgroupStyle) -> str:
    return cgroups.container_path(pod.uid, pod.qos, container_id, style)
