"""The vGPUs of a moment: which run, and which container holds each."""

from collections.abc import Iterator

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.present import Present
from exporter.demo.scenario.gpus import Vgpu
from exporter.model import ContainerRef


def running(state: GpuState) -> Iterator[tuple[Vgpu, ProcessState]]:
    """List the vGPUs of a GPU that run now, each with its process on the host."""
    processes = {process.pid: process for process in state.processes}
    return ((vgpu, processes[vgpu.pid]) for vgpu in state.gpu.vgpus if vgpu.pid in processes)


def guests(now: Present, gpus: tuple[GpuState, ...]) -> dict[int, ContainerRef]:
    """Tell in which container the machine of a vGPU is, by the pid of the vGPU's process on the host."""
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
        for vgpu, process in running(state)
        if vgpu.mdev_uuid.lower() in holders
    }
