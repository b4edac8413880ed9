"""What the hardware does: the load of the processes turned into memory, activity, heat and energy.

``Machine.step`` returns one frozen state of all GPUs, which the fake driver shows.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.demo.load import Curve, Flow, Meters, flows, level, power_limit
from exporter.demo.present import Present, Running
from exporter.demo.scenario.gpus import MIB, Gpu, MigInstance, Vgpu

# How many samples of process utilization the driver keeps for each GPU.
SAMPLES = 100
# Degrees between idle and full power, and the time in which most of a change has happened.
HEAT, WARMING_SECONDS = 42.0, 20.0
MEMORY_HOTTER = 6
# Memory traffic per percent of SM activity; a rule of thumb that looks alive.
COPY_RATIO = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process on its device; ``sm`` is its share of the device in percent.

    ``memory`` is what it was given, in bytes; ``told`` is False where the driver cannot say so.
    """

    running: Running
    memory: int
    told: bool
    sm: int
    instance: MigInstance | None = None

    @property
    def pid(self) -> int:
        """The process id as the host sees it."""
        return self.running.process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceState:
    """A MIG instance; ``used`` is that of its whole GPU instance, ``processes`` are its own alone."""

    instance: MigInstance
    used: int
    processes: tuple[ProcessState, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Process utilization in percent by pid, at a wall clock time in microseconds."""

    timestamp: int
    sm: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU. ``instances`` is empty and ``processes`` are all that run on it when it is not cut.

    ``flows`` is what passes through it now, and ``totals`` what has passed since the start: see
    ``exporter.demo.load``. ``seconds`` is how long it has worked, and ``busy_seconds`` how many seconds of
    full load that makes, by uuid of the GPU and of its MIG instances, each as a share of itself.
    ``pci_bus_ids`` are those of all GPUs of the node, by uuid.
    """

    gpu: Gpu
    wall: float
    used: int
    reserved: int
    processes: tuple[ProcessState, ...]
    instances: tuple[InstanceState, ...]
    utilization: int
    power_mw: int
    temperature: int
    flows: Mapping[Flow, float]
    totals: Mapping[Flow, int]
    samples: tuple[Sample, ...]
    seconds: float
    busy_seconds: Mapping[str, float]
    pci_bus_ids: Mapping[str, str]

    @property
    def is_cut(self) -> bool:
        """Whether MIG is enabled."""
        return self.gpu.mig is not None and self.gpu.mig.enabled


@dataclass(slots=True)
class _Memory:
    """What a GPU carries from one step to the next."""

    samples: deque[Sample]
    temperature: float
    meters: Meters
    seconds: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)
    busy_seconds: Mapping[str, float] = field(default_factory=dict)


class Machine:
    """The GPUs of a node over time. ``seed`` sets the noise of the load curves."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._time: float | None = None
        self._pci_bus_ids: dict[str, str] = {}
        self._carried: dict[str, _Memory] = {}

    def step(self, now: Present, wall: float) -> tuple[GpuState, ...]:
        """Return the GPUs at ``now``; ``wall`` is the same moment in Unix time.

        Times must not go back. What is counted is the mean of both ends of a step, times its length.
        """
        elapsed = 0.0 if self._time is None else max(0.0, now.time - self._time)
        self._time = now.time
        # What counts, counts since the driver took hold of the GPU.
        counting = {gpu.uuid for gpu in now.gpus} if now.loaded else set()
        self._carried = {uuid: memory for uuid, memory in self._carried.items() if uuid in counting}
        self._pci_bus_ids = {gpu.uuid: gpu.pci_bus_id for gpu in now.gpus}
        spent = {gpu.uuid: elapsed if gpu.uuid in self._carried else 0.0 for gpu in now.gpus}
        return tuple(self._gpu(gpu, now, wall, spent[gpu.uuid]) for gpu in now.gpus)

    def _gpu(self, gpu: Gpu, now: Present, wall: float, elapsed: float) -> GpuState:
        processes, instances = self._on(gpu, now)
        load = _load(gpu, processes)
        power = _power(gpu, load)
        carried = self._carry(gpu, load, power, elapsed)
        _work(carried, {gpu.uuid: load} | _loads(instances), elapsed)
        if not (gpu.mig and gpu.mig.enabled):
            carried.samples.append(
                Sample(round(wall * 1e6), {process.pid: process.sm for process in processes})
            )
        cuts = {state.instance.gi: state for state in instances}.values()
        return GpuState(
            gpu=gpu,
            wall=wall,
            used=gpu.overhead
            + sum(cut.instance.overhead for cut in cuts)
            + sum(process.memory for process in processes),
            reserved=gpu.memory_reserved + sum(cut.instance.reserved for cut in cuts),
            processes=processes,
            instances=instances,
            utilization=round(load),
            power_mw=power,
            temperature=round(carried.temperature),
            flows=carried.meters.now,
            totals=carried.meters.totals(),
            samples=tuple(carried.samples),
            pci_bus_ids=self._pci_bus_ids,
            seconds=carried.seconds,
            busy_seconds=carried.busy_seconds,
        )

    def _carry(self, gpu: Gpu, load: float, power: int, elapsed: float) -> _Memory:
        target = gpu.temperature_base + HEAT * _power_ratio(gpu, power)
        carried = self._carried.get(gpu.uuid)
        if carried is None:
            carried = self._carried[gpu.uuid] = _Memory(deque(maxlen=SAMPLES), target, Meters())
        carried.temperature += (target - carried.temperature) * (1 - math.exp(-elapsed / WARMING_SECONDS))
        carried.meters.advance(flows(gpu, load, power, round(carried.temperature)), elapsed)
        return carried

    def _on(self, gpu: Gpu, now: Present) -> tuple[tuple[ProcessState, ...], tuple[InstanceState, ...]]:
        if not (gpu.mig and gpu.mig.enabled):
            room = gpu.memory_total - gpu.memory_reserved - gpu.overhead
            there = [(running, None) for running in now.running if running.process.device == gpu.uuid]
            return self._share(there, room, now.time), ()
        processes = tuple(
            state for gi in _gpu_instances(gpu.mig.instances).values() for state in self._in(gi, now)
        )
        return processes, tuple(_instance_state(cut, processes) for cut in gpu.mig.instances)

    def _in(self, cuts: tuple[MigInstance, ...], now: Present) -> tuple[ProcessState, ...]:
        """Run what sits in one GPU instance: it has the memory in common, each cut has its own SMs."""
        room = cuts[0].memory_bytes - cuts[0].reserved - cuts[0].overhead
        by_uuid = {cut.uuid: cut for cut in cuts}
        there = [
            (running, by_uuid[running.process.device])
            for running in now.running
            if running.process.device in by_uuid
        ]
        return self._share(there, room, now.time)

    def _share(
        self, there: Sequence[tuple[Running, MigInstance | None]], room: int, time: float
    ) -> tuple[ProcessState, ...]:
        """Give memory in order while there is room, and each device's time by demand."""
        demand = {running.process.pid: self._demand(running, time) for running, _ in there}
        total: Counter[str] = Counter()
        for running, _ in there:
            total[running.process.device] += demand[running.process.pid]
        states = []
        for running, cut in there:
            process = running.process
            memory = min(room, self._memory(running, time))
            room -= memory
            sm = demand[process.pid] * 100 // max(100, total[process.device])
            states.append(
                ProcessState(
                    running=running, memory=memory, told=process.memory is not None, sm=sm, instance=cut
                )
            )
        return tuple(states)

    def _demand(self, running: Running, time: float) -> int:
        process = running.process
        return min(100, round(level(process.load, time, f"load/{process.pid}", self._seed)))

    def _memory(self, running: Running, time: float) -> int:
        process = running.process
        if isinstance(process.memory, Curve):
            # Allocators work in large blocks; a figure that moves by single bytes would look odd.
            return int(level(process.memory, time, f"memory/{process.pid}", self._seed)) // MIB * MIB
        return process.memory or 0


def _gpu_instances(instances: tuple[MigInstance, ...]) -> dict[int, tuple[MigInstance, ...]]:
    return {
        instance.gi: tuple(other for other in instances if other.gi == instance.gi) for instance in instances
    }


def _instance_state(cut: MigInstance, processes: tuple[ProcessState, ...]) -> InstanceState:
    inside = [state for state in processes if state.instance and state.instance.gi == cut.gi]
    return InstanceState(
        instance=cut,
        used=cut.overhead + sum(state.memory for state in inside),
        processes=tuple(state for state in inside if state.instance is cut),
    )


def _loads(instances: tuple[InstanceState, ...]) -> dict[str, float]:
    """Return how busy each MIG instance is, in percent of itself."""
    return {
        state.instance.uuid: min(100.0, sum(process.sm for process in state.processes)) for state in instances
    }


def _work(carried: _Memory, load: Mapping[str, float], elapsed: float) -> None:
    """Add up seconds of full load: the mean of both ends of a step, times its length."""
    carried.seconds += elapsed
    carried.busy_seconds = {
        uuid: carried.busy_seconds.get(uuid, 0.0) + (carried.load.get(uuid, now) + now) / 200 * elapsed
        for uuid, now in load.items()
    }
    carried.load = load


def _load(gpu: Gpu, processes: tuple[ProcessState, ...]) -> float:
    """Return how busy the whole GPU is, in percent; an instance counts by its slices."""
    slices = gpu.mig.max_slices if gpu.mig else 1
    shares = (
        state.sm * (state.instance.compute_slices / slices if state.instance else 1) for state in processes
    )
    return min(100.0, sum(shares))


def _power(gpu: Gpu, load: float) -> int:
    """Return the draw in mW: more with the load, up to the limit that is set."""
    wanted = round(gpu.power_idle_mw + (gpu.power_max_mw - gpu.power_idle_mw) * load / 100)
    return min(wanted, power_limit(gpu))


def _power_ratio(gpu: Gpu, power: int) -> float:
    return (power - gpu.power_idle_mw) / max(1, gpu.power_max_mw - gpu.power_idle_mw)


def running_vgpus(state: GpuState) -> Iterator[tuple[Vgpu, ProcessState]]:
    """List the vGPUs of a GPU that run now, each with its process on the host."""
    processes = {process.pid: process for process in state.processes}
    return ((vgpu, processes[vgpu.pid]) for vgpu in state.gpu.vgpus if vgpu.pid in processes)
