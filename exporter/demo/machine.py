"""The hardware of a fake node: the load of processes becomes memory, utilization, heat, energy and traffic.

``Machine.step`` returns one frozen state of all GPUs, which the fake driver shows.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from exporter.demo.accounts import Accounts, AccountState
from exporter.demo.present import Present, RunningProcess
from exporter.demo.scenario.derive import active_nvlinks, nvlink_speed, pcie_generation, power_limit
from exporter.demo.scenario.gpus import MIB, Gpu, MigInstance
from exporter.demo.scenario.pods import Curve, Process, level

# Samples of process utilization that the driver keeps for each GPU.
SAMPLES = 100
# Degrees between idle and full power, and the time constant of a change.
HEAT, WARMING_SECONDS = 42.0, 20.0
MEMORY_HOTTER = 6
# The command of an MPS server.
MPS_SERVER = "nvidia-cuda-mps-server"
# Memory traffic per percent of SM activity; a rule of thumb that looks alive.
COPY_RATIO = 0.6
# Energy in mW, traffic in bytes per second, and whether a reason limits the clocks (0 or 1).
Flow = Literal[
    "energy",
    "pcie_transmit",
    "pcie_receive",
    "nvlink_transmit",
    "nvlink_receive",
    "power",
    "software_thermal",
    "hardware_thermal",
]
REASONS = frozenset({"power", "software_thermal", "hardware_thermal"})
NANOSECONDS = 1_000_000_000
# Part of the power limit from which it limits the clocks.
CAPPED = 0.95
# Bytes per second of one lane of the first PCIe generation; each later one doubles them.
LANE = 250_000_000
# Part of a link's bandwidth in use at full load.
PCIE_OUT, PCIE_IN, NVLINK_USE = 0.03, 0.08, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process on its device."""

    running: RunningProcess
    memory: int  # bytes; 0 if the driver cannot report it
    sm: int  # share of the device in percent
    instance: MigInstance | None = None

    @property
    def pid(self) -> int:
        """The process id on the host."""
        return self.running.process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceState:
    """A MIG instance."""

    instance: MigInstance
    used: int  # bytes, of the whole GPU instance
    processes: tuple[ProcessState, ...]  # of this compute instance


@dataclass(frozen=True, slots=True)
class Sample:
    """Utilization by process."""

    timestamp: int  # microseconds since the epoch
    sm: Mapping[int, int]  # percent by pid


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU at one moment."""

    gpu: Gpu
    wall: float  # Unix time
    used: int  # bytes
    reserved: int  # bytes
    processes: tuple[ProcessState, ...]  # of all instances
    instances: tuple[InstanceState, ...]  # empty without MIG
    utilization: int  # percent
    power_mw: int
    temperature: int  # degrees
    flows: Mapping[Flow, float]  # now; see Flow
    totals: Mapping[Flow, int]  # since the driver was loaded
    samples: tuple[Sample, ...]
    accounts: tuple[AccountState, ...]  # of processes; empty unless accounting is on
    seconds: float  # since the driver was loaded
    # Seconds of full load, by uuid of the GPU and of its MIG instances, each as a share of itself.
    busy_seconds: Mapping[str, float]
    pci_bus_ids: Mapping[str, str]  # of all GPUs of the node, by uuid


class _History:
    """The part of a GPU's state that depends on earlier steps: samples, temperature and counters.

    ``flows`` are those at the last ``advance``, ``seconds`` is the time of all steps, ``busy_seconds`` are
    the seconds of full load by device.
    """

    def __init__(self, temperature: float) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.accounts = Accounts()
        self.temperature = temperature
        self.flows: Mapping[Flow, float] = {}
        self.seconds = 0.0
        self.busy_seconds: Mapping[str, float] = {}
        self._load: Mapping[str, float] = {}
        self._totals: dict[Flow, float] = dict.fromkeys(get_args(Flow), 0.0)

    def advance(self, now: Mapping[Flow, float], load: Mapping[str, float], elapsed: float) -> None:
        """Add the mean of both ends of a step, times its length in seconds; ``load`` is percent by device."""
        self.seconds += elapsed
        for name in self._totals:
            self._totals[name] += (self.flows.get(name, now[name]) + now[name]) / 2 * elapsed
        self.busy_seconds = {
            uuid: self.busy_seconds.get(uuid, 0.0) + (self._load.get(uuid, percent) + percent) / 200 * elapsed
            for uuid, percent in load.items()
        }
        self.flows, self._load = now, load

    def totals(self) -> Mapping[Flow, int]:
        """Return mJ, bytes, and nanoseconds in which the clocks were limited."""
        return {
            name: int(total * NANOSECONDS if name in REASONS else total)
            for name, total in self._totals.items()
        }


class Machine:
    """The GPUs of a node over time. ``seed`` sets the noise of the load curves."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._time: float | None = None
        self._pci_bus_ids: dict[str, str] = {}
        self._histories: dict[str, _History] = {}

    def step(self, now: Present, wall: float) -> tuple[GpuState, ...]:
        """Return the GPUs at ``now``; ``wall`` is the same moment in Unix time.

        Time must not go back. Counters add the mean of both ends of a step, times its length.
        """
        elapsed = 0.0 if self._time is None else max(0.0, now.time - self._time)
        self._time = now.time
        # Counters start when the driver takes over the GPU.
        counting = {gpu.uuid for gpu in now.gpus} if now.loaded else set()
        self._histories = {uuid: history for uuid, history in self._histories.items() if uuid in counting}
        self._pci_bus_ids = {gpu.uuid: gpu.pci_bus_id for gpu in now.gpus}
        return tuple(
            self._gpu(gpu, now, wall, elapsed if gpu.uuid in self._histories else 0.0) for gpu in now.gpus
        )

    def _gpu(self, gpu: Gpu, now: Present, wall: float, elapsed: float) -> GpuState:
        processes, instances = self._run(gpu, now)
        load = _load(gpu, processes)
        span = max(1, gpu.power_max_mw - gpu.power_idle_mw)
        unlimited = round(gpu.power_idle_mw + (gpu.power_max_mw - gpu.power_idle_mw) * load / 100)
        power = min(unlimited, power_limit(gpu))
        target = gpu.temperature_base + HEAT * (power - gpu.power_idle_mw) / span
        history = self._histories.setdefault(gpu.uuid, _History(target))
        history.temperature += (target - history.temperature) * (1 - math.exp(-elapsed / WARMING_SECONDS))
        # Each device in percent of itself.
        loads = {
            state.instance.uuid: min(100.0, sum(process.sm for process in state.processes))
            for state in instances
        }
        moving = _flows(gpu, load, power, round(history.temperature))
        history.advance(moving, {gpu.uuid: load} | loads, elapsed)
        if not gpu.mig_enabled:
            sampled = _sampled(processes)
            history.samples.append(Sample(round(wall * 1e6), sampled))
            if gpu.accounting:
                history.accounts.advance(wall, sampled, {state.pid: state.memory for state in processes})
        gpu_instances = {state.instance.gi: state.instance for state in instances}.values()
        return GpuState(
            gpu=gpu,
            wall=wall,
            used=gpu.overhead
            + sum(instance.overhead for instance in gpu_instances)
            + sum(process.memory for process in processes),
            reserved=gpu.memory_reserved + sum(instance.reserved for instance in gpu_instances),
            processes=processes,
            instances=instances,
            utilization=round(load),
            power_mw=power,
            temperature=round(history.temperature),
            flows=history.flows,
            totals=history.totals(),
            samples=tuple(history.samples),
            accounts=history.accounts.all(),
            pci_bus_ids=self._pci_bus_ids,
            seconds=history.seconds,
            busy_seconds=history.busy_seconds,
        )

    def _run(self, gpu: Gpu, now: Present) -> tuple[tuple[ProcessState, ...], tuple[InstanceState, ...]]:
        if not gpu.mig_enabled:
            room = gpu.memory_total - gpu.memory_reserved - gpu.overhead
            return self._share({gpu.uuid: None}, room, now), ()
        processes: list[ProcessState] = []
        for gi in dict.fromkeys(instance.gi for instance in gpu.instances):
            # The memory of a GPU instance is shared; each of its compute instances has its own SMs.
            inside = [instance for instance in gpu.instances if instance.gi == gi]
            room = inside[0].memory_bytes - inside[0].reserved - inside[0].overhead
            processes += self._share({instance.uuid: instance for instance in inside}, room, now)
        return tuple(processes), tuple(_instance_state(instance, processes) for instance in gpu.instances)

    def _share(
        self, devices: Mapping[str, MigInstance | None], room: int, now: Present
    ) -> tuple[ProcessState, ...]:
        """Allot memory in order while there is room, and the time of each device by demand."""
        here = [running for running in now.running if running.process.device in devices]
        demand: dict[int, int] = {}
        total: Counter[str] = Counter()
        for process in (running.process for running in here):
            percent = level(process.load, now.time, f"load/{process.pid}", self._seed)
            demand[process.pid] = min(100, round(percent))
            total[process.device] += demand[process.pid]
        states = []
        for running in here:
            process = running.process
            memory = min(room, self._memory(process, now.time))
            room -= memory
            states.append(
                ProcessState(
                    running=running,
                    memory=memory,
                    sm=demand[process.pid] * 100 // max(100, total[process.device]),
                    instance=devices[process.device],
                )
            )
        return tuple(states)

    def _memory(self, process: Process, time: float) -> int:
        if isinstance(process.memory, Curve):
            # Allocators work in large blocks; a figure that moves by single bytes would look odd.
            return int(level(process.memory, time, f"memory/{process.pid}", self._seed)) // MIB * MIB
        return process.memory or 0


def _sampled(processes: Sequence[ProcessState]) -> dict[int, int]:
    """Return percent by pid as the driver samples it: clients of MPS have none, their server has it all."""
    served = sum(state.sm for state in processes if state.running.process.kind == "mps")
    return {
        state.pid: state.sm + (served if state.running.process.command == MPS_SERVER else 0)
        for state in processes
        if state.running.process.kind != "mps"
    }


def _instance_state(instance: MigInstance, processes: Sequence[ProcessState]) -> InstanceState:
    inside = [state for state in processes if state.instance and state.instance.gi == instance.gi]
    return InstanceState(
        instance=instance,
        used=instance.overhead + sum(state.memory for state in inside),
        processes=tuple(state for state in inside if state.instance is instance),
    )


def _load(gpu: Gpu, processes: tuple[ProcessState, ...]) -> float:
    """Return the load of the whole GPU in percent, with instances weighted by their slices."""
    slices = gpu.mig.max_slices if gpu.mig else 1
    shares = (
        state.sm * (state.instance.compute_slices / slices if state.instance else 1) for state in processes
    )
    return min(100.0, sum(shares))


def _flows(gpu: Gpu, load: float, power: int, temperature: int) -> Mapping[Flow, float]:
    """Return the flows of a GPU at a load in percent, a power in mW and a temperature in degrees."""
    busy = load / 100
    pcie = LANE * 2 ** (pcie_generation(gpu) - 1) * gpu.links.pcie_width
    # MIG devices cannot reach each other over NVLink.
    nvlink = 0 if gpu.mig_enabled else active_nvlinks(gpu) * nvlink_speed(gpu) * 1_000_000 * NVLINK_USE
    return {
        "energy": power,
        "pcie_transmit": pcie * PCIE_OUT * busy,
        "pcie_receive": pcie * PCIE_IN * busy,
        "nvlink_transmit": nvlink * busy,
        "nvlink_receive": nvlink * busy,
        "power": float(busy > 0 and power > CAPPED * power_limit(gpu)),
        "software_thermal": float(temperature >= gpu.thresholds.gpu),
        "hardware_thermal": float(temperature >= gpu.thresholds.slowdown),
    }
