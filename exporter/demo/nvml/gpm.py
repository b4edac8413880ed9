"""Functions of the fake driver about its profiling meter (GPM): samples, and what two of them tell.

A driver in C would crash over a buffer that was freed. This one refuses the call and takes note of it, and
knows at any time how many buffers were never given back.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import pynvml

from exporter.demo.load import Flow, active_nvlinks
from exporter.demo.machine import COPY_RATIO, GpuState
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    VERSION_MISMATCH,
    Function,
    address_of,
    number,
    put_handle,
    refuse,
    require,
    target,
)
from exporter.demo.nvml.node import Driver
from exporter.demo.scenario.gpus import MIB, MigInstance

FIRST_ARCHITECTURE = 9
FIRST_WITH_COUNTERS = 580
MULTIPROCESSORS = 132
SHORTEST_WINDOW = 0.1
_FIRST, _STRIDE = 0x7E00_0000_0000, 0x1000

# What a device does at full load, by id: a training job that lives on its tensor cores. No load of a
# scenario uses the video engines: they answer, and idle.
SHARES = {1: 1.0, 2: 0.92, 3: 0.48, 4: 0.16, 5: 0.44, 6: 0.0, 7: 0.44, 8: 0.0, 9: 0.0}
SHARES |= {10: COPY_RATIO, 11: 0.01, 12: 0.27, 13: 0.12}
ENGINES = frozenset({*range(30, 37), *range(40, 47), 50})
# Traffic per second, and since the start, by what flows.
RATES: Mapping[int, Flow] = {
    20: "pcie_transmit",
    21: "pcie_receive",
    60: "nvlink_receive",
    61: "nvlink_transmit",
}
BYTES: Mapping[int, Flow] = {255: "pcie_transmit", 256: "pcie_receive"}
# Cycles since the start: by id, the id of the share that they add up.
CYCLES = {249: 2, 250: 5, 251: 8, 252: 7, 253: 9, 254: 6, 257: 4, 258: 11, 259: 12, 260: 13}
ELAPSED = 248
DRAM = 10


@dataclass(slots=True)
class Pool:
    """The buffers of one driver: how many are not freed, and what was done that crashes a real one."""

    live: int = 0
    misuses: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a sample holds: of which device, and its clocks. ``traffic`` in bytes is a GPU's alone.

    ``engines``: it is not one of several compute instances, which have frame buffer and engines in common.
    """

    subject: tuple[str, int | None]
    wall: float
    seconds: float
    busy_seconds: float
    cycles_per_second: float
    traffic: Mapping[Flow, int] = field(default_factory=dict)
    engines: bool = True


@dataclass(slots=True, weakref_slot=True, eq=False)
class Sample:
    """A buffer at an address that is never given out again."""

    pool: Pool
    freed: bool = False
    content: Content | None = None


_pools: WeakKeyDictionary[Driver, tuple[Pool, list[Sample]]] = WeakKeyDictionary()
_samples: WeakValueDictionary[int, Sample] = WeakValueDictionary()
_addresses = count(_FIRST, _STRIDE)
_lock = threading.Lock()


def pool_of(driver: Driver) -> Pool:
    """Return the account of one driver's buffers."""
    return _pools.setdefault(driver, (Pool(), []))[0]


def _alloc(driver: Driver, reference: Any) -> None:
    with _lock:
        pool, samples = _pools.setdefault(driver, (Pool(), []))
        address, sample = next(_addresses), Sample(pool)
        _samples[address] = sample
        samples.append(sample)
        pool.live += 1
    put_handle(reference, address)


def _free(_driver: Driver, pointer: Any) -> None:
    sample = _sample(pointer, "double free")
    sample.freed = True
    sample.pool.live -= 1


def _sample(pointer: Any, misuse: str) -> Sample:
    sample = _samples.get(address_of(pointer))
    if sample is None:
        return refuse(INVALID_ARGUMENT)
    if sample.freed:
        sample.pool.misuses.append(misuse)
        refuse(INVALID_ARGUMENT)
    return sample


def _support(device: Device, reference: Any) -> None:
    answer = target(reference)
    require(answer.version == pynvml.NVML_GPM_SUPPORT_VERSION, VERSION_MISMATCH)
    if isinstance(device, MigDevice):
        refuse(INVALID_ARGUMENT)
    answer.isSupportedDevice = int(_has_meter(device.state))


def _has_meter(state: GpuState) -> bool:
    return state.gpu.architecture >= FIRST_ARCHITECTURE if state.gpu.gpm is None else state.gpu.gpm


def _sample_get(device: Device, pointer: Any) -> None:
    state = device.gpu if isinstance(device, MigDevice) else device.state
    sample = _fillable(state, pointer)
    if isinstance(device, MigDevice):
        cut = device.spec
        sample.content = _of_cuts(state, (cut,), (device.spec.uuid, None), engines=False)
        return
    sample.content = Content(
        subject=(device.spec.uuid, None),
        wall=state.wall,
        seconds=state.seconds,
        busy_seconds=state.busy_seconds[device.spec.uuid],
        cycles_per_second=_hertz(state) * MULTIPROCESSORS,
        traffic={name: total for name, total in state.totals.items() if _flows(state, name)},
    )


def _flows(state: GpuState, name: Flow) -> bool:
    return name.startswith("pcie") or (name.startswith("nvlink") and active_nvlinks(state.gpu) > 0)


def _mig_sample_get(device: GpuDevice, gi: Any, pointer: Any) -> None:
    sample = _fillable(device.state, pointer)
    inside = tuple(mig.state.instance for mig in device.migs.values() if mig.state.instance.gi == number(gi))
    require(inside, INVALID_ARGUMENT)
    sample.content = _of_cuts(device.state, inside, (device.spec.uuid, number(gi)), engines=True)


def _fillable(state: GpuState, pointer: Any) -> Sample:
    require(_has_meter(state))
    return _sample(pointer, "use after free")


def _of_cuts(
    state: GpuState, cuts: tuple[MigInstance, ...], subject: tuple[str, int | None], *, engines: bool
) -> Content:
    """Fill in compute instances that work side by side: each counts by its part of them all."""
    slices = cuts[0].gi_slices if engines else cuts[0].compute_slices
    busy = sum(state.busy_seconds[cut.uuid] * cut.compute_slices / slices for cut in cuts)
    return Content(
        subject=subject,
        wall=state.wall,
        seconds=state.seconds,
        busy_seconds=busy,
        cycles_per_second=_hertz(state) * sum(cut.multiprocessors for cut in cuts),
        engines=engines,
    )


def _hertz(state: GpuState) -> float:
    return state.gpu.clocks.sm_max * 1e6


def _metrics_get(driver: Driver, reference: Any) -> None:
    question = target(reference)
    require(question.version == pynvml.NVML_GPM_METRICS_GET_VERSION, VERSION_MISMATCH)
    older, newer = (_sample(each, "use after free").content for each in (question.sample1, question.sample2))
    if older is None or newer is None or older.subject != newer.subject:
        refuse(INVALID_ARGUMENT)
    values = _values(older, newer, counts=_counts(driver))
    for metric in question.metrics[: question.numMetrics]:
        metric.nvmlReturn = SUCCESS if metric.metricId in values else NOT_SUPPORTED
        metric.value = values.get(metric.metricId, 0.0)


def _counts(driver: Driver) -> bool:
    major = driver.node.driver_version.partition(".")[0]
    return major.isdigit() and int(major) >= FIRST_WITH_COUNTERS


def _values(older: Content, newer: Content, *, counts: bool) -> dict[int, float]:
    """Return what two samples tell, by id. A window without any time in it tells no numbers."""
    window = newer.wall - older.wall
    load = _mean(older.busy_seconds, newer.busy_seconds, window)
    values = {metric: 100 * share * load for metric, share in SHARES.items()}
    if newer.engines:
        values |= dict.fromkeys(ENGINES, 0.0)
    else:
        del values[DRAM]
    for metric, name in RATES.items():
        if name in newer.traffic:
            values[metric] = _mean(older.traffic[name], newer.traffic[name], window) / MIB
    if counts:
        values |= _cycles(newer)
        values |= {metric: newer.traffic[name] for metric, name in BYTES.items() if name in newer.traffic}
    return values


def _mean(older: float, newer: float, window: float) -> float:
    return (newer - older) / window if window >= SHORTEST_WINDOW else math.nan


def _cycles(newer: Content) -> dict[int, float]:
    per_second = newer.cycles_per_second
    busy = {metric: SHARES[of] * newer.busy_seconds * per_second // 1 for metric, of in CYCLES.items()}
    return busy | {ELAPSED: newer.seconds * per_second // 1}


FUNCTIONS: Mapping[str, Function] = {
    "nvmlGpmQueryDeviceSupport": Function("any", _support),
    "nvmlGpmSampleAlloc": Function("node", _alloc),
    "nvmlGpmSampleFree": Function("node", _free),
    "nvmlGpmSampleGet": Function("any", _sample_get),
    "nvmlGpmMigSampleGet": Function("gpu", _mig_sample_get),
    "nvmlGpmMetricsGet": Function("node", _metrics_get),
}
