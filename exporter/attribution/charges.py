"""What cgroups meter: the memory that is charged to each container on a GPU, and the limits in force.

Rule 14 of ``docs/join.md``. It needs no process list and no view of the host's processes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from exporter.attribution.cgroup_places import Place, cgroups_of_containers, paths_above
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
from exporter.model.memory_limits import Backend, CgroupTree, Charge, pci_key
from exporter.model.readings import CgroupMemory

NVIDIA = "nvidia"
LIMITED_EXPORTER = (
    "not known: the exporter's own cgroup has a limit of this GPU's memory, so the driver reports that limit "
    "instead of the device"
)


@dataclass(frozen=True, slots=True)
class _Metered:
    """The memory of one GPU in the cgroup of one container."""

    backend: Backend
    used: int | None
    guaranteed: int = 0
    limit: int | None = None
    # Cgroup above the container's that has the limit, "" if it may be any of these; None if it is its own.
    above: str | None = None

    @property
    def limited(self) -> bool:
        return self.guaranteed > 0 or self.limit is not None


class CgroupIndex:
    """The cgroups of the containers of a node, on which ``gpus`` are; two at one address are not metered."""

    def __init__(self, workloads: Workloads, gpus: Iterable[GpuReading] = ()) -> None:
        self._tree = workloads.cgroups or CgroupTree()
        keys = Counter(pci_key(gpu.identity.pci_bus_id) for gpu in gpus)
        self._capacity = {pci: size for pci, size in self._tree.capacity.items() if keys[pci] < 2}
        self._workloads = workloads
        self._pods = workloads.pods or {}
        self._places = cgroups_of_containers(self._tree, self._pods)
        self._uids = unambiguous((pod.pod_name, pod.uid) for pod in self._pods.values())
        self._by_pod: dict[str, list[Place]] = defaultdict(list)
        for place in self._places:
            self._by_pod[place.pod_uid].append(place)
        # Outermost cgroups with that of another container somewhere below.
        tops = {chain[0] for chain in self._places.values()}
        self._around = {outer for top in tops for outer in paths_above(top) if outer in tops}

    def capacity(self, gpu: GpuReading) -> int | None:
        """Return the memory of a GPU that the kernel can charge to cgroups, in bytes; None if unknown."""
        return self._capacity.get(pci_key(gpu.identity.pci_bus_id))

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
        metered = self._metered_on(gpu)
        by_ref, unsure, strays = self._owned(_active(metered), holders, unnamed)
        for ref in holders:
            idle = self._idle(ref, metered) if ref not in by_ref and ref.pod_name not in unsure else ()
            if idle:
                by_ref[ref] = list(idle)
        strays += self._unread(gpu, holders, metered)
        nowhere = [ref for ref in holders if ref not in by_ref and not any(self._places_of(ref))]
        charges: dict[ContainerRef, Charge] = {}
        for ref, places in by_ref.items():
            others = [place for other in by_ref if other != ref for place in by_ref[other]] + strays
            own = _figures(metered[place] for place in places)
            charges[ref] = self._charge(ref, own, others, nowhere)
        return charges

    def _unread(
        self, gpu: GpuReading, holders: Collection[ContainerRef], metered: Collection[Place]
    ) -> list[Place]:
        """Return the cgroups of which it is not known whether they have memory of a GPU."""
        if self.capacity(gpu) is not None:
            return [place for place in self._places if place not in metered]
        # The driver is asked about holders only.
        places = (place for ref in holders for place in self._places_of(ref))
        return [place for place in places if self._memory(self._places[place][-1], gpu) is None]

    def charged_pods(self, gpus: Iterable[GpuReading]) -> Iterator[tuple[DeviceKey, set[str]]]:
        """Yield the uids of the pods with cgroups on each GPU; nothing if all have names."""
        if not self._by_pod.keys() <= self._pods.keys():
            for gpu in gpus:
                if gpu.up and not gpu.mig_enabled:
                    active = _active(self._metered_on(gpu))
                    yield DeviceKey(gpu.identity.uuid), {place.pod_uid for place in active}

    def _metered_on(self, gpu: GpuReading) -> dict[Place, _Metered]:
        return {place: each for place in self._places if (each := self._metered(place, gpu)) is not None}

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
        own: list[_Metered],
        others: Iterable[Place],
        nowhere: Iterable[ContainerRef],
    ) -> Charge:
        """Return the charge of a container; ``nowhere`` are the holders without a known cgroup."""
        used = total([each.used for each in own])
        limited = only(each for each in own if each.limited)
        if limited is None:
            return Charge(backend=own[0].backend, used=used)
        above = limited.above
        shared = above is not None and (
            any(self._is_below(place, above) for place in others)
            or any(self._may_be_below(other, ref, above) for other in nowhere)
        )
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

    def _may_be_below(self, other: ContainerRef, ref: ContainerRef, path: str) -> bool:
        """Return whether a container may be below a cgroup, which is above that of ``ref``."""
        uid = self._uids.get(ref.pod_name, "")
        return other.pod_name == ref.pod_name or not uid or uid not in path.replace("_", "-")

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
            return self._by_driver(chain, gpu)
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

    def _limit(self, chain: tuple[str, ...], gpu: GpuReading) -> tuple[int | None, str | None]:
        """Return the lowest hard limit of a container's cgroup and of those above, and which of those.

        The kernel enforces each of them on all cgroups below together.
        """
        limits: list[tuple[int, str]] = []
        for path in (chain[-1], *paths_above(chain[-1])):
            memory = self._memory(path, gpu)
            if memory is not None and memory.limit is not None:
                limits.append((memory.limit, path if len(path) < len(chain[0]) else ""))
        limit, above = min(limits, default=(None, ""))
        return limit, above or None

    def _by_driver(self, chain: tuple[str, ...], gpu: GpuReading) -> _Metered | None:
        """Return the driver's answer for a container with a limit, which may be that of a cgroup above.

        Its limits do not nest. What it meters in a cgroup without a limit is not documented.
        """
        memory = self._memory(chain[-1], gpu)
        if memory is None or not memory.limited:
            return None
        above = self._inherited_from(chain, memory, gpu)
        used = None if chain[0] in self._around else memory.used
        return _Metered("misc", used, memory.guaranteed, memory.limit, above)

    def _inherited_from(self, chain: tuple[str, ...], memory: CgroupMemory, gpu: GpuReading) -> str | None:
        """Return the outermost cgroup from which a container may have its limit, None if it is its own.

        The answers for two cgroups are not of the same moment, so only their limits are compared.
        """
        source = None
        for path in (*paths_above(chain[-1]), ""):
            above = self._memory(path, gpu)
            if above is None:
                return ""
            if above.limits != memory.limits:
                break
            if len(path) < len(chain[0]):
                source = path
        return source

    def _memory(self, path: str, gpu: GpuReading) -> CgroupMemory | None:
        if self.capacity(gpu) is None:
            return gpu.cgroup_memory.get(f"{self._tree.root}{path}")
        cgroup = self._tree.cgroups.get(path)
        return None if cgroup is None else cgroup.memory.get(pci_key(gpu.identity.pci_bus_id))


def _figures(own: Iterable[_Metered]) -> list[_Metered]:
    """Return what is metered of a container's cgroups: the driver has one figure for all below a limit."""
    single: dict[object, _Metered] = {}
    for each in own:
        one = each.backend == "misc" and each.above is not None
        single.setdefault(each.above if one else len(single), each)
    return list(single.values())


def _active(metered: Mapping[Place, _Metered]) -> list[Place]:
    """Return the cgroups that are in use, or have a limit of their own.

    A limit above may be that of the pod, whose sandbox has it, too.
    """
    return [
        place for place, each in metered.items() if each.used != 0 or (each.limited and each.above is None)
    ]


def without_own_limit(gpu: GpuReading, index: CgroupIndex) -> GpuReading:
    """Return a reading without the memory that the driver reports to a limited exporter.

    ``nvmlDeviceGetMemoryInfo_v2`` then has the limit as total, and adjusts what is used and free.
    """
    if not index.limits_exporter(gpu):
        return gpu
    return replace(gpu, memory=None, withheld={**gpu.withheld, "memory": LIMITED_EXPORTER})
