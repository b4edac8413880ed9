"""Parses the page of a dcgm-exporter into profiles by GPU or GPU instance, and merges them into readings.

Only DCGM's profiling fields (``DCGM_FI_PROF_*``) are read. DCGM 4.6 renamed them; dcgm-exporter prints the
names in its file of counters, that of version 1 in lower case.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from exporter.dcgm_scrape.fields import FIELDS, PREFIX, ProfilingField, believed, is_blank
from exporter.model import GpuReading, Profile
from exporter.model.readings import ProfilePart

DcgmReason = Literal[
    "unreachable", "deadline", "status", "too_large", "malformed", "own_page", "not_dcgm", "no_profiling"
]

REMEDIES: Final[dict[DcgmReason, str]] = {
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

    def __init__(self, reason: DcgmReason, detail: str) -> None:
        super().__init__(f"{detail} ({reason}): {REMEDIES[reason]}")
        self.reason: DcgmReason = reason


# UUID of a GPU, and id of a GPU instance on it, None for the whole GPU.
DcgmDevice: TypeAlias = tuple[str, int | None]

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
    unreadable: int = 0  # profiling lines that could not be parsed, or have an impossible value


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
    found = list(_values(samples, oldest))
    for key, value in found:
        values[key] = value if values.setdefault(key, value) == value else None
    by_device: dict[DcgmDevice, dict[ProfilingField, float]] = defaultdict(dict)
    for (device, profiling_field), agreed in values.items():
        if agreed is not None:
            by_device[device][profiling_field] = agreed
    return DcgmReading(
        profiles={device: _profile(of_device) for device, of_device in by_device.items()},
        unreadable=len(lines) - len(samples) + sum(value is None for _, value in found),
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
) -> Iterator[tuple[tuple[DcgmDevice, ProfilingField], float | None]]:
    """Yield the value of each series of a device that has one; None for an impossible one."""
    for sample in samples:
        profiling_field = FIELDS.get(sample.name.upper())
        device = _device(sample.labels)
        too_old = sample.timestamp is not None and float(sample.timestamp) < oldest
        if profiling_field is None or device is None or too_old:
            continue
        if not is_blank(profiling_field, sample.value):
            yield (device, profiling_field), believed(profiling_field, sample.value)


def _device(labels: Mapping[str, str]) -> DcgmDevice | None:
    uuid = next((labels[name] for name in _UUID_LABELS if labels.get(name)), None)
    instance = next((labels[name] for name in _INSTANCE_LABELS if labels.get(name)), None)
    if uuid is None or not (instance is None or _INSTANCE.fullmatch(instance)):
        return None
    return uuid, None if instance is None else int(instance)


def _profile(values: Mapping[ProfilingField, float]) -> Profile:
    def of(part: ProfilePart) -> list[tuple[Any, Any]]:
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
