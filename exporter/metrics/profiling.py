"""The rows of profiling meters: what the parts of a GPU or of a MIG device did, and what passed its links."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, Number, answering
from exporter.model import GpuRow, MigRow, Profile
from exporter.model.readings import Activity, Cycles, Engine, Traffic

GROUP = "profiling"

ACTIVITIES: Mapping[Activity, str] = MappingProxyType(
    {
        "graphics_engine": "Time with the compute or graphics engine at work",
        "sm": "Time with a warp on a multiprocessor, averaged over all of them",
        "sm_occupancy": "Warps on the multiprocessors, of those that there is room for",
        "tensor": "Cycles with a tensor core at work",
        "tensor_dfma": "Cycles with a tensor core at work on double precision (DFMA)",
        "tensor_hmma": "Cycles with a tensor core at work on half precision (HMMA)",
        "tensor_dmma": "Cycles with a tensor core at work on double precision matrices (DMMA)",
        "tensor_imma": "Cycles with a tensor core at work on integers (IMMA)",
        "dram": "Bandwidth of the frame buffer in use, of its peak",
        "fp64": "Cycles with the double precision pipe at work, tensor cores apart",
        "fp32": "Cycles with the single precision pipe at work, tensor cores apart",
        "fp16": "Cycles with the half precision pipe at work, tensor cores apart",
        "integer": "Cycles with the integer pipe at work",
    }
)
# An occupancy is no share of time.
_NAMES: Mapping[Activity, str] = MappingProxyType({"sm_occupancy": "sm_occupancy_ratio"})
ENGINES: Mapping[Engine, str] = MappingProxyType(
    {
        "encoder": "video encoders",
        "decoder": "video decoders",
        "jpeg": "JPEG decoders",
        "ofa": "optical flow engines",
    }
)
CYCLES: Mapping[Cycles, tuple[str, str]] = MappingProxyType(
    {
        "sm_elapsed": ("sm_elapsed", "that went by"),
        "sm_active": ("sm_active", "with a warp on the multiprocessor"),
        "mma": ("tensor_active", "with a tensor core at work"),
        "dmma": ("tensor_dmma_active", "with a tensor core at work on double precision matrices (DMMA)"),
        "hmma": ("tensor_hmma_active", "with a tensor core at work on half precision (HMMA)"),
        "imma": ("tensor_imma_active", "with a tensor core at work on integers (IMMA)"),
        "dfma": ("tensor_dfma_active", "with a tensor core at work on double precision (DFMA)"),
        "integer": ("integer_active", "with the integer pipe at work"),
        "fp64": ("fp64_active", "with the double precision pipe at work"),
        "fp32": ("fp32_active", "with the single precision pipe at work"),
        "fp16": ("fp16_active", "with the half precision pipe at work"),
    }
)
TRAFFIC: Mapping[Traffic, tuple[str, str]] = MappingProxyType(
    {
        "pcie_transmit": ("pcie", "that the GPU sent over PCIe"),
        "pcie_receive": ("pcie", "that the GPU received over PCIe"),
        "nvlink_transmit": ("nvlink", "that the GPU sent over NVLink"),
        "nvlink_receive": ("nvlink", "that the GPU received over NVLink"),
    }
)


def _of_gpu(row: GpuRow) -> Profile | None:
    reading = answering(row)
    return None if reading is None else reading.profiling


def _value(
    profile: Callable[[Any], Profile | None], values: Callable[[Profile], Mapping[Any, Number]], key: str
) -> Callable[[GpuRow | MigRow], Number | None]:
    """Ask one number of the profile."""

    def read(row: GpuRow | MigRow) -> Number | None:
        found = profile(row)
        return None if found is None else values(found).get(key)

    return read


def _info(profile: Callable[[Any], Profile | None]) -> Callable[[GpuRow | MigRow], Iterable[Labelled]]:
    def read(row: GpuRow | MigRow) -> Iterable[Labelled]:
        found = profile(row)
        return () if found is None else (((found.source,), 1),)

    return read


def _counted(traffic: Traffic, row: GpuRow) -> int | None:
    """Return the bytes since a start."""
    reading = answering(row)
    return None if reading is None else reading.traffic_bytes.get(traffic)


def _rate(traffic: Traffic, row: GpuRow) -> float | None:
    """Return bytes per second where nothing counts them: of a counter, everybody can take the rate."""
    profile = _of_gpu(row)
    return None if profile is None or _counted(traffic, row) is not None else profile.rates.get(traffic)


def _profile(
    level: Literal["gpu", "mig"], of: str, profile: Callable[[Any], Profile | None]
) -> Iterator[AnyFamily]:
    yield LabelledFamily(
        f"gpuslice_{level}_profiling_info",
        "info",
        level,
        f"Profiling meter of the {of}: gpm (the driver itself) or dcgm (a dcgm-exporter on the node).",
        ("source",),
        _info(profile),
        group=GROUP,
    )
    for activity, what in ACTIVITIES.items():
        yield Family(
            f"gpuslice_{level}_{_NAMES.get(activity, f'{activity}_active_ratio')}",
            "gauge",
            level,
            f"{what}, as a share of the {of} over the last interval.",
            _value(profile, attrgetter("active"), activity),
            group=GROUP,
        )
    for engine, what in ENGINES.items():
        yield Family(
            f"gpuslice_{level}_{engine}_active_ratio",
            "gauge",
            level,
            f"Time with the {what} of the {of} at work, averaged over them and over the last interval.",
            _value(profile, attrgetter("engines"), engine),
            group=GROUP,
        )


def _cycles() -> Iterator[AnyFamily]:
    for cycles, (name, what) in CYCLES.items():
        yield Family(
            f"gpuslice_gpu_{name}_cycles_total",
            "counter",
            "gpu",
            f"Cycles {what}, over all multiprocessors of the GPU since the machine started.",
            _value(_of_gpu, attrgetter("cycles"), cycles),
            group=GROUP,
        )


def _traffic() -> Iterator[AnyFamily]:
    for traffic, (link, what) in TRAFFIC.items():
        yield Family(
            f"gpuslice_gpu_{traffic}_bytes_total",
            "counter",
            "gpu",
            f"Bytes {what}, where the driver has a counter that does not wrap.",
            partial(_counted, traffic),
            group=link,
        )
        yield Family(
            f"gpuslice_gpu_{traffic}_bytes_per_second",
            "gauge",
            "gpu",
            f"Bytes per second {what} over the last interval, where nothing counts them.",
            partial(_rate, traffic),
            group=GROUP,
        )


GPU_PROFILING: tuple[AnyFamily, ...] = (*_profile("gpu", "GPU", _of_gpu), *_cycles(), *_traffic())
"""What profiling meters say of GPUs, and the traffic over their links."""

MIG_PROFILING: tuple[AnyFamily, ...] = tuple(_profile("mig", "MIG device", attrgetter("reading.profiling")))
"""What profiling meters say of MIG devices, as shares of each."""
