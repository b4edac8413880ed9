"""MPS or time-slicing: the sharing strategy of a device with replicas.

In this order count: the device, the files of the MPS daemon, the labels of the node. On the device, an MPS
client or the exclusive-process compute mode, which NVIDIA's MPS daemon sets, prove MPS; any other compute
mode excludes that daemon, but not GKE's. A file or label that differs from the result is a problem: it is
out of date, or is for other devices.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from exporter.model import Problem, SystemFiles
from exporter.sharing.base import Roots, whole_keys
from exporter.sharing.base.inventory import GKE, Device, parse_device_id
from exporter.sharing.base.reading import names_or_problem, problem
from exporter.sharing.base.view import View

Strategy = Literal["mps", "time-slicing", ""]

SYSTEM = "nvidia"
SHARED = ".shared"
GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_REPLICAS = "cloud.google.com/gke-max-shared-clients-per-gpu"
# The plugin's label is "none" or empty if nothing is shared, or if MIG cannot be labelled.
STRATEGIES: Mapping[str, Strategy] = {"mps": "mps", "time-slicing": "time-slicing", "none": "", "": ""}
GKE_STRATEGIES: Mapping[str, Strategy] = {"mps": "mps", "time-sharing": "time-slicing", "": ""}
NUMBER = re.compile(r"[0-9]{1,9}")
LABELS = (
    whole_keys(GKE_STRATEGY, GKE_REPLICAS),
    re.compile(r"nvidia\.com/[A-Za-z0-9._-]+\.(?:sharing-strategy|replicas)"),
)
STARTED = ".started"
# A node has a handful of resources; the folder also has sockets and logs of the daemons.
MOST = 64


class Strategies:
    """The strategies of one poll, by device and resource."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._labels = view.node_labels
        self._daemons = view.files(SYSTEM).names
        offered, allocated = view.allocations.offered or (), view.allocations.allocated
        self._replicas: dict[str, int | None] = {}
        self._gke = {device.resource for device in offered if GKE.fullmatch(device.device_id)} | {
            allocation.resource for allocation in allocated if GKE.fullmatch(allocation.device_id)
        }

    def is_gke(self, resource: str) -> bool:
        """Return True if a resource has ids of GKE's plugin."""
        return resource in self._gke

    def of(self, device: Device, resource: str) -> Strategy:
        """Return the strategy of a device, "" if unknown; adds problems for contradictions."""
        daemon: Strategy = "mps" if resource in self._daemons else ""
        label = self._labelled(resource)
        strategy = self._seen(device, resource) or daemon or label or _by_default(device)
        uuid = device.key.mig_uuid or device.key.uuid
        if daemon not in ("", strategy):
            self._object("file", self._daemons[resource], f"means MPS, but {uuid} uses {strategy}")
        if label not in ("", strategy):
            self._object("label", self._name(resource), f"means {label}, but {uuid} uses {strategy}")
        return strategy

    def replicas(self, resource: str) -> int | None:
        """Return the replicas of each device of a resource, by a label that fits all held ids.

        For kubelets that do not report allocatable ids.
        """
        if resource not in self._replicas:
            self._replicas[resource] = self._labelled_replicas(resource)
        return self._replicas[resource]

    def _labelled_replicas(self, resource: str) -> int | None:
        name = GKE_REPLICAS if self.is_gke(resource) else f"{resource.removesuffix(SHARED)}.replicas"
        text = self._labels.get(name)
        if text is None:
            return None
        if not NUMBER.fullmatch(text):
            self._object("label", name, f"{text!r} is not a number of replicas")
            return None
        allocated = self._view.allocations.allocated
        replicas = {_replica(device_id) for _, other, device_id in allocated if other == resource}
        if any(replica is None or replica >= int(text) for replica in replicas):
            self._object("label", name, f"not every id of {resource} is one of {text} replicas")
            return None
        return int(text)

    def _seen(self, device: Device, resource: str) -> Strategy:
        """Return the strategy that the device proves. Only GKE's plugin has MPS on MIG devices."""
        gpu = device.gpu
        if device.mig is not None and not self.is_gke(resource):
            return "time-slicing"
        if device.has_mps_clients:
            return "mps"
        if gpu.compute_mode == "exclusive_process":
            return "mps"
        return "" if gpu.compute_mode is None or self.is_gke(resource) else "time-slicing"

    def _labelled(self, resource: str) -> Strategy:
        """Return the strategy in the resource's label; labels of renamed replicas have the old name."""
        words = GKE_STRATEGIES if self.is_gke(resource) else STRATEGIES
        word = self._labels.get(self._name(resource), "")
        if self.is_gke(resource):
            # Auto-provisioned GKE nodes have the words of its API: TIME_SHARING, MPS.
            word = word.lower().replace("_", "-")
        if word not in words:
            self._object("label", self._name(resource), f"{word!r} is not a sharing strategy")
        return words.get(word, "")

    def _name(self, resource: str) -> str:
        return GKE_STRATEGY if self.is_gke(resource) else f"{resource.removesuffix(SHARED)}.sharing-strategy"

    def _object(self, what: str, about: str, text: str) -> None:
        named = about if what == "file" else f"the node's label {about}"
        self._view.object_to(SYSTEM, what, named, text)


def _by_default(device: Device) -> Strategy:
    """Return time-slicing for a device with any reading that would show MPS."""
    informative = device.processes is not None or device.gpu.compute_mode is not None
    return "time-slicing" if informative else ""


def _replica(device_id: str) -> int | None:
    """Return the number of a replica, None if the id has no replica."""
    parsed = parse_device_id(device_id)
    return int(parsed.replica) if parsed is not None and NUMBER.fullmatch(parsed.replica) else None


def read_daemons(roots: Roots) -> SystemFiles:
    """Return the resources with an MPS daemon as ``names``, with the path of the daemon's file; blocks."""
    started: dict[str, str] = {}
    problems: list[Problem] = []
    for folder in _entries(roots.mps, problems):
        for path in _entries(folder, problems):
            try:
                if stat.S_ISREG(os.lstat(path / STARTED).st_mode):
                    started[f"{folder.name}/{path.name}"] = str(path / STARTED)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(problem(path / STARTED, error.strerror))
    return SystemFiles(names=started, problems=tuple(problems))


def _entries(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    listed = names_or_problem(folder, MOST, problems)
    return (folder / name for name in listed if not name.startswith("."))
