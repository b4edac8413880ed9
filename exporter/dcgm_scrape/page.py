"""Parses the page of a dcgm-exporter into profiles by GPU or GPU instance, and merges them into readings.

Only DCGM's profiling fields (``DCGM_FI_PROF_*``) are read. DCGM 4.6 renamed them; dcgm-exporter prints the
names in its file of counters, that of version 1 in lower case.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from exporter.model import GpuReading, Profile
from exporter.model.readings import Activity, Cycles, Engine, Traffic

Reason = Literal[
    "unreachable", "deadline", "status", "too_large", "malformed", "own_page", "not_dcgm", "no_profiling"
]

REMEDIES: Final[dict[Reason, str]] = {
    "unreachable": "check that dcgm-exporter runs on this node and that --dcgm-exporter-url points to it",
    "deadline": "dcgm-exporter is overloaded or hangs; retried at the next poll",
    "status": "check the path of --dcgm-exporter-url; dcgm-exporter serves /metrics",
    "too_large": "check that --dcgm-exporter-url points to the dcgm-exporter of one node",
    "malformed": "check that --dcgm-exporter-url points to a dcgm-exporter",
    "own_page": "point --dcgm-exporter-url to dcgm-exporter, by default on port 9400",
    "not_dcgm": "check that --dcgm-exporter-url points to a dcgm-exporter that has started",
    "no_profiling": "give dcgm-exporter the capability SYS_ADMIN and a file of counters with DCGM_FI_PROF"
    " fields, and check that no other profiler uses the GPUs",
}


class DcgmError(Exception):
    """The dcgm-exporter has no usable page. ``reason`` is a label value; the message contains the remedy."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{detail} ({reason}): {REMEDIES[reason]}")
        self.reason: Reason = reason


PREFIX: Final = "DCGM_FI_PROF_"
# Shares may be slightly above 1: they are rounded, and their parts are sampled at different times.
HIGHEST_SHARE: Final = 1.01
# DCGM's blank values: no value, not found, not supported, not permitted. Exact values, because a rate in
# bytes may be higher than a blank of 32 bits.
BLANKS_32: Final = frozenset(range(0x7FFFFFF0, 0x7FFFFFF4))
BLANK_64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_DOUBLE: Final = 140737488355328.0

Part = Literal["active", "engines", "rates", "cycles", "bytes_total"]
"""A field of ``Profile``: shares, shares of one engine of a kind, bytes per second, and counts since boot."""


class ProfilingField(NamedTuple):
    """A profiling field of DCGM, whatever type the page declares."""

    part: Part
    key: Activity | Engine | Traffic | Cycles  # in this part
    engine: int = 0  # number among the engines of a kind


_SHARES: Final[Mapping[Activity, tuple[str, str]]] = {
    "graphics_engine": ("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    "sm": ("SM_ACTIVE", "SM_UTIL_RATIO"),
    "sm_occupancy": ("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    "tensor": ("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    "tensor_imma": ("PIPE_TENSOR_IMMA_ACTIVE", "IMMA_UTIL_RATIO"),
    "tensor_hmma": ("PIPE_TENSOR_HMMA_ACTIVE", "HMMA_UTIL_RATIO"),
    "tensor_dfma": ("PIPE_TENSOR_DFMA_ACTIVE", "DFMA_UTIL_RATIO"),
    "dram": ("DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    "fp64": ("PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO"),
    "fp32": ("PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO"),
    "fp16": ("PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO"),
    "integer": ("PIPE_INT_ACTIVE", "INT_UTIL_RATIO"),
}
_ENGINES: Final[Mapping[Engine, tuple[str, int]]] = {
    "decoder": ("NVDEC", 8),
    "jpeg": ("NVJPG", 8),
    "ofa": ("NVOFA", 2),
}
_RATES: Final[Mapping[Traffic, str]] = {
    "pcie_transmit": "PCIE_TX_BYTES",
    "pcie_receive": "PCIE_RX_BYTES",
    "nvlink_transmit": "NVLINK_TX_BYTES",
    "nvlink_receive": "NVLINK_RX_BYTES",
}
_CYCLES: Final[Mapping[Cycles, str]] = {
    "sm_elapsed": "SM_CYCLES_ELAPSED_TOTAL",
    "sm_active": "SM_CYCLES_ACTIVE_TOTAL",
    "mma": "MMA_CYCLES_ACTIVE_TOTAL",
    "dmma": "DMMA_CYCLES_ACTIVE_TOTAL",
    "hmma": "HMMA_CYCLES_ACTIVE_TOTAL",
    "imma": "IMMA_CYCLES_ACTIVE_TOTAL",
    "dfma": "DFMA_CYCLES_ACTIVE_TOTAL",
    "integer": "INT_CYCLES_ACTIVE_TOTAL",
    "fp64": "FP64_CYCLES_ACTIVE_TOTAL",
    "fp32": "FP32_CYCLES_ACTIVE_TOTAL",
    "fp16": "FP16_CYCLES_ACTIVE_TOTAL",
}
_BYTES: Final[Mapping[Traffic, str]] = {
    "pcie_transmit": "PCIE_TX_BYTES_TOTAL",
    "pcie_receive": "PCIE_RX_BYTES_TOTAL",
}


def _names() -> Iterator[tuple[str, ProfilingField]]:
    """Yield every name of every field, without the prefix."""
    for share, names in _SHARES.items():
        yield from ((name, ProfilingField("active", share)) for name in names)
    for engine, (stem, count) in _ENGINES.items():
        for number in range(count):
            for name in (f"{stem}{number}_ACTIVE", f"{stem}_UTIL_{number}_RATIO"):
                yield name, ProfilingField("engines", engine, number)
    yield from ((name, ProfilingField("rates", traffic)) for traffic, name in _RATES.items())
    yield from ((name, ProfilingField("cycles", cycles)) for cycles, name in _CYCLES.items())
    yield from ((name, ProfilingField("bytes_total", traffic)) for traffic, name in _BYTES.items())


FIELDS: Final[Mapping[str, ProfilingField]] = {PREFIX + name: field for name, field in _names()}
"""By name in capitals, old and new."""


def plausible(part: Part, value: float) -> float | None:
    """Return the value of a field; None for a blank or implausible one."""
    if part in ("active", "engines"):
        return min(value, 1.0) if 0 <= value <= HIGHEST_SHARE else None
    if part == "rates":
        return value if 0 <= value < BLANK_DOUBLE and value not in BLANKS_32 else None
    # Counts soon exceed the blank of doubles, but are printed as integers.
    whole = isinstance(value, int) and 0 <= value < BLANK_64 and value not in BLANKS_32
    return value if whole else None


DcgmDevice: TypeAlias = tuple[str, int | None]
"""UUID of a GPU, and id of a GPU instance on it, None for the whole GPU."""

# Prefix of this exporter's series; its page may have DCGM's names, too.
_OWN = "gpuslice_"
_DCGM = "DCGM_"
_UUID_LABELS = ("UUID", "uuid")
_INSTANCE_LABELS = ("GPU_I_ID", "gpu_i_id")
# Limited, because Python raises for very long numbers.
_INSTANCE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmReading:
    """The profiling metrics of one page."""

    profiles: Mapping[DcgmDevice, Profile] = field(default_factory=dict)
    # Profiling lines that could not be parsed.
    unreadable: int = 0


def read_page(text: str, oldest: float) -> DcgmReading:
    """Return the reading of a page in the Prometheus text format, without samples older than ``oldest``.

    ``oldest`` is Unix time. A page has the same series once for each pod of a shared GPU; if their values
    differ, the value is unknown. Raises DcgmError for a page without profiling metrics.
    """
    lines = _profiling_lines(text)
    samples = [sample for line in lines if (sample := _sample(line)) is not None]
    if not samples:
        raise DcgmError("malformed", f"none of {len(lines)} profiling lines can be parsed")
    values: dict[tuple[DcgmDevice, ProfilingField], float | None] = {}
    for key, value in _values(samples, oldest):
        values[key] = value if values.setdefault(key, value) == value else None
    by_device: dict[DcgmDevice, dict[ProfilingField, float]] = defaultdict(dict)
    for (device, profiling_field), agreed in values.items():
        if agreed is not None:
            by_device[device][profiling_field] = agreed
    return DcgmReading(
        profiles={device: _profile(of_device) for device, of_device in by_device.items()},
        unreadable=len(lines) - len(samples),
    )


def _profiling_lines(text: str) -> list[str]:
    """Return the lines with profiling samples. Raises DcgmError if there are none."""
    lines = [line.strip() for line in text.splitlines()]
    if any(line.removeprefix("# HELP ").startswith(_OWN) for line in lines):
        raise DcgmError("own_page", "this is the page of a gpuslice-exporter")
    # Selected by prefix before parsing, so that a malformed line elsewhere does not matter.
    profiling = [line for line in lines if line[: len(PREFIX)].upper() == PREFIX]
    if profiling:
        return profiling
    if any(line[: len(_DCGM)].upper() == _DCGM for line in lines):
        raise DcgmError("no_profiling", "the page of dcgm-exporter has no profiling metrics")
    # A dcgm-exporter that starts or reloads its settings serves an empty page.
    raise DcgmError("not_dcgm", "the page is empty" if not any(lines) else "the page has no DCGM series")


def _sample(line: str) -> Sample | None:
    """Return the sample of one line, None if it is malformed; dcgm-exporter prints some errors as values."""
    try:
        (family,) = text_string_to_metric_families(f"{line}\n")
    except (ValueError, OverflowError, IndexError):
        # The parser raises these for malformed lines.
        return None
    (sample,) = family.samples
    return sample


def _values(
    samples: list[Sample], oldest: float
) -> Iterator[tuple[tuple[DcgmDevice, ProfilingField], float]]:
    for sample in samples:
        profiling_field = FIELDS.get(sample.name.upper())
        device = _device(sample.labels)
        too_old = sample.timestamp is not None and float(sample.timestamp) < oldest
        if profiling_field is None or device is None or too_old:
            continue
        value = plausible(profiling_field.part, sample.value)
        if value is not None:
            yield (device, profiling_field), value


def _device(labels: Mapping[str, str]) -> DcgmDevice | None:
    uuid = next((labels[name] for name in _UUID_LABELS if labels.get(name)), None)
    instance = next((labels[name] for name in _INSTANCE_LABELS if labels.get(name)), None)
    if uuid is None or not (instance is None or _INSTANCE.fullmatch(instance)):
        return None
    return uuid, None if instance is None else int(instance)


def _profile(values: Mapping[ProfilingField, float]) -> Profile:
    def of(part: Part) -> list[tuple[Any, Any]]:
        return [(field.key, value) for field, value in values.items() if field.part == part]

    engines = of("engines")
    return Profile(
        source="dcgm",
        active=dict(of("active")),
        engines={kind: fmean(value for key, value in engines if key == kind) for kind, _ in engines},
        rates=dict(of("rates")),
        cycles=dict(of("cycles")),
        bytes_total=dict(of("bytes_total")),
    )


# Unsupported by GPUs without GPM.
GPM_SUPPORT = "nvmlGpmQueryDeviceSupport"


def with_dcgm(gpus: tuple[GpuReading, ...], reading: DcgmReading) -> tuple[GpuReading, ...]:
    """Return the GPUs with missing profiling metrics from a dcgm-exporter.

    Values and source of GPM are kept. Counters of a GPU with GPM are never taken from dcgm-exporter, not even
    after a failure: it reads them at another time, so that they could fall.
    """
    without_counters = DcgmReading(
        profiles={
            device: replace(profile, cycles={}, bytes_total={})
            for device, profile in reading.profiles.items()
        }
    )
    return tuple(
        _gpu(gpu, reading if GPM_SUPPORT in gpu.unsupported else without_counters) if gpu.up else gpu
        for gpu in gpus
    )


def _gpu(gpu: GpuReading, reading: DcgmReading) -> GpuReading:
    uuid = gpu.identity.uuid
    devices = Counter(mig.gi for mig in gpu.mig or ())
    # DCGM's shares of a GPU instance are of the instance, not of the whole GPU, so they are those of a MIG
    # device that fills it, without conversion. A device of an incomplete reading without memory may not
    # exist.
    mig = tuple(
        replace(device, profiling=_merged(device.profiling, reading.profiles.get((uuid, device.gi))))
        if device.fills_instance
        and devices[device.gi] == 1
        and (gpu.mig_complete or device.memory is not None)
        else device
        for device in gpu.mig or ()
    )
    profiling = _merged(gpu.profiling, reading.profiles.get((uuid, None)))
    return replace(gpu, profiling=profiling, mig=None if gpu.mig is None else mig)


def _merged(known: Profile | None, dcgm: Profile | None) -> Profile | None:
    if known is None or dcgm is None:
        return known or dcgm
    return replace(
        known,
        active={**dcgm.active, **known.active},
        engines={**dcgm.engines, **known.engines},
        rates={**dcgm.rates, **known.rates},
        cycles={**dcgm.cycles, **known.cycles},
        bytes_total={**dcgm.bytes_total, **known.bytes_total},
    )
