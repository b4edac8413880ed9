"""``record``: write this node as a scenario, so that a fault on a user's node can become a test.

Everything that could identify the node or its tenants is replaced by numbered names: UUIDs, serials, names
of the node, of namespaces, pods, containers and claims, uids and container ids. Models, sizes, readings,
names of GPU resources, formats of device ids, and the calls that the driver does not support are kept: a
fault may depend on them. Other device plugins, vGPUs, and GPUs of other drivers are left out.

Only the annotations and labels that a sharing system reads are recorded. Every word in them, and in device
ids, is replaced unless it is a number, or a word of a resource, of a model that a driver reports, or of the
code of the sharing systems, which reads such texts. So a model that only an annotation has, such as that of
HAMi's devices of other makers, is replaced, and a container's name that is such a word stays. The files of
these systems are recorded with the same names; an unreadable file is left out.
"""

import re
from collections import defaultdict
from dataclasses import replace

from exporter.commands.node import Node
from exporter.commands.record.gpu import peers_of, processes_of, record_gpu
from exporter.commands.record.mask import Mask
from exporter.commands.record.pods import NodeHoldings, Pods, kept, notes, other_files
from exporter.commands.snapshot import poll_once
from exporter.demo import scenario as schema
from exporter.demo.scenario import gpus as schema_gpu
from exporter.demo.scenario import pods as schema_pods
from exporter.demo.scenario.catalog import dump
from exporter.demo.scenario.expand import folded
from exporter.model import ConfidentialComputing, ContainerRef, DriverInfo, NodeObject, Workloads
from exporter.model.poll_result import NO_PROCESS_LISTS, PollResult
from exporter.poll.snapshot_builder import node_facts

NO_WORKLOADS = Workloads(places={}, pods=None, process_view=False)
NO_DRIVER = tuple(
    schema.NvmlError(kind="nvml_error", function=function, code="DRIVER_NOT_LOADED")
    for function in ("nvmlInitWithFlags", "nvmlInit_v2")
)
NVIDIA = "nvidia"
NO_KUBELET = (schema.KubeletFailure(kind="kubelet_down"),)


async def record(node: Node, mask: bool) -> str:
    """Poll once and return the node as the JSON of a scenario."""
    _, evidence = await poll_once(node)
    settings = node.settings
    return dump(scenario(evidence, settings.node_name, Mask(mask), patterns=settings.resource_pattern))


def scenario(
    evidence: PollResult, node_name: str, mask: Mask, patterns: tuple[re.Pattern[str], ...] = ()
) -> schema.Scenario:
    """Return the scenario of one poll's results; resources that match ``patterns`` are NVIDIA's."""
    hardware, allocations = evidence.hardware, evidence.allocations
    workloads = evidence.workloads or NO_WORKLOADS
    recorded = tuple(gpu for gpu in hardware.gpus if gpu.up and gpu.identity.vendor == NVIDIA)
    holdings = NodeHoldings(evidence, node_facts(evidence, patterns))
    mask.allow(gpu.identity.model for gpu in recorded)
    mask.allow(holdings.resources)
    peers = peers_of(recorded)
    old_kubelet = allocations is not None and allocations.offered is None
    processes = _processes(evidence, workloads, mask)
    return schema.Scenario(
        name="recorded",
        description="A recorded node.",
        node=_node(hardware.driver, evidence.node or NodeObject(), node_name, mask),
        host_pid=workloads.process_view or workloads.process_view_code == NO_PROCESS_LISTS,
        identity=_identity(workloads),
        kubelet_api=("v1alpha1",) if old_kubelet else ("v1", "v1alpha1"),
        gpus=tuple(record_gpu(gpu, mask, peers) for gpu in recorded),
        offers=_offers(holdings, mask),
        pods=tuple(Pods(holdings, processes, mask, node_name).recorded()),
        host_processes=tuple(processes.get(None, ())),
        files=other_files(evidence.files, mask),
        kept=kept(evidence.files, mask),
        faults=(NO_DRIVER if hardware.driver.driver_version is None and not recorded else ())
        + (NO_KUBELET if allocations is None else ()),
    )


def _identity(workloads: Workloads) -> schema.IdentitySource:
    """Return the source with these data: the Pods API has container ids and details, pod logs only names."""
    if workloads.pods is None:
        return "none"
    detailed = any(pod.container_ids or pod.details for pod in workloads.pods.values())
    return "pods_api" if detailed else "pod_logs"


def _node(driver: DriverInfo, node: NodeObject, name: str, mask: Mask) -> schema_gpu.Node:
    def masked(text: str) -> str:
        return mask.text(text, (), name)

    major, _, minor = (driver.cuda_version or "0.0").partition(".")
    return schema_gpu.Node(
        name=mask.name("node", name),
        driver_version=driver.driver_version or "",
        nvml_version=driver.nvml_version or "",
        cuda_version=int(major) * 1000 + int(minor) * 10,
        confidential=_confidential(driver.confidential),
        labels=notes(node.labels, masked),
        annotations=notes(node.annotations, masked),
    )


def _confidential(mode: ConfidentialComputing | None) -> schema_gpu.Confidential | None:
    if mode is None or mode.enabled is None:
        return None
    return schema_gpu.Confidential(
        enabled=mode.enabled,
        environment=mode.environment or "unavailable",
        developer_tools=bool(mode.developer_tools),
        multi_gpu=mode.multi_gpu or "none",
        ready=bool(mode.ready),
    )


def _offers(holdings: NodeHoldings, mask: Mask) -> tuple[schema_pods.Offer, ...]:
    ids: dict[str, list[str]] = defaultdict(list)
    for offer in holdings.view.allocations.offered or ():
        if holdings.concerns_gpus(offer.resource, offer.device_id):
            ids[offer.resource].append(mask.text(offer.device_id))
    return tuple(schema_pods.Offer(resource=resource, ids=folded(of)) for resource, of in ids.items())


def _processes(
    evidence: PollResult, workloads: Workloads, mask: Mask
) -> dict[ContainerRef | None, list[schema_pods.Process]]:
    """Return processes by container; None for those outside pods, and of pods without a name."""
    by_container: dict[ContainerRef | None, list[schema_pods.Process]] = defaultdict(list)
    seen: set[int] = set()
    for gpu in (gpu for gpu in evidence.hardware.gpus if gpu.identity.vendor == NVIDIA):
        for pid, process in processes_of(gpu, mask):
            owner = _owner(pid, workloads)
            # A process of a scenario is on one device: its use of a second one becomes another process.
            own_pid = 0 if pid in seen else pid
            seen.add(pid)
            cgroup = _cgroup(pid, workloads, mask) if owner is None else ""
            by_container[owner].append(replace(process, pid=own_pid, cgroup=cgroup))
    return by_container


def _cgroup(pid: int, workloads: Workloads, mask: Mask) -> str:
    """Return the masked cgroup of a process in a pod without a name, "" outside pods."""
    place = workloads.places.get(pid)
    if place is None or not place.pod_uid:
        return ""
    container = f"/{mask.container_id(place.container_id)}" if place.container_id else ""
    return f"/kubepods/pod{mask.uid(place.pod_uid)}{container}"


def _owner(pid: int, workloads: Workloads) -> ContainerRef | None:
    place = workloads.places.get(pid)
    pod = (workloads.pods or {}).get(place.pod_uid or "") if place is not None else None
    if place is None or pod is None:
        return None
    name = pod.container_ids.get(place.container_id or "")
    return ContainerRef(pod.namespace, pod.name, name or next(iter(pod.containers), "main"))
