"""``record``: this node as a scenario, so that what a user sees can become a test.

Everything that could identify the node or its tenants is replaced by numbered names: UUIDs, serials, names
of the node, of namespaces, pods and containers, uids and container ids. Models, sizes, readings, names of
GPU resources, spellings of their device ids and what the driver does not support stay: they are what a
fault depends on. Other device plugins are left out, and so are the GPUs of other vendors and vGPUs.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from exporter.commands.node import Node
from exporter.commands.once import poll_once
from exporter.commands.record_gpu import peers_of, processes_of, record_gpu
from exporter.commands.record_mask import Mask
from exporter.demo import schema, schema_faults, schema_gpu, schema_pods
from exporter.demo.scenario import dump
from exporter.model import Allocation, Allocations, ContainerRef, DriverInfo, OfferedDevice, Workloads
from exporter.poller import Evidence
from exporter.sharing.nvidia import Resources

NOBODY = Workloads(places={}, pods=None, process_view=False)
NO_DRIVER = tuple(
    schema_faults.NvmlError(kind="nvml_error", function=function, code="DRIVER_NOT_LOADED")
    for function in ("nvmlInitWithFlags", "nvmlInit_v2")
)
GPU_SPELLINGS = ("GPU-", "MIG-", "nvidia")
NVIDIA = "nvidia"
NO_KUBELET = (schema_faults.KubeletDown(kind="kubelet_down"),)


async def record(node: Node, mask: bool) -> str:
    """Poll once and return the node as the JSON of a scenario."""
    _, evidence = await poll_once(node)
    return dump(scenario(evidence, node.settings.node_name, Mask(mask)))


def scenario(evidence: Evidence, node_name: str, mask: Mask) -> schema.Scenario:
    """Make the scenario of what one poll found."""
    hardware, allocations = evidence.hardware, evidence.allocations
    driver = hardware.driver if hardware is not None else DriverInfo()
    workloads = evidence.workloads or NOBODY
    gpus = hardware.gpus if hardware is not None else ()
    told = tuple(gpu for gpu in gpus if gpu.up and gpu.identity.vendor == NVIDIA)
    peers = peers_of(told)
    old_kubelet = allocations is not None and allocations.offered is None
    processes = _processes(evidence, workloads, mask)
    return schema.Scenario(
        name="recorded",
        description="A recorded node.",
        node=_node(driver, mask.name("node", node_name)),
        host_pid=workloads.process_view,
        identity=_identity(workloads),
        kubelet_api=("v1alpha1",) if old_kubelet else ("v1", "v1alpha1"),
        gpus=tuple(record_gpu(gpu, mask, peers) for gpu in told),
        offers=_offers(allocations, mask),
        pods=tuple(_pods(allocations, workloads, processes, mask)),
        host_processes=tuple(processes.get(None, ())),
        faults=(NO_DRIVER if driver.driver_version is None and not told else ())
        + (NO_KUBELET if allocations is None else ()),
    )


def _identity(workloads: Workloads) -> schema.IdentitySource:
    """Name the source that tells as much: the Pods API tells containers by id, pod logs only by name."""
    if workloads.pods is None:
        return "none"
    return "pods_api" if any(pod.container_ids for pod in workloads.pods.values()) else "pod_logs"


def _node(driver: DriverInfo, name: str) -> schema_gpu.Node:
    major, _, minor = (driver.cuda_version or "0.0").partition(".")
    return schema_gpu.Node(
        name=name,
        driver_version=driver.driver_version or "",
        nvml_version=driver.nvml_version or "",
        cuda_version=int(major) * 1000 + int(minor) * 10,
    )


def _offers(allocations: Allocations | None, mask: Mask) -> tuple[schema_pods.Offer, ...]:
    ids: dict[str, list[str]] = defaultdict(list)
    for offer in (allocations.offered if allocations is not None else None) or ():
        if not _concerns_gpus(offer):
            continue
        ids[offer.resource].append(mask.device_id(offer.device_id))
    return tuple(schema_pods.Offer(resource=resource, ids=tuple(of)) for resource, of in ids.items())


def _concerns_gpus(device: Allocation | OfferedDevice) -> bool:
    """Leave out what other device plugins have: it is nobody's business here."""
    return Resources().named(device.resource) or device.device_id.startswith(GPU_SPELLINGS)


def _processes(
    evidence: Evidence, workloads: Workloads, mask: Mask
) -> dict[ContainerRef | None, list[schema_pods.Process]]:
    """Sort processes by container; those of no pod, or of one without a name, stand under None."""
    sorted_out: dict[ContainerRef | None, list[schema_pods.Process]] = defaultdict(list)
    seen: set[int] = set()
    gpus = evidence.hardware.gpus if evidence.hardware is not None else ()
    for gpu in (gpu for gpu in gpus if gpu.identity.vendor == NVIDIA):
        for pid, process in processes_of(gpu, mask):
            owner = _owner(pid, workloads)
            # A process of a scenario is on one device: what it has on a second one becomes another process.
            own_pid = 0 if pid in seen else pid
            seen.add(pid)
            cgroup = _cgroup(pid, workloads, mask) if owner is None else ""
            sorted_out[owner].append(replace(process, pid=own_pid, cgroup=cgroup))
    return sorted_out


def _cgroup(pid: int, workloads: Workloads, mask: Mask) -> str:
    """Keep a process of a pod without a name in a pod."""
    place = workloads.places.get(pid)
    return f"/kubepods/pod{mask.uid(place.pod_uid)}" if place is not None and place.pod_uid else ""


def _owner(pid: int, workloads: Workloads) -> ContainerRef | None:
    place = workloads.places.get(pid)
    pod = (workloads.pods or {}).get(place.pod_uid or "") if place is not None else None
    if place is None or pod is None:
        return None
    name = pod.container_ids.get(place.container_id or "")
    return ContainerRef(pod.namespace, pod.name, name or next(iter(pod.containers), "main"))


def _pods(
    allocations: Allocations | None,
    workloads: Workloads,
    processes: dict[ContainerRef | None, list[schema_pods.Process]],
    mask: Mask,
) -> Iterator[schema_pods.Pod]:
    devices: dict[ContainerRef, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for allocation in allocations.allocated if allocations is not None else ():
        if not _concerns_gpus(allocation):
            continue
        devices[allocation.holder][allocation.resource].append(mask.device_id(allocation.device_id))
    there = devices.keys() | {ref for ref in processes if ref is not None}
    known = {(pod.namespace, pod.name): pod for pod in (workloads.pods or {}).values()}
    # The other containers of these pods count too: with them, a process may not be told from theirs.
    for pod in {(ref.namespace, ref.pod) for ref in there} & known.keys():
        there |= {ContainerRef(*pod, container) for container in known[pod].containers}
    of_pod: dict[tuple[str, str], list[ContainerRef]] = defaultdict(list)
    for ref in sorted(there):
        of_pod[ref.namespace, ref.pod].append(ref)
    uids = {name: pod.uid for name, pod in known.items()}
    for (namespace, name), refs in of_pod.items():
        yield schema_pods.Pod(
            namespace=mask.name("namespace", namespace),
            name=mask.name("pod", f"{namespace}/{name}"),
            uid=mask.uid(uids.get((namespace, name), "")),
            containers=tuple(
                schema_pods.Container(
                    name=mask.name("container", ref.container),
                    devices={resource: tuple(ids) for resource, ids in devices.get(ref, {}).items()},
                    processes=tuple(processes.get(ref, ())),
                )
                for ref in refs
            ),
        )
