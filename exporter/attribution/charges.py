"""What cgroups meter: the memory that is charged to each container on a GPU, and the limits in force.

Rule 14 of ``docs/join.md``. It needs no process list and no view of the host's processes.
"""

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.owners import owners
from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    GpuReading,
    PodName,
    ProcessPlace,
    Workloads,
    only,
    total,
    unambiguous,
)
from exporter.model.memory_limits import Backend, Cgroup, CgroupTree, Charge, pci_key
from exporter.model.readings import CgroupMemory

NVIDIA = "nvidia"
LIMITED_EXPORTER = (
    "not known: the exporter's own cgroup has a limit of this GPU's memory, so the driver reports that limit "
    "instead of the device"
)


class Place(NamedTuple):
    """A container of a pod, by the names in the path of its cgroup."""

    pod_uid: str
    container_id: str


@dataclass(frozen=True, slots=True)
class _Metered:
    """The memory of one GPU in the cgroup of one container."""

    backend: Backend
    used: int | None
    guaranteed: int = 0
    limit: int | None = None
    above: str = ""  # cgroup above the container's that has the limit; "" if it is its own

    @property
    def limited(self) -> bool:
        return self.guaranteed > 0 or self.limit is not None


class CgroupIndex:
    """The cgroups of the containers of a node."""

    def __init__(self, workloads: Workloads) -> None:
        self._tree = workloads.cgroups or CgroupTree()
        self._workloads = workloads
        self._pods = workloads.pods or {}
        self._places = self._placed()
        self._uids = unambiguous((pod.pod_name, pod.uid) for pod in self._pods.values())
        self._by_pod: dict[str, list[Place]] = defaultdict(list)
        for place in self._places:
            self._by_pod[place.pod_uid].append(place)
        # Outermost cgroups with that of another container somewhere below.
        tops = {chain[0] for chain in self._places.values()}
        self._around = {outer for top in tops for outer in _above(top) if outer in tops}

    def capacity(self, gpu: GpuReading) -> int | None:
        """Return the memory of a GPU that the kernel can charge to cgroups, in bytes; None if unknown."""
        return self._tree.capacity.get(pci_key(gpu.identity.pci_bus_id))

    def limits_exporter(self, gpu: GpuReading) -> bool:
        """Return whether the exporter's own cgroup has a limit of a GPU's memory."""
        memory = (self._memory(path, gpu) for path in self._tree.own)
        return gpu.identity.vendor == NVIDIA and any(each is not None and each.limited for each in memory)

    def to_ask(self, gpu: GpuReading, held: HoldingsIndex) -> tuple[str, ...]:
        """Return the directories of the cgroups that the driver of a GPU is to be asked about.

        They are those of its holders and the exporter's own, if the kernel does not meter the GPU.
        """
        if gpu.identity.vendor != NVIDIA or gpu.mig_enabled or self.capacity(gpu) is not None:
            return ()
        holders = held.on(DeviceKey(gpu.identity.uuid))
        paths = {self._places[place][-1] for ref in holders for place in self._places_of(ref)}
        return tuple(f"{self._tree.root}{path}" for path in sorted(paths | self._tree.own))

    def charges(
        self, gpu: GpuReading, holders: Collection[ContainerRef], unnamed: Collection[str]
    ) -> dict[ContainerRef, Charge]:
        """Return what is charged to each container on a GPU that answers and has no MIG devices.

        ``unnamed`` are uids of pods that are not named by elimination.
        """
        if gpu.mig_enabled or not gpu.up:
            return {}
        metered = {place: each for place in self._places if (each := self._metered(place, gpu)) is not None}
        # A limit above may be that of the pod, whose sandbox has it, too.
        active = [
            place for place, each in metered.items() if each.used != 0 or (each.limited and not each.above)
        ]
        by_ref, unsure, strays = self._owned(active, holders, unnamed)
        for ref in holders:
            idle = self._idle(ref, metered) if ref not in by_ref and ref.pod_name not in unsure else ()
            if idle:
                by_ref[ref] = list(idle)
        return {ref: self._charge(ref, by_ref, strays, metered) for ref in by_ref}

    def _owned(
        self, active: list[Place], holders: Collection[ContainerRef], unnamed: Collection[str]
    ) -> tuple[dict[ContainerRef, list[Place]], set[PodName], list[Place]]:
        """Return cgroups by container, the pods with one of an unknown container, and all of these."""
        # The rules that give a process to a container give a cgroup to it.
        members = tuple(
            DeviceProcess(pid=pid, memory=None, kinds=frozenset({"compute"})) for pid in range(len(active))
        )
        places = {
            pid: ProcessPlace(pid=pid, known=True, pod_uid=place.pod_uid, container_id=place.container_id)
            for pid, place in enumerate(active)
        }
        owned = owners(members, holders, replace(self._workloads, places=places), unnamed)
        by_owner = {ref: [active[each.pid] for each in group] for ref, group in owned.by_owner.items()}
        unsure = {ref.pod_name for ref in by_owner if not ref.container}
        strays = [active[each.pid] for each in owned.unknown]
        strays += [place for ref, group in by_owner.items() if not ref.container for place in group]
        return {ref: group for ref, group in by_owner.items() if ref.container}, unsure, strays

    def _idle(self, ref: ContainerRef, metered: Mapping[Place, _Metered]) -> tuple[Place, ...]:
        """Return the cgroups of a container to which nothing is charged; () if that is not observed."""
        places = tuple(self._places_of(ref))
        idle = all(place in metered and metered[place].used == 0 for place in places)
        return places if idle else ()

    def _charge(
        self,
        ref: ContainerRef,
        by_ref: Mapping[ContainerRef, list[Place]],
        strays: list[Place],
        metered: Mapping[Place, _Metered],
    ) -> Charge:
        own = [metered[place] for place in by_ref[ref]]
        used = total([each.used for each in own])
        limited = only(each for each in own if each.limited)
        if limited is None:
            return Charge(backend=own[0].backend, used=used)
        others = [place for other, places in by_ref.items() if other != ref for place in places] + strays
        shared = bool(limited.above) and any(self._is_below(place, limited.above) for place in others)
        # The driver has one figure for all containers below a limit of its own.
        if shared and limited.backend == "misc":
            used = None
        ceiling = limited.guaranteed if limited.limit is None else min(limited.guaranteed, limited.limit)
        return Charge(
            backend=limited.backend,
            used=used,
            guaranteed=ceiling,
            limit=limited.limit,
            above=bool(limited.above),
            shared=shared,
        )

    def _is_below(self, place: Place, path: str) -> bool:
        return self._places[place][0].startswith(f"{path}/")

    def _places_of(self, ref: ContainerRef) -> Iterator[Place]:
        """Yield the cgroups that can be a container's: by its id, or all of a pod with one container."""
        pod = self._pods.get(self._uids.get(ref.pod_name, ""))
        if pod is None:
            return
        alone = not pod.container_ids and set(pod.containers) == {ref.container}
        for place in self._by_pod.get(pod.uid, ()):
            if alone or pod.container_ids.get(place.container_id) == ref.container:
                yield place

    def _metered(self, place: Place, gpu: GpuReading) -> _Metered | None:
        """Return what the kernel, or else the driver, meters of a container; None if neither does."""
        chain = self._places[place]
        if self.capacity(gpu) is None:
            return self._by_driver(chain[-1], gpu)
        top, leaf = self._memory(chain[0], gpu), self._memory(chain[-1], gpu)
        if top is None:
            return None
        limit, above = self._limit(chain, gpu)
        return _Metered(
            "dmem",
            used=None if chain[0] in self._around else top.used,
            guaranteed=(leaf or top).guaranteed,
            limit=limit,
            above=above,
        )

    def _limit(self, chain: tuple[str, ...], gpu: GpuReading) -> tuple[int | None, str]:
        """Return the lowest hard limit of a container's cgroup and of those above, and which of those.

        The kernel enforces each of them on all cgroups below together.
        """
        limits: list[tuple[int, str]] = []
        for path in (chain[-1], *_above(chain[-1])):
            memory = self._memory(path, gpu)
            if memory is not None and memory.limit is not None:
                limits.append((memory.limit, path if len(path) < len(chain[0]) else ""))
        return min(limits) if limits else (None, "")

    def _by_driver(self, path: str, gpu: GpuReading) -> _Metered | None:
        """Return the driver's answer for a cgroup with a limit, which may be that of the cgroup above.

        Its limits do not nest. What it meters in a cgroup without a limit is not documented.
        """
        memory, above = self._memory(path, gpu), posixpath.dirname(path)
        if memory is None or not memory.limited:
            return None
        inherited = self._memory(above, gpu) == memory
        return _Metered("misc", memory.used, memory.guaranteed, memory.limit, above if inherited else "")

    def _memory(self, path: str, gpu: GpuReading) -> CgroupMemory | None:
        if self.capacity(gpu) is None:
            return gpu.cgroup_memory.get(f"{self._tree.root}{path}")
        cgroup = self._tree.cgroups.get(path)
        return None if cgroup is None else cgroup.memory.get(pci_key(gpu.identity.pci_bus_id))

    def _placed(self) -> dict[Place, tuple[str, ...]]:
        """Return the cgroups of each container, outermost first: its own, and the only line of those in it.

        Of several apart from each other, the one in the fewest pods is the container's: a container with a
        part of the tree to itself can give any name to a cgroup below its own.
        """
        pod_of = {container: pod.uid for pod in self._pods.values() for container in pod.container_ids}
        groups: dict[Place, list[Cgroup]] = defaultdict(list)
        for cgroup in self._tree.cgroups.values():
            place = _place(cgroup, self._pods, pod_of)
            if place is not None:
                groups[place].append(cgroup)
        placed: dict[Place, tuple[str, ...]] = {}
        for place, cgroups in groups.items():
            paths = {cgroup.path for cgroup in cgroups}
            tops = [cgroup for cgroup in cgroups if paths.isdisjoint(_above(cgroup.path))]
            fewest = min(len(cgroup.places) for cgroup in tops)
            top = only(cgroup.path for cgroup in tops if len(cgroup.places) == fewest)
            if top is not None:
                inside = sorted(path for path in paths if path.startswith(f"{top}/"))
                line = all(path.startswith(f"{outer}/") for outer, path in pairwise(inside))
                placed[place] = (top, *inside) if line else (top,)
        return placed


def _place(cgroup: Cgroup, pods: Collection[str], pod_of: Mapping[str, str]) -> Place | None:
    """Return the container of a cgroup: of pods in pods the innermost one that the node knows."""
    for uid, container in cgroup.places:
        owner = pod_of.get(container) or (uid if uid in pods else "")
        if owner and container:
            return Place(owner, container)
    uid, container = cgroup.places[0] if cgroup.places else ("", "")
    return Place(uid, container) if uid and container else None


def _above(path: str) -> Iterator[str]:
    """Yield the paths of the cgroups above one, nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def without_own_limit(gpu: GpuReading, index: CgroupIndex) -> GpuReading:
    """Return a reading without the memory that the driver reports to a limited exporter.

    ``nvmlDeviceGetMemoryInfo_v2`` then has the limit as total, and adjusts what is used and free.
    """
    if not index.limits_exporter(gpu):
        return gpu
    return replace(gpu, memory=None, withheld={**gpu.withheld, "memory": LIMITED_EXPORTER})
