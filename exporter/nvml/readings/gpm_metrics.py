"""GPM metrics (``nvmlGpmMetricId_t`` of nvml.h): ids, units, and the devices that have them.

Ids are plain numbers: in some versions of the binding their names are tuples, in older ones the newest are
missing.
"""

import math
from collections.abc import Iterable, Mapping
from ctypes import sizeof
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import pynvml

from exporter.model.bounds import ALL_ONES, COUNT, COUNTER, SHARE, Bound, rate_bound
from exporter.model.readings import Activity, Cycles, Engine, Profile, ProfilePart, Switches, Traffic

PERCENT = 1 / 100
MEBIBYTES = float(1 << 20)
# The last id of the first drivers with GPM; later ids were added driver by driver.
LAST_OF_THE_FIRST = 97
NOT_ANSWERED = 999
# ``nvmlGpmMetric_t``: id, error code, value, and metric information that is skipped.
ENTRY = Struct(f"IId{sizeof(pynvml.c_nvmlGpmMetric_t) - 16}x")

ACTIVITIES: Mapping[int, Activity] = MappingProxyType(
    {
        1: "graphics_engine",
        2: "sm",
        3: "sm_occupancy",
        4: "integer",
        5: "tensor",
        6: "tensor_dfma",
        7: "tensor_hmma",
        8: "tensor_dmma",
        9: "tensor_imma",
        10: "dram",
        11: "fp64",
        12: "fp32",
        13: "fp16",
    }
)
ENGINES: Mapping[Engine, range] = MappingProxyType(
    {"decoder": range(30, 38), "jpeg": range(40, 48), "ofa": range(50, 52), "encoder": range(166, 170)}
)
RATES: Mapping[int, Traffic] = MappingProxyType(
    {20: "pcie_transmit", 21: "pcie_receive", 60: "nvlink_receive", 61: "nvlink_transmit"}
)
CYCLES: Mapping[int, Cycles] = MappingProxyType(
    {
        248: "sm_elapsed",
        249: "sm_active",
        250: "mma",
        251: "dmma",
        252: "hmma",
        253: "imma",
        254: "dfma",
        257: "integer",
        258: "fp64",
        259: "fp32",
        260: "fp16",
    }
)
BYTES: Mapping[int, Traffic] = MappingProxyType({255: "pcie_transmit", 256: "pcie_receive"})
# Five numbers for each engine. Unlike the cycles below, these are not documented as counts since the boot: as
# all others, they are of the time between the two samples. Cycles elapsed, cycles active and requests (170 to
# 172) say no more than the share and the mean, and a count over an interval of any length is no gauge.
ENGINE_SWITCHES: Mapping[int, Switches] = MappingProxyType({173: "cycles_per_request", 174: "active"})
GRAPHICS_ENGINES, SWITCH_METRICS = 8, 5
KINDS: tuple[ProfilePart, ...] = get_args(ProfilePart)
COUNTED: frozenset[ProfilePart] = frozenset({"cycles", "bytes_total"})


class Metric(NamedTuple):
    """The meaning of a GPM metric: its place in a profile, its unit, and what it can be."""

    # Field of Profile, and the key in it.
    kind: ProfilePart
    name: Any
    factor: float  # factor to the unit of the field
    bound: Bound  # in that unit


METRICS: Mapping[int, Metric] = MappingProxyType(
    {
        **{number: Metric("active", name, PERCENT, SHARE) for number, name in ACTIVITIES.items()},
        **{
            number: Metric("engines", name, PERCENT, SHARE) for name, ids in ENGINES.items() for number in ids
        },
        **{number: Metric("rates", name, MEBIBYTES, rate_bound(name)) for number, name in RATES.items()},
        **{number: Metric("cycles", name, 1, COUNTER) for number, name in CYCLES.items()},
        **{number: Metric("bytes_total", name, 1, COUNTER) for number, name in BYTES.items()},
        **{
            number + engine * SWITCH_METRICS: Metric(
                "context_switches",
                (engine, name),
                *((PERCENT, SHARE) if name == "active" else (1, COUNT)),
            )
            for engine in range(GRAPHICS_ENGINES)
            for number, name in ENGINE_SWITCHES.items()
        },
    }
)
# Traffic is that of the whole GPU, and cycles of a part of it are undocumented. Memory and video engines
# belong to a GPU instance, so compute instances that share one do not have them alone.
OF_GPU = tuple(METRICS)
# Without what no hardware has shown yet: a driver that refuses one id refuses all newer ones.
OF_GPU_WITHOUT_SWITCHES = tuple(n for n, metric in METRICS.items() if metric.kind != "context_switches")
OF_GPU_INSTANCE = tuple(n for n, metric in METRICS.items() if metric.kind in ("active", "engines"))
OF_COMPUTE_INSTANCE = tuple(
    n for n in OF_GPU_INSTANCE if METRICS[n].kind != "engines" and METRICS[n].name != "dram"
)


def first_known(ids: Iterable[int]) -> tuple[int, ...]:
    """Return the ids that every driver with GPM knows."""
    return tuple(number for number in ids if number <= LAST_OF_THE_FIRST)


class MetricsRequest:
    """``nvmlGpmMetricsGet_t`` for a list of metrics, filled once.

    Its entries are written and read as bytes. Access through the binding's structure is slower than the rest
    of the read, because it checks each field for text to decode.
    """

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._metrics = tuple(METRICS[number] for number in ids)
        self._struct = pynvml.c_nvmlGpmMetricsGet_t()
        self._struct.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._struct.numMetrics = len(ids)
        self._unanswered = b"".join(ENTRY.pack(number, NOT_ANSWERED, 0.0) for number in ids)
        start = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        self._entries = memoryview(self._struct).cast("B")[start : start + len(self._unanswered)]

    def between(self, older: Any, newer: Any) -> Any:
        """Return the structure for the time between two samples, without the last answer."""
        self._struct.sample1, self._struct.sample2 = older, newer
        self._entries[:] = self._unanswered
        return self._struct

    def answer(self) -> tuple[Profile, bool]:
        """Return the metrics in the structure that the driver has filled, as ``decode`` does."""
        entries = ENTRY.iter_unpack(self._entries)
        return decode(
            (metric, raw) for metric, (_, code, raw) in zip(self._metrics, entries, strict=True) if code == 0
        )


def decode(values: Iterable[tuple[Metric, float]]) -> tuple[Profile, bool]:
    """Return the Profile of (metric, driver's value), and whether any of these was impossible.

    Several engines of one kind are averaged.
    """
    fields: dict[str, Any] = {kind: {} for kind in KINDS}
    engines: dict[str, list[float]] = {}
    any_impossible = False
    for (kind, name, factor, bound), raw in values:
        # A metric without a value.
        if math.isnan(raw):
            continue
        if raw in ALL_ONES or not bound.has(raw * factor):
            any_impossible = True
            continue
        value = raw * factor
        if bound is SHARE:
            value = min(value, 1.0)
        if kind == "engines":
            engines.setdefault(name, []).append(value)
        else:
            fields[kind][name] = int(value) if kind in COUNTED else value
    fields["engines"] = {name: sum(shares) / len(shares) for name, shares in engines.items()}
    return Profile(source="gpm", **fields), any_impossible
