"""Device memory of cgroups, from the files of the kernel's controller ``dmem`` (cgroup v2, Linux 6.14).

The root has ``dmem.capacity``; a cgroup whose parent enables the controller has ``dmem.current``,
``dmem.min`` (soft limit) and ``dmem.max`` (hard limit), with a line ``<region> <bytes or max>`` for each
region. Regions:
``nvidia/00000000:02:00.0/vidmem``, ``drm/0000:08:00.0/vram`` (amdgpu), ``drm/0000:03:00.0/vram0`` (xe, by
tile). Not read in a source: whether a kubelet or runc enables the controller for containers. Without the
files nothing is known. Names of cgroups can be chosen by containers that have a part of the tree to
themselves.
"""

import os
import re
import stat
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.model.memory_limits import Cgroup, CgroupTree, pci_key
from exporter.model.readings import CgroupMemory
from exporter.workloads.cgroups import CgroupPlace, parse_cgroup

_REGION = re.compile(
    r"(?:nvidia|drm)/([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])/(vidmem|vram[0-9]{0,2})"
)
_BYTES = re.compile(r"[0-9]{1,19}")
# What the kernel writes instead of a number: no limit.
_MAX = "max"
UNLIMITED = -1
# The files have a line for each region; a node has tens of them.
_MOST_BYTES = 64 << 10
# Containers can make cgroups, up to the kernel's limits. The walk is breadth first, so that a deep or wide
# part of the tree does not hide the containers, which are four levels below the root.
MOST_CGROUPS, MOST_LEVELS = 20_000, 16
MOST_PROBLEMS = 100
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_tree(root: Path, own_uid: str, own_path: str, asked: Collection[str] = ()) -> CgroupTree:
    """Return the cgroups of a node; blocks, never raises.

    ``own_uid`` is the uid of the exporter's pod, ``own_path`` its own cgroup; "" if unknown. ``asked`` are
    PCI addresses of GPUs whose driver can be asked about cgroups: if the kernel does not meter one of these,
    containers without files of ``dmem`` are returned, too. Otherwise parts of the tree without these files
    are not read.
    """
    walk = _Walk(str(root))
    try:
        walk.capacity = {pci: size for pci, size in walk.regions("", "dmem.capacity").items() if size > 0}
    except FileNotFoundError:
        walk.capacity = {}
    except (OSError, ValueError) as error:
        walk.object_to("dmem.capacity", error)
        asked = ()  # the kernel may meter them
    walk.every_container = not walk.capacity.keys() >= set(map(pci_key, asked))
    if walk.capacity or walk.every_container:
        walk.run()
    own = [
        path
        for path, cgroup in walk.cgroups.items()
        if path == own_path or (own_uid and any(uid == own_uid for uid, _ in cgroup.places))
    ]
    return CgroupTree(
        root=str(root),
        capacity=walk.capacity,
        cgroups=walk.cgroups,
        own=frozenset(own),
        problems=tuple(walk.problems),
    )


def parse_regions(text: str) -> dict[str, int]:
    """Return bytes by PCI address, UNLIMITED for ``max``; the tiles of one GPU are added up.

    Lines in another form are left out. A GPU is not observed if its memory occurs twice, under one name, in
    two spellings of the address, or under the names of two drivers or of a whole and its tiles.
    """
    amounts: dict[str, dict[str, int | None]] = defaultdict(dict)
    for line in text.splitlines():
        name, _, amount = line.strip().rpartition(" ")
        match = _REGION.fullmatch(name)
        if match is None:
            continue
        of_gpu = amounts[pci_key(match[1])]
        valid = amount == _MAX or (_BYTES.fullmatch(amount) is not None and int(amount) < 1 << 62)
        known = (UNLIMITED if amount == _MAX else int(amount)) if valid and match[2] not in of_gpu else None
        of_gpu[match[2]] = known
    return {pci: sum_of for pci, each in amounts.items() if (sum_of := _sum(each)) is not None}


def _sum(amounts: Mapping[str, int | None]) -> int | None:
    """Return the sum of a GPU's regions, which are its tiles or one."""
    known = [amount for amount in amounts.values() if amount is not None]
    whole = not amounts.keys().isdisjoint(("vidmem", "vram"))
    if len(known) < len(amounts) or (whole and len(amounts) > 1):
        return None
    return UNLIMITED if UNLIMITED in known else sum(known)


def own_cgroup(text: str) -> str:
    """Return the path of the exporter's cgroup from its cgroup file, "" if it does not show it.

    In a private cgroup namespace the path is relative to an unknown one.
    """
    paths = [line.removeprefix("0::") for line in text.split("\n") if line.startswith("0::/")]
    return paths[0] if paths and paths[0] != "/" and ".." not in paths[0].split("/") else ""


@dataclass(slots=True)
class _Walk:
    """One walk through the tree."""

    root: str
    every_container: bool = False
    capacity: Mapping[str, int] = field(default_factory=dict)
    cgroups: dict[str, Cgroup] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def object_to(self, about: str, text: object) -> None:
        """Add the problem of a file; up to MOST_PROBLEMS of them."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{about}: {text}".encode(errors="backslashreplace").decode())

    def run(self) -> None:
        """Visit the cgroups level by level."""
        queue = deque([("", 0)])
        visited = 0
        while queue:
            path, level = queue.popleft()
            for name in self._children(path):
                visited += 1
                if visited > MOST_CGROUPS:
                    self.object_to(self.root, f"has more than {MOST_CGROUPS} cgroups; the rest is not read")
                    return
                child = f"{path}/{name}"
                if self._visit(child) and level + 1 < MOST_LEVELS:
                    queue.append((child, level + 1))

    def _children(self, path: str) -> list[str]:
        try:
            with os.scandir(self.root + path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []  # removed meanwhile
        except OSError as error:
            self.object_to(path or self.root, error.strerror)
            return []

    def _visit(self, path: str) -> bool:
        """Add a cgroup if it has files, or is a container's; return whether to visit those below it."""
        try:
            memory = self._memory(path) if self.capacity else None
        except (OSError, ValueError) as error:
            self.object_to(path, error)
            memory = {}
        places = tuple(_places(parse_cgroup(f"0::{path}\n")))
        if memory is not None or (self.every_container and any(container for _, container in places)):
            self.cgroups[path] = Cgroup(path=path, places=places, memory=memory or {})
        return memory is not None or self.every_container

    def _memory(self, path: str) -> dict[str, CgroupMemory] | None:
        """Return the memory of a cgroup by GPU, None if it has no files.

        Raises OSError and ValueError for a file that cannot be used.
        """
        try:
            used = self.regions(path, "dmem.current")
        except FileNotFoundError:
            return None
        try:
            soft, hard = self.regions(path, "dmem.min"), self.regions(path, "dmem.max")
        except FileNotFoundError:
            return None  # removed meanwhile
        return {
            pci: _memory_of(used[pci], soft[pci], hard[pci], size)
            for pci, size in self.capacity.items()
            if pci in used and pci in soft and pci in hard
        }

    def regions(self, path: str, name: str) -> dict[str, int]:
        """Return the amounts in a file by GPU; raises OSError, or ValueError for a file of another kind."""
        file = os.open(f"{self.root}{path}/{name}", _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError(f"{name} is not a regular file")
            data = b""
            while len(data) <= _MOST_BYTES and (portion := os.read(file, _MOST_BYTES + 1 - len(data))):
                data += portion
        finally:
            os.close(file)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{name} is longer than {_MOST_BYTES} bytes")
        return parse_regions(data.decode("utf-8", "replace"))


def _memory_of(used: int, soft: int, hard: int, capacity: int) -> CgroupMemory:
    """Return the memory of a cgroup; more in use than the GPU has was not observed."""
    return CgroupMemory(
        used=used if 0 <= used <= capacity else None,
        guaranteed=capacity if soft == UNLIMITED else min(soft, capacity),
        limit=None if hard == UNLIMITED or hard >= capacity else hard,
    )


def _places(place: CgroupPlace) -> Iterator[tuple[str, str]]:
    """Yield (pod uid, container id) of the pods that a path names, innermost first."""
    if place.pod_uid is not None or place.container_id is not None:
        yield place.pod_uid or "", place.container_id or ""
    for uid, container in place.outer:
        yield uid, container or ""
