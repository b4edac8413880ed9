"""Small nodes for the tests of the join."""

from collections.abc import Mapping
from types import MappingProxyType

from exporter import attribution
from exporter.attribution import Attribution, HoldingsIndex
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    ContainerRow,
    DeviceProcess,
    GpuIdentity,
    GpuReading,
    Holdings,
    Memory,
    MigReading,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Workloads,
)
from exporter.sharing import resolve_holdings

GIB = 1 << 30
UUID = "GPU-00000000-0000-0000-0000-00000000000a"
MIG = "MIG-00000000-0000-0000-0000-00000000000b"


def memory(used, total=16 * GIB):
    """Return frame buffer figures that add up."""
    return Memory(total=total, used=used, free=total - used, reserved=0)


def process(pid, used=GIB, kind="compute"):
    """Return a process with a context."""
    return DeviceProcess(pid=pid, memory=used, kinds=frozenset({kind}))


def gpu(processes=(), utilization=None, used=8 * GIB, uuid=UUID, **more):
    """Return a whole GPU; ``processes`` None: the list cannot be had."""
    values = {
        "identity": GpuIdentity(uuid=uuid, index=0, minor=0, model="T4"),
        "memory": memory(used),
        "utilization_percent": 60,
        "processes": processes if processes is None else tuple(processes),
        "process_utilization": utilization,
        "mig_enabled": False,
    }
    return GpuReading(**(values | more))


def mig_gpu(instances, **more):
    """Return a GPU that is cut into these instances."""
    return gpu(None, mig_enabled=True, mig_slices=7, mig=tuple(instances), utilization_percent=None, **more)


def mig(processes=(), used=2 * GIB, slices=3, uuid=MIG, gi=1, **more):
    """Return a MIG device of some compute slices."""
    values = {
        "uuid": uuid,
        "gi": gi,
        "ci": 0,
        "profile": f"{slices}g.5gb",
        "memory": memory(used, 5 * GIB),
        "compute_slices": slices,
        "instance_slices": slices,
        "processes": processes if processes is None else tuple(processes),
    }
    return MigReading(**(values | more))


def held(pod, *device_ids, container="main", resource="nvidia.com/gpu"):
    """Return what the kubelet says of one container's devices."""
    ref = ContainerRef("ml", pod, container)
    return [Allocation(ref, resource, device_id) for device_id in device_ids]


def replicas(count, device=UUID, resource="nvidia.com/gpu"):
    """Offer a device in replicas."""
    return [OfferedDevice(resource, f"{device}::{n}") for n in range(count)]


def whole(device=UUID, resource="nvidia.com/gpu"):
    """Offer a device as a whole."""
    return [OfferedDevice(resource, device)]


def workloads(in_pods=None, *, outside=(), lost=(), named=True, view=True, containers=None):
    """Place processes: ``in_pods`` maps pid to pod; ``named``: all of them, none (False), or these pods."""
    in_pods = in_pods or {}
    places = {
        pid: ProcessPlace(pid=pid, known=True, pod_uid=f"uid-{pod}", container_id=f"{pid:064x}")
        for pid, pod in in_pods.items()
    }
    places |= {pid: ProcessPlace(pid=pid, known=True) for pid in outside}
    places |= {pid: ProcessPlace(pid=pid, known=False) for pid in lost}
    running = {
        f"uid-{pod}": frozenset(f"{pid:064x}" for pid, other in in_pods.items() if other == pod)
        for pod in in_pods.values()
    }
    names = set(in_pods.values()) if named is True else set(named or ())
    pods = {
        f"uid-{name}": PodIdentity(
            uid=f"uid-{name}", namespace="ml", name=name, containers=(containers or {}).get(name, ("main",))
        )
        for name in names
    }
    return Workloads(places=places, pods=None if named is False else pods, process_view=view, running=running)


def attribute(
    gpus, holdings: Holdings, who: Workloads, stale: Mapping[str, Holdings] = MappingProxyType({})
) -> Attribution:
    """Join with holdings that have no index yet; ``stale`` are those of earlier polls by GPU."""
    before = {uuid: HoldingsIndex(held) for uuid, held in stale.items()}
    return attribution.attribute(gpus, HoldingsIndex(holdings), who, before)


def join(gpus, allocated=(), offered=(), who=None) -> Attribution:
    """Resolve and join one node, of which the kubelet lists all named pods."""
    who = who or workloads()
    named = {ContainerRef(pod.namespace, pod.name, "") for pod in (who.pods or {}).values()}
    allocations = Allocations(
        allocated=tuple(sorted(allocated)),
        offered=None if offered is None else tuple(sorted(offered)),
        api_version="v1",
        read_at=0.0,
        listed=frozenset(named),
    )
    gpus = gpus if isinstance(gpus, list) else [gpus]
    return attribute(gpus, resolve_holdings(gpus, allocations), who)


def row(attribution: Attribution, pod, container="main") -> ContainerRow:
    """Return the one row of a container."""
    found = [r for r in attribution.containers if (r.holder.pod, r.holder.container) == (pod, container)]
    assert len(found) == 1, [r.holder for r in attribution.containers]
    return found[0]
