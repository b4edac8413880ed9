"""The truth of a fake node, derived from its scenario alone: what an exporter must report.

It has more than any driver reports: the use of single processes on an Ampere MIG instance, and the memory of
a process that the driver withholds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.node import FakeNode
from exporter.demo.nvml.parts import running_vgpus
from exporter.demo.present import Present
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Container, Pod, keys, resolve
from exporter.demo.sharing_files import writers
from exporter.model import ContainerRef, DeviceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTruth:
    """A GPU or a MIG device, memory in bytes: total = used + free + reserved.

    ``unattributed`` is the part of ``memory_used`` that no container of a pod uses; a MIG device shows the
    memory of its whole GPU instance. ``sm_percent`` is the sum over its processes, None for a GPU with MIG.
    """

    memory_total: int
    memory_used: int
    memory_reserved: int
    unattributed: int
    sm_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerTruth:
    """A container on a device: its slices (0: it uses the device only), bytes, and percent of the device.

    ``memory`` is None if the driver does not report that of one of its processes. The use of a virtual
    machine in the container through its vGPU belongs to the container, its process on the host does not.
    """

    slices: int
    processes: int
    memory: int | None
    sm_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The node at ``time`` seconds of the scenario.

    ``unresolved`` are the numbers of allocated ids that are no device of the node, by resource.
    """

    time: float
    devices: Mapping[DeviceKey, DeviceTruth]
    containers: Mapping[tuple[ContainerRef, DeviceKey], ContainerTruth]
    unresolved: Mapping[str, int]


def truth_of(node: FakeNode) -> Truth:
    """Return the truth of the node at its current time."""
    now, gpus = node.now, (*node.gpus, *node.amd)
    held, unresolved = _held(now)
    of_vgpus = guests(now, gpus)
    return Truth(
        time=now.time,
        devices=dict(_devices(gpus, of_vgpus)),
        containers=_containers(gpus, held, of_vgpus) | _on_npus(now, held),
        unresolved=unresolved,
    )


def _held(now: Present) -> tuple[dict[tuple[ContainerRef, DeviceKey], int], dict[str, int]]:
    held: dict[tuple[ContainerRef, DeviceKey], int] = {}
    unresolved: dict[str, int] = {}
    by_uuid = {key.mig_uuid or key.uuid: key for key, _, _ in keys((*now.gpus, *now.amd))}
    for pod, container in _all_containers(now.pods):
        for share in container.shares or ():
            held[_reference(pod, container), by_uuid.get(share.device, DeviceKey(share.device))] = (
                share.slices
            )
        if container.shares is not None:
            continue
        for resource, ids in container.devices.items():
            for device_id in dict.fromkeys(ids):
                key = resolve((*now.gpus, *now.amd), device_id)
                if key is None:
                    unresolved[resource] = unresolved.get(resource, 0) + 1
                else:
                    holding = (_reference(pod, container), key)
                    held[holding] = held.get(holding, 0) + 1
    return held, unresolved


def _all_containers(pods: tuple[Pod, ...]) -> Iterator[tuple[Pod, Container]]:
    return ((pod, container) for pod in pods for container in pod.containers)


def _reference(pod: Pod, container: Container) -> ContainerRef:
    return ContainerRef(pod.namespace, pod.name, container.name)


def _containers(
    gpus: tuple[GpuState, ...],
    held: Mapping[tuple[ContainerRef, DeviceKey], int],
    of_vgpus: Mapping[int, ContainerRef],
) -> dict[tuple[ContainerRef, DeviceKey], ContainerTruth]:
    running: dict[tuple[ContainerRef, DeviceKey], list[ProcessState]] = {holding: [] for holding in held}
    for state in gpus:
        for process in state.processes:
            holder = of_vgpus.get(process.pid)
            if process.running.pod and process.running.container:
                holder = _reference(process.running.pod, process.running.container)
            if holder is not None:
                running.setdefault((holder, _key(state.gpu, process)), []).append(process)
    return {place: _container(held.get(place, 0), processes) for place, processes in running.items()}


def _on_npus(
    now: Present, held: Mapping[tuple[ContainerRef, DeviceKey], int]
) -> dict[tuple[ContainerRef, DeviceKey], ContainerTruth]:
    """Return the containers on NPUs, which are not simulated: their use is in their meters."""
    used = {
        _reference(pod, container): sum(writers.used(container.meter))
        for pod, container in _all_containers(now.pods)
        if container.meter is not None and container.meter.kind == "hami-vnpu"
    }
    return {
        place: ContainerTruth(slices=slices, processes=0, memory=used[place[0]], sm_percent=0)
        for place, slices in held.items()
        if place[0] in used
    }


def _container(slices: int, processes: list[ProcessState]) -> ContainerTruth:
    all_known = all(process.running.process.memory is not None for process in processes)
    return ContainerTruth(
        slices=slices,
        processes=sum(process.running.pod is not None for process in processes),
        memory=sum(process.memory for process in processes) if all_known else None,
        sm_percent=sum(process.sm for process in processes),
    )


def _key(gpu: Gpu, process: ProcessState) -> DeviceKey:
    return DeviceKey(gpu.uuid, process.instance.uuid if process.instance else "")


def _devices(
    gpus: tuple[GpuState, ...], of_vgpus: Mapping[int, ContainerRef]
) -> Iterator[tuple[DeviceKey, DeviceTruth]]:
    for state in gpus:
        yield (
            DeviceKey(state.gpu.uuid),
            DeviceTruth(
                memory_total=state.gpu.memory_total,
                memory_used=state.used,
                memory_reserved=state.reserved,
                unattributed=state.used - _of_pods(state.processes, of_vgpus),
                sm_percent=None if state.gpu.mig_enabled else sum(process.sm for process in state.processes),
            ),
        )
        yield from _instances(state, of_vgpus)


def _instances(
    state: GpuState, of_vgpus: Mapping[int, ContainerRef]
) -> Iterator[tuple[DeviceKey, DeviceTruth]]:
    for key, _, mig in keys((state.gpu,)):
        if mig is None:
            continue
        used = next(instance.used for instance in state.instances if instance.instance is mig)
        inside = [
            process for process in state.processes if process.instance and process.instance.gi == mig.gi
        ]
        own = [process for process in inside if process.instance is mig]
        yield (
            key,
            DeviceTruth(
                memory_total=mig.memory_bytes,
                memory_used=used,
                memory_reserved=mig.reserved,
                unattributed=used - _of_pods(tuple(inside), of_vgpus),
                sm_percent=sum(process.sm for process in own),
            ),
        )


def _of_pods(processes: tuple[ProcessState, ...], of_vgpus: Mapping[int, ContainerRef]) -> int:
    return sum(process.memory for process in processes if process.running.pod or process.pid in of_vgpus)


def guests(now: Present, gpus: tuple[GpuState, ...]) -> dict[int, ContainerRef]:
    """Return the container of each vGPU's virtual machine, by the pid of the vGPU's process on the host."""
    holders = {
        device_id.lower(): ContainerRef(pod.namespace, pod.name, container.name)
        for pod in now.pods
        for container in pod.containers
        for ids in container.devices.values()
        for device_id in ids
    }
    return {
        process.pid: holders[vgpu.mdev_uuid.lower()]
        for state in gpus
        for vgpu, process in running_vgpus(state)
        if vgpu.mdev_uuid.lower() in holders
    }
