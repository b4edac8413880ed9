"""What keeps the replicas of one device apart, MPS or time-slicing, by whatever tells it on this node.

First counts what the device itself does: a client of MPS, or the exclusive-process compute mode, into which
NVIDIA's MPS daemon puts its GPUs, prove MPS; any other compute mode rules that daemon out. GKE's daemon is
another one, so that there the mode rules nothing out. Then counts the directory of the daemon, then the
labels of the node. Whichever of them says otherwise than what is found is objected to: it is out of date, or
about other devices than it seems.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from exporter.model import DeviceProcess, FileProblem, SystemFiles
from exporter.sharing.base.inventory import GKE, Device, parse_device_id
from exporter.sharing.base.reading import names, problem
from exporter.sharing.base.system import Roots, whole_keys
from exporter.sharing.base.view import View

Strategy = Literal["mps", "time-slicing", ""]

SYSTEM = "nvidia"
SHARED = ".shared"
GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_REPLICAS = "cloud.google.com/gke-max-shared-clients-per-gpu"
# Where nothing is shared, or MIG cannot be told, the plugin's label says none or nothing.
STRATEGIES: Mapping[str, Strategy] = {"mps": "mps", "time-slicing": "time-slicing", "none": "", "": ""}
GKE_STRATEGIES: Mapping[str, Strategy] = {"mps": "mps", "time-sharing": "time-slicing", "": ""}
NUMBER = re.compile(r"[0-9]{1,9}")
LABELS = (
    whole_keys(GKE_STRATEGY, GKE_REPLICAS),
    re.compile(r"nvidia\.com/[A-Za-z0-9._-]+\.(?:sharing-strategy|replicas)"),
)


class Strategies:
    """The strategies of one poll, by device and resource."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._labels = view.facts.node.labels if view.facts.node is not None else {}
        files = view.facts.files.get(SYSTEM)
        self._daemons = files.names if files is not None else {}
        offered, allocated = view.allocations.offered or (), view.allocations.allocated
        self._replicas: dict[str, int | None] = {}
        self._gke = {device.resource for device in offered if GKE.fullmatch(device.device_id)} | {
            allocation.resource for allocation in allocated if GKE.fullmatch(allocation.device_id)
        }

    def is_gke(self, resource: str) -> bool:
        """Whether it is GKE's plugin that gives the resource out."""
        return resource in self._gke

    def of(self, device: Device, resource: str) -> Strategy:
        """Return how the replicas of a device are kept apart, "" where nothing tells it."""
        daemon: Strategy = "mps" if resource in self._daemons else ""
        label = self._labelled(resource)
        strategy = self._seen(device, resource) or daemon or label or _by_default(device)
        uuid = device.key.mig_uuid or device.key.uuid
        if daemon not in ("", strategy):
            self._object("file", self._daemons[resource], f"it says MPS, but {uuid} is in {strategy}")
        if label not in ("", strategy):
            self._object("label", self._name(resource), f"it says {label}, but {uuid} is in {strategy}")
        return strategy

    def replicas(self, resource: str) -> int | None:
        """Return how many replicas each device of a resource has, as a label says that no id of it denies.

        For a kubelet that does not list what is offered.
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
            self._object("label", name, f"{text!r} is no number of replicas")
            return None
        allocated = self._view.allocations.allocated
        places = {_place(allocation.device_id) for allocation in allocated if allocation.resource == resource}
        if any(place is None or place >= int(text) for place in places):
            self._object("label", name, f"not every id of {resource} is one of {text} replicas")
            return None
        return int(text)

    def _seen(self, device: Device, resource: str) -> Strategy:
        """Return what the device itself does. Of all plugins, GKE's alone has MPS on MIG devices."""
        gpu = device.gpu
        if device.mig is not None and not self.is_gke(resource):
            return "time-slicing"
        if any("mps" in process.kinds for process in _processes(device) or ()):
            return "mps"
        if gpu.compute_mode == "exclusive_process":
            return "mps"
        return "" if gpu.compute_mode is None or self.is_gke(resource) else "time-slicing"

    def _labelled(self, resource: str) -> Strategy:
        """Read the label about this very resource; renamed replicas are labelled by their old name."""
        words = GKE_STRATEGIES if self.is_gke(resource) else STRATEGIES
        word = self._labels.get(self._name(resource), "")
        if self.is_gke(resource):
            # Nodes that GKE makes by itself have the words of its API: TIME_SHARING, MPS.
            word = word.lower().replace("_", "-")
        if word not in words:
            self._object("label", self._name(resource), f"{word!r} is no strategy of sharing")
        return words.get(word, "")

    def _name(self, resource: str) -> str:
        return GKE_STRATEGY if self.is_gke(resource) else f"{resource.removesuffix(SHARED)}.sharing-strategy"

    def _object(self, what: str, about: str, text: str) -> None:
        named = about if what == "file" else f"the node's label {about}"
        self._view.object_to(SYSTEM, what, named, text)


def _by_default(device: Device) -> Strategy:
    """Take a device that tells anything for one of which it would have told MPS."""
    informative = _processes(device) is not None or device.gpu.compute_mode is not None
    return "time-slicing" if informative else ""


def _processes(device: Device) -> tuple[DeviceProcess, ...] | None:
    return device.gpu.processes if device.mig is None else device.mig.processes


def _place(device_id: str) -> int | None:
    """Return the number of a replica among those of its device, None for what is no replica."""
    parsed = parse_device_id(device_id)
    return int(parsed.replica) if parsed is not None and NUMBER.fullmatch(parsed.replica) else None


STARTED = ".started"
# A node has a handful of resources; beside them lie the sockets and logs of the daemons.
MOST = 64


def read_daemons(roots: Roots) -> SystemFiles:
    """Return the resources that an MPS daemon serves as ``names``, each with the path of its file."""
    started: dict[str, str] = {}
    problems: list[FileProblem] = []
    for folder in _folders(roots.mps, problems):
        for path in _folders(folder, problems):
            try:
                if stat.S_ISREG(os.lstat(path / STARTED).st_mode):
                    started[f"{folder.name}/{path.name}"] = str(path / STARTED)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(problem(path / STARTED, error.strerror))
    return SystemFiles(names=started, problems=tuple(problems))


def _folders(parent: Path, problems: list[FileProblem]) -> Iterator[Path]:
    try:
        entries = names(parent, MOST)
    except OSError as error:
        problems.append(problem(parent, error.strerror))
        return
    yield from (parent / name for name in entries if not name.startswith("."))
