"""What is on the node at a given time: the scenario with the faults that are in force then.

A pure function of scenario and time; nothing that was done before is remembered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from exporter.demo.kubelet.device_ids import keys
from exporter.demo.scenario.amd_gpus import gpus_of
from exporter.demo.scenario.faults import (
    DriverReload,
    Fault,
    GpuAbsent,
    KubeletDown,
    KubeletFilling,
    KubeletHang,
    KubeletRateLimit,
    MigLayout,
    NvmlFault,
    PodAdd,
    PodDelete,
    ProcessExit,
    Unhealthy,
)
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Container, Pod, Process
from exporter.demo.scenario.schema import Scenario

# How long ago what is there from the start was started, in seconds.
AGE = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process that runs; without a pod it is the host's. ``born`` is scenario time, below 0 before it."""

    process: Process
    born: float
    pod: Pod | None = None
    container: Container | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The node at ``time`` seconds; ``gpus`` are cut as they are then, ``faults`` are those in force.

    ``amd`` are the AMD GPUs. ``loaded`` is whether the kernel module of the others is. ``kubelet_filled``
    is how many pods a starting kubelet knows, None all. ``unhealthy`` are resources and ids that device
    plugins report as such.
    """

    time: float
    gpus: tuple[Gpu, ...]
    pods: tuple[Pod, ...]
    running: tuple[Running, ...]
    faults: tuple[Fault, ...]
    amd: tuple[Gpu, ...] = ()
    loaded: bool = True
    nvml_faults: tuple[NvmlFault, ...] = ()
    kubelet_down: bool = False
    kubelet_hang: bool = False
    kubelet_rate_limit: bool = False
    kubelet_filled: int | None = None
    unhealthy: frozenset[tuple[str, str]] = frozenset()


def present(scenario: Scenario, time: float) -> Present:
    """Return what is there at ``time`` seconds after the scenario's start."""
    faults = tuple(sorted(filter(lambda fault: fault.at <= time < _end(fault), scenario.faults), key=_at))
    absent = {fault.gpu for fault in faults if isinstance(fault, GpuAbsent)}
    gpus = tuple(_cut(gpu, index, faults) for index, gpu in enumerate(scenario.gpus) if index not in absent)
    amd = gpus_of(scenario.amd)
    pods = _pods(scenario, time, faults)
    kinds = {type(fault) for fault in faults}
    return Present(
        time=time,
        gpus=gpus,
        pods=tuple(pod for pod, _ in pods.values()),
        running=tuple(_running(scenario, time, faults, (*gpus, *amd), pods)),
        faults=faults,
        amd=amd,
        loaded=DriverReload not in kinds,
        nvml_faults=tuple(fault for fault in faults if isinstance(fault, NvmlFault)),
        kubelet_down=KubeletDown in kinds,
        kubelet_hang=KubeletHang in kinds,
        kubelet_rate_limit=KubeletRateLimit in kinds,
        unhealthy=frozenset(
            (fault.resource, device)
            for fault in faults
            if isinstance(fault, Unhealthy)
            for device in fault.devices
        ),
        kubelet_filled=next((fault.pods for fault in faults if isinstance(fault, KubeletFilling)), None),
    )


def _at(fault: Fault) -> float:
    return fault.at


def _end(fault: Fault) -> float:
    return float("inf") if fault.for_ is None else fault.at + fault.for_


def _cut(gpu: Gpu, index: int, faults: tuple[Fault, ...]) -> Gpu:
    for fault in faults:
        if isinstance(fault, MigLayout) and fault.gpu == index and gpu.mig is not None:
            gpu = replace(gpu, mig=replace(gpu.mig, enabled=True, instances=fault.instances))
    return gpu


def _pods(scenario: Scenario, time: float, faults: tuple[Fault, ...]) -> dict[str, tuple[Pod, float]]:
    """Return the pods by name, each with the time at which it came."""
    pods = {_name(pod): (pod, _back(scenario, time, _name(pod), -AGE)) for pod in scenario.pods}
    for fault in faults:
        if isinstance(fault, PodDelete):
            pods.pop(fault.pod, None)
        if isinstance(fault, PodAdd):
            pods[_name(fault.pod)] = (fault.pod, fault.at)
    return pods


def _back(scenario: Scenario, time: float, pod: str, born: float) -> float:
    """Return when a pod that was deleted for a while came back, ``born`` if it was not."""
    ends = (_end(fault) for fault in scenario.faults if isinstance(fault, PodDelete) and fault.pod == pod)
    return max((end for end in ends if end <= time), default=born)


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _running(
    scenario: Scenario,
    time: float,
    faults: tuple[Fault, ...],
    gpus: tuple[Gpu, ...],
    pods: Mapping[str, tuple[Pod, float]],
) -> Iterator[Running]:
    there = {key.mig_uuid or key.uuid for key, _, _ in keys(gpus)}
    for running in _started(scenario, pods):
        ended = any(_ends(scenario, fault, running.process) for fault in faults)
        if not ended and running.process.device in there:
            yield replace(running, born=_restarted(scenario, time, running))


def _started(scenario: Scenario, pods: Mapping[str, tuple[Pod, float]]) -> Iterator[Running]:
    for process in scenario.host_processes:
        yield Running(process=process, born=-AGE)
    for pod, born in pods.values():
        for container in pod.containers:
            for process in container.processes:
                yield Running(process=process, born=born, pod=pod, container=container)


def _restarted(scenario: Scenario, time: float, running: Running) -> float:
    ends = (_end(fault) for fault in scenario.faults if _ends(scenario, fault, running.process))
    return max((running.born, *(end for end in ends if end <= time)))


def _ends(scenario: Scenario, fault: Fault, process: Process) -> bool:
    """Whether a process cannot run while this fault is in force, and is started anew after it."""
    if isinstance(fault, ProcessExit):
        return fault.pid == process.pid
    if isinstance(fault, GpuAbsent):
        return process.device in _devices(scenario, fault.gpu)
    on_nvidia = chain.from_iterable(_devices(scenario, index) for index in range(len(scenario.gpus)))
    return isinstance(fault, DriverReload) and process.device in on_nvidia


def _devices(scenario: Scenario, index: int) -> set[str]:
    """Return the uuids of a GPU and of all MIG instances that it is ever cut into."""
    gpu = scenario.gpus[index]
    layouts = (fault for fault in scenario.faults if isinstance(fault, MigLayout) and fault.gpu == index)
    cuts = chain(gpu.mig.instances if gpu.mig else (), *(layout.instances for layout in layouts))
    return {gpu.uuid, *(cut.uuid for cut in cuts)}
