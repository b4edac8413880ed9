"""The node at a given time: the scenario with the faults that are active then.

A pure function of scenario and time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from exporter.demo import scenario as schema
from exporter.demo.scenario import Fault, Scenario
from exporter.demo.scenario.amd_gpus import gpus_of
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Container, Pod, Process, keys

T = TypeVar("T")
# Age of pods and processes that exist from the start, in seconds.
AGE = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """A running process."""

    process: Process
    born: float  # scenario time; below 0: before it
    pod: Pod | None = None  # None: a process of the host
    container: Container | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The node at one moment."""

    time: float  # seconds since the scenario's start
    gpus: tuple[Gpu, ...]  # NVIDIA GPUs with their current MIG layout
    amd: tuple[Gpu, ...]
    pods: tuple[Pod, ...]
    running: tuple[RunningProcess, ...]
    loaded: bool  # the NVIDIA kernel module
    nvml_faults: tuple[schema.NvmlFault, ...]
    kubelet_failures: frozenset[schema.KubeletFailureKind]
    kubelet_filled: int | None  # pods that a starting kubelet knows; None: all
    unhealthy: frozenset[tuple[str, str]]  # (resource, id) that device plugins report unhealthy


def present(scenario: Scenario, time: float) -> Present:
    """Return the node at ``time`` seconds after the scenario's start."""
    current = [fault for fault in scenario.faults if fault.at <= time < _end(fault)]
    faults = sorted(current, key=lambda fault: fault.at)
    absent = {fault.gpu for fault in _of_kind(schema.GpuAbsent, faults)}
    gpus = tuple(
        _with_layout(gpu, index, faults) for index, gpu in enumerate(scenario.gpus) if index not in absent
    )
    amd = gpus_of(scenario.amd)
    pods = _pods(scenario, time, faults)
    unhealthy = _of_kind(schema.Unhealthy, faults)
    return Present(
        time=time,
        gpus=gpus,
        pods=tuple(pod for pod, _ in pods.values()),
        running=tuple(_running(scenario, time, faults, (*gpus, *amd), pods)),
        amd=amd,
        loaded=not _of_kind(schema.DriverReload, faults),
        nvml_faults=tuple(fault for fault in faults if isinstance(fault, schema.NvmlFault)),
        kubelet_failures=frozenset(fault.kind for fault in _of_kind(schema.KubeletFailure, faults)),
        unhealthy=frozenset((fault.resource, device) for fault in unhealthy for device in fault.devices),
        kubelet_filled=next((fault.pods for fault in _of_kind(schema.KubeletFilling, faults)), None),
    )


def _of_kind(kind: type[T], faults: Iterable[Fault]) -> list[T]:
    return [fault for fault in faults if isinstance(fault, kind)]


def _end(fault: Fault) -> float:
    return float("inf") if fault.for_ is None else fault.at + fault.for_


def _with_layout(gpu: Gpu, index: int, faults: list[Fault]) -> Gpu:
    for fault in _of_kind(schema.MigLayout, faults):
        if fault.gpu == index and gpu.mig is not None:
            gpu = replace(gpu, mig=replace(gpu.mig, enabled=True, instances=fault.instances))
    return gpu


def _pods(scenario: Scenario, time: float, faults: list[Fault]) -> dict[str, tuple[Pod, float]]:
    """Return the pods by namespace/name, each with the time of its start."""
    pods = {pod.full_name: (pod, _pod_start(scenario, time, pod.full_name)) for pod in scenario.pods}
    for fault in faults:
        if isinstance(fault, schema.PodDelete):
            pods.pop(fault.pod, None)
        if isinstance(fault, schema.PodAdd):
            pods[fault.pod.full_name] = (fault.pod, fault.at)
    return pods


def _pod_start(scenario: Scenario, time: float, pod: str) -> float:
    ends = (_end(fault) for fault in _of_kind(schema.PodDelete, scenario.faults) if fault.pod == pod)
    return max((end for end in ends if end <= time), default=-AGE)


def _running(
    scenario: Scenario,
    time: float,
    faults: list[Fault],
    gpus: tuple[Gpu, ...],
    pods: Mapping[str, tuple[Pod, float]],
) -> Iterator[RunningProcess]:
    devices = {key.mig_uuid or key.uuid for key, _, _ in keys(gpus)}
    for running in _started(scenario, pods):
        ended = any(_ends(scenario, fault, running.process) for fault in faults)
        if not ended and running.process.device in devices:
            ends = (_end(fault) for fault in scenario.faults if _ends(scenario, fault, running.process))
            yield replace(running, born=max((running.born, *(end for end in ends if end <= time))))


def _started(scenario: Scenario, pods: Mapping[str, tuple[Pod, float]]) -> Iterator[RunningProcess]:
    for process in scenario.host_processes:
        yield RunningProcess(process=process, born=-AGE)
    for pod, born in pods.values():
        for container in pod.containers:
            for process in container.processes:
                yield RunningProcess(process=process, born=born, pod=pod, container=container)


def _ends(scenario: Scenario, fault: Fault, process: Process) -> bool:
    """Return whether a process ends at the start of a fault, and is started again at its end."""
    if isinstance(fault, schema.ProcessExit):
        return fault.pid == process.pid
    if isinstance(fault, schema.GpuAbsent):
        return process.device in _devices(scenario, fault.gpu)
    on_nvidia = chain.from_iterable(_devices(scenario, index) for index in range(len(scenario.gpus)))
    return isinstance(fault, schema.DriverReload) and process.device in on_nvidia


def _devices(scenario: Scenario, index: int) -> set[str]:
    """Return the uuids of a GPU and of its MIG instances in all layouts."""
    gpu = scenario.gpus[index]
    layouts = (fault for fault in _of_kind(schema.MigLayout, scenario.faults) if fault.gpu == index)
    instances = chain(gpu.instances, *(layout.instances for layout in layouts))
    return {gpu.uuid, *(instance.uuid for instance in instances)}
