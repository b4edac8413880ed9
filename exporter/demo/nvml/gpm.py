"""Functions of the fake driver about GPM, its profiling counters: samples, and the metrics between two.

A driver in C would crash over a buffer that was freed. This one refuses the call and counts it, and counts
the buffers that are not freed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import pynvml

from exporter.demo.machine import COPY_RATIO, Flow, GpuState
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import Argument, Code, Function, known, refuse, require
from exporter.demo.scenario.derive import BLACKWELL, HOPPER
from exporter.demo.scenario.gpus import MIB, MigInstance

# An H200 with driver 580.159.04 has the meters of encoders, and no counters of cycles and bytes. That newer
# boards have these is an assumption.
FIRST_WITH_ENCODERS = FIRST_WITH_COUNTERS = 580
COUNTING = BLACKWELL
MULTIPROCESSORS = 132
SHORTEST_WINDOW = 0.1
_FIRST, _STRIDE = 0x7E00_0000_0000, 0x1000

# Activity of a device at full load, by metric id: a training job that lives on its tensor cores. No load
# of a scenario uses the video engines: they are present, and idle.
SHARES = {1: 1.0, 2: 0.92, 3: 0.48, 4: 0.16, 5: 0.44, 6: 0.0, 7: 0.44, 8: 0.0, 9: 0.0}
SHARES |= {10: COPY_RATIO, 11: 0.01, 12: 0.27, 13: 0.12}
ENGINES = frozenset({*range(30, 37), *range(40, 47), 50})
ENCODERS = frozenset({166})
# Traffic per second, and since the start, by metric id.
RATES: Mapping[int, Flow] = {
    20: "pcie_transmit",
    21: "pcie_receive",
    60: "nvlink_receive",
    61: "nvlink_transmit",
}
BYTES: Mapping[int, Flow] = {255: "pcie_transmit", 256: "pcie_receive"}
# Cycles since the start: by metric id, the id of the share that they add up.
CYCLES = {249: 2, 250: 5, 251: 8, 252: 7, 253: 9, 254: 6, 257: 4, 258: 11, 259: 12, 260: 13}
ELAPSED = 248
# That drivers from this branch on fill them is documentation; these figures are made up. Requests per second
# and process that computes, beyond the first; cycles of each.
FIRST_WITH_SWITCHES = 575
SWITCHES_PER_SECOND, SWITCH_CYCLES = 400, 90_000
DRAM = 10

# The uuid of a GPU or MIG device and None, or the uuid of a GPU and the number of its GPU instance.
Subject = tuple[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of a device at one moment."""

    subject: Subject
    state: GpuState
    busy_seconds: float
    multiprocessors: int
    # False for a compute instance, which has memory and engines in common with others.
    has_engines: bool = True
    has_traffic: bool = False  # whole GPUs only


@dataclass(slots=True)
class Buffer:
    """The memory for one sample."""

    freed: bool = False
    counters: Counters | None = None


# Of all drivers, so that no address is used twice.
_addresses = count(_FIRST, _STRIDE)


class Pool:
    """The sample buffers of one driver: ``live`` are not freed, ``misuses`` would crash a real driver."""

    def __init__(self) -> None:
        self.live = 0
        self.misuses: list[str] = []
        self._buffers: dict[int, Buffer] = {}

    def allocate(self) -> int:
        """Create a buffer; return its address."""
        address = next(_addresses)
        self._buffers[address] = Buffer()
        self.live += 1
        return address

    def free(self, pointer: Argument) -> None:
        self.buffer(pointer, "double free").freed = True
        self.live -= 1

    def buffer(self, pointer: Argument, misuse: str = "use after free") -> Buffer:
        """Return the buffer at an address; refuse the call if there is none or it was freed."""
        buffer = known(self._buffers.get(pointer.address), Code.INVALID_ARGUMENT)
        if buffer.freed:
            self.misuses.append(misuse)
            refuse(Code.INVALID_ARGUMENT)
        return buffer


def _support(device: Device, reference: Argument) -> None:
    answer = reference.record(pynvml.NVML_GPM_SUPPORT_VERSION)
    require(isinstance(device, GpuDevice), Code.INVALID_ARGUMENT)
    answer.isSupportedDevice = _has_gpm(device.gpu)


def _has_gpm(state: GpuState) -> bool:
    return state.gpu.architecture >= HOPPER if state.gpu.gpm is None else state.gpu.gpm


class _Driver(Protocol):
    branch: int
    gpm: Pool


def _sample_get(device: Device, driver: _Driver, pointer: Argument) -> None:
    require(_has_gpm(device.gpu))
    subject = (device.spec.uuid, None)
    if isinstance(device, MigDevice):
        counters = _of_instances(device.gpu, (device.spec,), subject, engines=False)
    else:
        counters = Counters(
            subject=subject,
            state=device.state,
            busy_seconds=device.state.busy_seconds[device.spec.uuid],
            multiprocessors=MULTIPROCESSORS,
            has_traffic=True,
        )
    driver.gpm.buffer(pointer).counters = counters


def _mig_sample_get(device: GpuDevice, driver: _Driver, gi: Argument, pointer: Argument) -> None:
    require(_has_gpm(device.state))
    buffer = driver.gpm.buffer(pointer)
    inside = tuple(mig.spec for mig in device.migs.values() if mig.spec.gi == gi.number)
    require(inside, Code.INVALID_ARGUMENT)
    buffer.counters = _of_instances(device.state, inside, (device.spec.uuid, gi.number), engines=True)


def _of_instances(
    state: GpuState, instances: tuple[MigInstance, ...], subject: Subject, *, engines: bool
) -> Counters:
    """Return the counters of compute instances together, each weighted by its slices."""
    slices = instances[0].gi_slices if engines else instances[0].compute_slices
    return Counters(
        subject=subject,
        state=state,
        busy_seconds=sum(state.busy_seconds[mig.uuid] * mig.compute_slices / slices for mig in instances),
        multiprocessors=sum(instance.multiprocessors for instance in instances),
        has_engines=engines,
    )


def _metrics_get(driver: _Driver, reference: Argument) -> None:
    question = reference.record(pynvml.NVML_GPM_METRICS_GET_VERSION)
    pointers = Argument(question.sample1), Argument(question.sample2)
    older, newer = (driver.gpm.buffer(pointer).counters for pointer in pointers)
    if older is None or newer is None or older.subject != newer.subject:
        refuse(Code.INVALID_ARGUMENT)
    values = _values(older, newer, driver.branch)
    for metric in question.metrics[: question.numMetrics]:
        metric.nvmlReturn = Code.SUCCESS if metric.metricId in values else Code.NOT_SUPPORTED
        metric.value = values.get(metric.metricId, 0.0)


def _values(older: Counters, newer: Counters, branch: int) -> dict[int, float]:
    """Return the metrics of the time between two samples, by id; NaN if that time is too short."""
    before, now = older.state, newer.state
    window = now.wall - before.wall
    load = _rate(older.busy_seconds, newer.busy_seconds, window)
    values = {metric: 100 * share * load for metric, share in SHARES.items()}
    if newer.has_engines:
        values |= dict.fromkeys(ENGINES | ENCODERS if branch >= FIRST_WITH_ENCODERS else ENGINES, 0.0)
    else:
        del values[DRAM]
    if newer.has_traffic:
        for metric, flow in RATES.items():
            values[metric] = _rate(before.totals[flow], now.totals[flow], window) / MIB
    if now.gpu.architecture >= COUNTING and branch >= FIRST_WITH_COUNTERS:
        cycles = now.gpu.clocks.sm_max * 1e6 * newer.multiprocessors
        values |= {metric: SHARES[of] * newer.busy_seconds * cycles // 1 for metric, of in CYCLES.items()}
        values[ELAPSED] = now.seconds * cycles // 1
        if newer.has_traffic:
            values |= {metric: now.totals[flow] for metric, flow in BYTES.items()}
    if newer.has_traffic and branch >= FIRST_WITH_SWITCHES:
        values |= _switches(now, window)
    return values


def _switches(state: GpuState, window: float) -> dict[int, float]:
    """Return the metrics of context switches: processes that compute take turns on the first engine."""
    computing = sum(process.sm > 0 for process in state.processes)
    requests = float(max(computing - 1, 0) * SWITCHES_PER_SECOND * window // 1)
    elapsed = state.gpu.clocks.sm_max * 1e6 * window
    if window < SHORTEST_WINDOW:
        return {}
    active = requests * SWITCH_CYCLES
    per_request = float(SWITCH_CYCLES) if requests else math.nan
    return {170: elapsed, 171: active, 172: requests, 173: per_request, 174: 100 * active / elapsed}


def _rate(older: float, newer: float, window: float) -> float:
    return (newer - older) / window if window >= SHORTEST_WINDOW else math.nan


FUNCTIONS: dict[str, Function] = {
    "nvmlGpmQueryDeviceSupport": Function("any", _support),
    "nvmlGpmSampleAlloc": Function("node", lambda driver, pointer: pointer.put_handle(driver.gpm.allocate())),
    "nvmlGpmSampleFree": Function("node", lambda driver, pointer: driver.gpm.free(pointer)),
    "nvmlGpmSampleGet": Function("any", _sample_get, with_driver=True),
    "nvmlGpmMigSampleGet": Function("gpu", _mig_sample_get, with_driver=True),
    "nvmlGpmMetricsGet": Function("node", _metrics_get),
}
