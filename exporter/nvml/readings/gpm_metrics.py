"""The driver's profiling metrics: which there are, whom they belong to, and what their numbers mean.

Ids are plain numbers: in some versions of the binding their names stand for tuples, in older ones the
newest have no name.
"""

import math
from collections.abc import Iterable, Mapping
from ctypes import sizeof
from struct import Struct
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import pynvml

from exporter.model.readings import Activity, Cycles, Engine, Profile, Traffic

PERCENT = 1 / 100
MEBIBYTES = float(1 << 20)
# Numerator and denominator of a share are latched one after the other, so that a device that never rests
# can come out a trifle above all the time there is. What is further off is no measurement.
MOST_OVERSHOOT = 1.01
# What the first drivers with these metrics knew; the ids after it came later, driver by driver.
LAST_OF_THE_FIRST = 97
NOT_ANSWERED = 999
# An entry of the driver's struct: the id, the error code, the value, and its name and unit behind that.
ENTRY = Struct(f"IId{sizeof(pynvml.c_nvmlGpmMetric_t) - 16}x")

Kind = Literal["active", "engines", "rates", "cycles", "bytes_total"]
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
KINDS: tuple[Kind, ...] = get_args(Kind)
COUNTED: frozenset[Kind] = frozenset({"cycles", "bytes_total"})


class Metric(NamedTuple):
    """A metric: the field of a Profile that it goes to, its key there, and the factor to the field's unit."""

    kind: Kind
    name: str
    factor: float


METRICS: Mapping[int, Metric] = MappingProxyType(
    {
        **{number: Metric("active", name, PERCENT) for number, name in ACTIVITIES.items()},
        **{number: Metric("engines", name, PERCENT) for name, ids in ENGINES.items() for number in ids},
        **{number: Metric("rates", name, MEBIBYTES) for number, name in RATES.items()},
        **{number: Metric("cycles", name, 1) for number, name in CYCLES.items()},
        **{number: Metric("bytes_total", name, 1) for number, name in BYTES.items()},
    }
)
# The links are the whole GPU's, and it is not told what cycles are counted for a part of it; frame buffer and
# video engines belong to a GPU instance, so that of compute instances that share one, none has them alone.
OF_GPU = tuple(METRICS)
OF_GPU_INSTANCE = tuple(n for n, metric in METRICS.items() if metric.kind in ("active", "engines"))
OF_COMPUTE_INSTANCE = tuple(
    n for n in OF_GPU_INSTANCE if METRICS[n].kind != "engines" and METRICS[n].name != "dram"
)


def first_known(ids: Iterable[int]) -> tuple[int, ...]:
    """Keep the ids that every driver with these metrics knows."""
    return tuple(number for number in ids if number <= LAST_OF_THE_FIRST)


class Question:
    """What to ask of two samples: the driver's large struct, filled once for a list of metrics.

    Its entries are written and read as bytes: the binding looks at each field for text that it would decode,
    which takes longer than all else.
    """

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._metrics = tuple(METRICS[number] for number in ids)
        self._struct = pynvml.c_nvmlGpmMetricsGet_t()
        self._struct.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._struct.numMetrics = len(ids)
        self._unanswered = b"".join(ENTRY.pack(number, NOT_ANSWERED, 0.0) for number in ids)
        begin = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        self._entries = memoryview(self._struct).cast("B")[begin : begin + len(self._unanswered)]

    def between(self, older: Any, newer: Any) -> Any:
        """Return the struct for the time between two samples, without anything of the answer before."""
        self._struct.sample1, self._struct.sample2 = older, newer
        self._entries[:] = self._unanswered
        return self._struct

    def answer(self) -> Profile:
        """Decode what the driver has written."""
        entries = ENTRY.iter_unpack(self._entries)
        return decode(
            (metric, raw) for metric, (_, code, raw) in zip(self._metrics, entries, strict=True) if code == 0
        )


def decode(values: Iterable[tuple[Metric, float]]) -> Profile:
    """Return a Profile of (metric, value as the driver tells it); what cannot be a measurement is left out.

    Of several engines of one kind it has the mean over those that answered.
    """
    found: dict[str, Any] = {kind: {} for kind in KINDS}
    engines: dict[str, list[float]] = {}
    for (kind, name, factor), raw in values:
        value = raw * factor
        # NaN is not between anything.
        if not 0 <= value < math.inf:
            continue
        if factor == PERCENT:
            if value > MOST_OVERSHOOT:
                continue
            value = min(value, 1.0)
        if kind == "engines":
            engines.setdefault(name, []).append(value)
        else:
            found[kind][name] = int(value) if kind in COUNTED else value
    found["engines"] = {name: sum(same) / len(same) for name, same in engines.items()}
    return Profile(source="gpm", **found)
