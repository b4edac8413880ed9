"""Random nodes whose sources can be hidden one by one: an id, a claim, an annotation, a list, a process."""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from exporter.attribution import Attribution
from exporter.model import (
    Allocation,
    Allocations,
    ClaimedDevice,
    ContainerRef,
    ContainerSpec,
    GpuIdentity,
    GpuReading,
    Holdings,
    OfferedDevice,
    PodDetails,
    PodIdentity,
    Workloads,
)
from exporter.model.kubelet import NamedRequest
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.dra import NVIDIA_DRIVER
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from exporter.workloads.processes import ProcessTable
from tests.core.attribution.build import GIB, attribute, gpu, mig, mig_gpu, process
from tests.core.workloads.tree import write_process

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(3))
MIGS = tuple(f"MIG-00000000-0000-0000-0000-00000000000{n}" for n in range(2))
CLAIM_UID = "11111111-2222-3333-4444-{:012d}"
INIT, SHIM = 1, 2
# The first processes of containers, which use no GPU, and the processes that do.
MAINS, RUNS = 50, 100
GARBAGE = "unreadable"
HAMI = "hami.io/vgpu-devices-allocated"
BOOT_SECONDS = 100.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process: its container, or "" on the host, and whether it is outside its container's cgroup."""

    pid: int
    pod: str
    container: str
    device: str
    memory: int
    percent: int
    parent: int
    outside: bool = False


@dataclass(frozen=True, kw_only=True)
class Node:
    """All sources of a node. GPU 0 is shared by replicas, 1 by claims, 2 cut or shared by HAMi."""

    pods: Mapping[str, tuple[str, ...]]
    runs: tuple[Run, ...]
    ids: tuple[Allocation, ...]
    claims: tuple[ClaimedDevice, ...]
    requests: Mapping[str, tuple[NamedRequest, ...]]
    checkpoint: Checkpoint
    annotations: Mapping[str, Mapping[str, str]]
    cut: bool
    # What is hidden: devices without process lists, files of /proc, pods without a name.
    no_lists: frozenset[str] = frozenset()
    spoilt: frozenset[str] = field(default=frozenset())
    nameless: frozenset[str] = frozenset()
    no_objects: bool = False

    def gpus(self) -> list[GpuReading]:
        """Return the readings of the driver."""
        whole = [self._whole(number) for number in range(2 if self.cut else 3)]
        return [*whole, self._cut()] if self.cut else whole

    def _whole(self, number: int) -> GpuReading:
        uuid = UUIDS[number]
        identity = GpuIdentity(uuid=uuid, index=number, minor=number, model="T4")
        # The meter of the device has at least what its processes use together.
        busy = min(max(60, sum(run.percent for run in self._on(uuid))), 100)
        meters = {"utilization_percent": busy, "identity": identity}
        return gpu(self._listed(uuid), self._percents(uuid), self._used(uuid), uuid, **meters)

    def _cut(self) -> GpuReading:
        identity = GpuIdentity(uuid=UUIDS[2], index=2, minor=2, model="A100")
        parts = [
            mig(self._listed(uuid), self._used(uuid), uuid=uuid, gi=n + 1, gi_profile=9, gi_start=4 * n)
            for n, uuid in enumerate(MIGS)
        ]
        return mig_gpu(parts, uuid=UUIDS[2], identity=identity)

    def _on(self, uuid: str) -> list[Run]:
        return [run for run in self.runs if run.device == uuid]

    def _listed(self, uuid: str) -> list[Any] | None:
        return None if uuid in self.no_lists else [process(run.pid, run.memory) for run in self._on(uuid)]

    def _percents(self, uuid: str) -> dict[int, int] | None:
        return None if uuid in self.no_lists else {run.pid: run.percent for run in self._on(uuid)}

    def _used(self, uuid: str) -> int:
        return sum(run.memory for run in self._on(uuid)) + GIB // 8


def container_id(pod: str, container: str) -> str:
    return (pod + container).encode().hex().ljust(64, "0")


def pod_uid(pod: str) -> str:
    return f"aaaaaaaa-0000-4000-8000-{ord(pod):012x}"


def _cgroup(pod: str, container: str) -> str:
    return f"/kubepods.slice/pod{pod_uid(pod)}/{container_id(pod, container)}"


def _containers(pods: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, of) for name, containers in pods.items() for of in containers]


def write(node: Node, root: Path) -> None:
    """Write the processes of a node: runtimes on the host, containers, and what they started."""
    shutil.rmtree(root, ignore_errors=True)
    write_process(root, INIT, "/init.scope")
    write_process(root, SHIM, "/system.slice/containerd.service", parent=INIT)
    for pid, (pod, container) in enumerate(_containers(node.pods), MAINS):
        write_process(root, pid, _cgroup(pod, container), parent=SHIM)
    for run in node.runs:
        own = _cgroup(run.pod, run.container) if run.pod else "/system.slice/display.service"
        path = "/docker/buildkit/f3jq1rqwbqz1" if run.outside else own
        write_process(root, run.pid, path, parent=run.parent)


@contextlib.contextmanager
def _without(root: Path, names: Iterable[str]) -> Iterator[None]:
    """Hide these files."""
    moved = [(root / name, root / f"{name}.hidden") for name in names]
    for path, aside in moved:
        path.rename(aside)
    try:
        yield
    finally:
        for path, aside in moved:
            aside.rename(path)


def page(node: Node, root: Path) -> dict["Place", float | None]:
    """Return every number of the rows of a node, by its place; ``write`` has written its processes."""
    return dict(_numbers(joined(node, root)[1]))


def joined(node: Node, root: Path) -> tuple[Holdings, Attribution]:
    """Return the holdings and the rows of a node; ``write`` has written its processes."""
    gpus = node.gpus()
    pids = {process.pid: BOOT_SECONDS for reading in gpus for process in _processes(reading)}
    with _without(root, node.spoilt):
        places = ProcessTable(root).read(pids)
    pods = {pod_uid(name): _pod(node, name) for name in node.pods if name not in node.nameless}
    listed = frozenset(ContainerRef("ml", name, of) for name in node.pods for of in ("", *node.pods[name]))
    offered = tuple(OfferedDevice("nvidia.com/gpu", f"{UUIDS[0]}::{n}") for n in range(4))
    if not node.cut:
        offered += tuple(OfferedDevice("nvidia.com/vgpu", f"{UUIDS[2]}-{n}") for n in range(4))
    allocations = Allocations(
        allocated=tuple(sorted(node.ids)),
        offered=tuple(sorted(offered)),
        claims=node.claims,
        api_version="v1",
        read_at=0.0,
        listed=listed,
    )
    facts = NodeFacts(pods=pods, files={"dra": node.checkpoint})
    holdings = resolve_holdings(gpus, allocations, facts)
    return holdings, attribute(gpus, holdings, Workloads(places=places, pods=pods, process_view=True))


def _processes(reading: GpuReading) -> Iterator[Any]:
    for device in (reading, *(reading.mig or ())):
        yield from device.processes or ()


def _pod(node: Node, name: str) -> PodIdentity:
    containers = node.pods[name]
    details = PodDetails(
        annotations=node.annotations.get(name, {}),
        containers=tuple(ContainerSpec(name=of) for of in containers),
        phase="Running",
        requests=node.requests.get(name, ()),
    )
    return PodIdentity(
        uid=pod_uid(name),
        namespace="ml",
        name=name,
        containers=containers,
        container_ids={container_id(name, of): of for of in containers},
        details=None if node.no_objects else details,
    )


class Place(NamedTuple):
    """Where a number of a container or a device is; the last part is the meter of a use."""

    uuid: str
    mig_uuid: str
    pod: str
    container: str
    name: str
    source: str = ""


def _numbers(result: Any) -> Iterator[tuple[Place, float | None]]:
    for row in result.containers:
        place = Place(*row.device, row.holder.pod, row.holder.container, "")
        for name in ("slices", "memory_entitled", "compute_entitled", "processes"):
            yield place._replace(name=name), getattr(row, name)
        yield place._replace(name="memory_used", source=row.memory_source), row.memory_used
        yield place._replace(name="compute_used", source=row.compute_source), row.compute_used
    for row in result.gpus:
        place = Place(row.identity.uuid, "", "", "", "holders")
        yield place, row.holders
        yield place._replace(name="entitled"), row.memory_entitled
        yield from ((place._replace(name=count.resource), count.allocated) for count in row.slices)
    for row in result.migs:
        place = Place(*row.device, "", "", "holders")
        yield place, row.holders
        yield from ((place._replace(name=count.resource), count.allocated) for count in row.slices)


PODS = ("a", "b", "c", "d")


@st.composite
def nodes(draw: Callable[[Any], Any]) -> Node:
    """Draw a node; what is observed is its truth."""
    pods = {name: ("x", "y")[: draw(st.integers(1, 2))] for name in PODS}
    refs = [ContainerRef("ml", name, of) for name, containers in pods.items() for of in containers]
    some = st.lists(st.sampled_from(refs), unique=True, max_size=3)
    ids = [Allocation(ref, "nvidia.com/gpu", f"{UUIDS[0]}::{n}") for n, ref in enumerate(draw(some))]
    cut = draw(st.booleans())
    claims, requests, prepared = _claims(draw, pods, cut)
    annotations: dict[str, dict[str, str]] = {}
    if not cut:
        for n, name in enumerate(draw(st.lists(st.sampled_from(PODS), unique=True, max_size=3))):
            ids.append(Allocation(ContainerRef("ml", name, "x"), "nvidia.com/vgpu", f"{UUIDS[2]}-{n}"))
            share = f"{UUIDS[2]},NVIDIA,{1024 * (n + 1)},{10 * (n + 1)}:"
            annotations[name] = {HAMI: f"{share};" + ";" * (len(pods[name]) - 1)}
    devices = [*UUIDS[:2], *(MIGS if cut else UUIDS[2:])]
    runs: list[Run] = []
    for _ in range(draw(st.integers(0, 6))):
        runs.append(_run(draw, runs, refs, devices))
    return Node(
        pods=pods,
        runs=tuple(runs),
        ids=tuple(ids),
        claims=tuple(claims),
        requests=requests,
        checkpoint=Checkpoint(prepared=prepared),
        annotations=annotations,
        cut=cut,
    )


def _run(draw: Any, runs: list[Run], refs: list[ContainerRef], devices: list[str]) -> Run:
    """Draw a process: of the host, or of a container, started by its first process or by another one."""
    ref = draw(st.one_of(st.none(), st.sampled_from(refs)))
    parent = INIT
    if ref is not None:
        own = [run.pid for run in runs if (run.pod, run.container) == (ref.pod, ref.container)]
        parent = draw(st.sampled_from([MAINS + refs.index(ref), *own]))
    return Run(
        pid=RUNS + len(runs),
        pod=ref.pod if ref else "",
        container=ref.container if ref else "",
        device=draw(st.sampled_from(devices)),
        memory=draw(st.integers(1, 2000)) << 20,
        percent=draw(st.integers(0, 30)),
        parent=parent,
        outside=ref is not None and draw(st.integers(0, 3)) == 0,
    )


def _claims(draw: Any, pods: Mapping[str, tuple[str, ...]], cut: bool) -> Any:
    """Draw claims of GPU 1 and of the parts of GPU 2, each by one pod, whose containers may share it."""
    names = ["gpu-1", *(f"gpu-2-mig-1g5gb-9-{4 * n}" for n in range(2) if cut)]
    claims: list[ClaimedDevice] = []
    requests: dict[str, tuple[NamedRequest, ...]] = {}
    prepared: dict[tuple[str, str], tuple[Prepared, ...]] = {}
    holders = draw(st.lists(st.sampled_from(PODS), unique=True, max_size=len(names)))
    for number, (pod, device) in enumerate(zip(holders, names, strict=False)):
        uid, claim = CLAIM_UID.format(number), f"claim-{number}"
        containers = pods[pod][: draw(st.integers(1, 2))]
        prepared[uid, device] = (Prepared(request="one", uuid=[UUIDS[1], *MIGS][number]),)
        requests[pod] = tuple(NamedRequest(of, claim, "one") for of in containers)
        claims += [
            ClaimedDevice(
                holder=ContainerRef("ml", pod, of),
                driver=NVIDIA_DRIVER,
                pool="node",
                device=device,
                claim_namespace="ml",
                claim=claim,
                cdi=(f"k8s.{NVIDIA_DRIVER}/claim={uid}-{device}",),
            )
            for of in containers
        ]
    return claims, requests, prepared


def hidden(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the node with each of its sources hidden in turn, and what was hidden."""
    for place, held in enumerate(node.ids):
        ids = list(node.ids)
        ids[place] = held._replace(device_id=GARBAGE)
        yield f"id {held}", replace(node, ids=tuple(ids))
    for place, claim in enumerate(node.claims):
        claims = list(node.claims)
        claims[place] = replace(claim, device=GARBAGE, cdi=())
        yield f"claim {claim}", replace(node, claims=tuple(claims))
    for name in node.annotations:
        yield f"annotation of {name}", replace(node, annotations={**node.annotations, name: {HAMI: GARBAGE}})
        yield f"no annotation of {name}", replace(node, annotations={**node.annotations, name: {}})
    yield "checkpoint", replace(node, checkpoint=Checkpoint(missing=True))
    yield "objects of pods", replace(node, no_objects=True)
    for name in node.pods:
        yield f"name of {name}", replace(node, nameless=frozenset({name}))
    for uuid in {run.device for run in node.runs}:
        yield f"process list of {uuid}", replace(node, no_lists=frozenset({uuid}))
    # What a process outside its container's cgroup belongs to is in its ``stat`` alone.
    outside = {run.pid for run in node.runs if run.outside}
    for pid in dict.fromkeys(pid for run in node.runs for pid in (run.pid, run.parent)):
        for file in ("cgroup",) if pid in outside else ("cgroup", "stat"):
            yield f"/proc/{pid}/{file}", replace(node, spoilt=frozenset({f"{pid}/{file}"}))
