"""The page of a dcgm-exporter: one profile per GPU and MIG instance, merged into readings that lack one."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, Literal, TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from exporter.dcgm_scrape.dcgm_fields import (
    FIELDS,
    PREFIX,
    ByteCount,
    CycleCount,
    EngineShare,
    Field,
    Rate,
    Share,
    meaning,
)
from exporter.model import GpuReading, MigReading, Profile

Reason = Literal[
    "unreachable", "deadline", "status", "too_large", "malformed", "own_page", "not_dcgm", "no_profiling"
]

REMEDIES: Final[dict[Reason, str]] = {
    "unreachable": "check that dcgm-exporter runs on this node and that --dcgm-exporter-url leads to it",
    "deadline": "dcgm-exporter is overloaded or hangs; retried at the next poll",
    "status": "check the path of --dcgm-exporter-url; dcgm-exporter serves /metrics",
    "too_large": "check that --dcgm-exporter-url leads to the dcgm-exporter of one node",
    "malformed": "check that --dcgm-exporter-url leads to a dcgm-exporter",
    "own_page": "let --dcgm-exporter-url lead to dcgm-exporter, by default on port 9400",
    "not_dcgm": "check that --dcgm-exporter-url leads to a dcgm-exporter that has started",
    "no_profiling": "give dcgm-exporter the right SYS_ADMIN and a file of counters that has DCGM_FI_PROF"
    " fields, and see that nothing else profiles the GPUs",
}


class DcgmError(Exception):
    """The dcgm-exporter gave no usable page. ``reason`` is one of a few stable words, fit for a label.

    The message ends in the remedy.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{detail} ({reason}): {REMEDIES[reason]}")
        self.reason: Reason = reason


Device: TypeAlias = tuple[str, int | None]
"""The UUID of a GPU, and the id of a GPU instance on it, None for the whole GPU."""

# All of our own series begin so, whatever of DCGM's stands beside them.
_OWN = "gpuslice_"
_DCGM = "DCGM_"
_UUID_LABELS = ("UUID", "uuid")
_INSTANCE_LABELS = ("GPU_I_ID", "gpu_i_id")
# Python refuses to read very long numbers, and no instance has one.
_INSTANCE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmReading:
    """What one page says by device; ``unreadable`` counts lines of profiling that could not be read."""

    profiles: Mapping[Device, Profile] = field(default_factory=dict)
    unreadable: int = 0


def read_page(text: str, oldest: float) -> DcgmReading:
    """Read a page in the text format of Prometheus; samples from before ``oldest`` (Unix time) are left out.

    The same series stands there once per pod of a shared GPU and counts once; where two of them disagree,
    neither is believed. Raises DcgmError for a page without profiling.
    """
    lines = _profiling_lines(text)
    samples = [sample for line in lines if (sample := _sample(line)) is not None]
    if not samples:
        raise DcgmError("malformed", f"none of {len(lines)} lines of profiling can be read")
    values: dict[tuple[Device, Field], float | None] = {}
    for key, value in _values(samples, oldest):
        values[key] = value if values.setdefault(key, value) == value else None
    by_device: dict[Device, dict[Field, float]] = defaultdict(dict)
    for (device, of), agreed in values.items():
        if agreed is not None:
            by_device[device][of] = agreed
    return DcgmReading(
        profiles={device: _profile(found) for device, found in by_device.items()},
        unreadable=len(lines) - len(samples),
    )


def _profiling_lines(text: str) -> list[str]:
    """Return the lines with samples of profiling; raises DcgmError when there are none."""
    # Told by their beginning, so that a line that is broken elsewhere costs nothing.
    lines = [line.strip() for line in text.splitlines()]
    if any(line.removeprefix("# HELP ").startswith(_OWN) for line in lines):
        raise DcgmError("own_page", "this is the page of a gpuslice-exporter")
    found = [line for line in lines if line[: len(PREFIX)].upper() == PREFIX]
    if found:
        return found
    if any(line[: len(_DCGM)].upper() == _DCGM for line in lines):
        raise DcgmError("no_profiling", "the page of dcgm-exporter has no profiling")
    # A dcgm-exporter that starts, or reads its settings anew, serves an empty page.
    raise DcgmError("not_dcgm", "the page is empty" if not any(lines) else "the page has no series of DCGM")


def _sample(line: str) -> Sample | None:
    """Read one line, None if it is none of the format; dcgm-exporter prints some errors as values."""
    try:
        (family,) = text_string_to_metric_families(f"{line}\n")
    except (ValueError, OverflowError, IndexError):
        # The parser does not expect all that is no line.
        return None
    (sample,) = family.samples
    return sample


def _values(samples: list[Sample], oldest: float) -> Iterator[tuple[tuple[Device, Field], float]]:
    for sample in samples:
        of = FIELDS.get(sample.name.upper())
        device = _device(sample.labels)
        if (
            of is None
            or device is None
            or (sample.timestamp is not None and float(sample.timestamp) < oldest)
        ):
            continue
        value = meaning(of, sample.value)
        if value is not None:
            yield (device, of), value


def _device(labels: Mapping[str, str]) -> Device | None:
    uuid = next((labels[name] for name in _UUID_LABELS if labels.get(name)), None)
    instance = next((labels[name] for name in _INSTANCE_LABELS if labels.get(name)), None)
    if uuid is None or not (instance is None or _INSTANCE.fullmatch(instance)):
        return None
    return uuid, None if instance is None else int(instance)


def _profile(found: Mapping[Field, float]) -> Profile:
    engines = [(of.key, value) for of, value in found.items() if isinstance(of, EngineShare)]
    return Profile(
        source="dcgm",
        active={of.key: value for of, value in found.items() if isinstance(of, Share)},
        engines={kind: fmean(value for key, value in engines if key == kind) for kind, _ in engines},
        rates={of.key: value for of, value in found.items() if isinstance(of, Rate)},
        cycles={of.key: int(value) for of, value in found.items() if isinstance(of, CycleCount)},
        bytes_total={of.key: int(value) for of, value in found.items() if isinstance(of, ByteCount)},
    )


# The call that a GPU does not support whose driver has no profiling meter.
METER = "nvmlGpmQueryDeviceSupport"


def with_dcgm(gpus: tuple[GpuReading, ...], reading: DcgmReading) -> tuple[GpuReading, ...]:
    """Return the GPUs with the profiles of a dcgm-exporter, which never stand in for the driver's own values.

    A profile that the driver had begun keeps its source. What counts comes from one of the two for good,
    however it fails: the other has read the same counters at another time, and they would seem to fall.
    """
    rates = DcgmReading(
        profiles={
            device: replace(told, cycles={}, bytes_total={}) for device, told in reading.profiles.items()
        }
    )
    return tuple(_gpu(gpu, reading if METER in gpu.unsupported else rates) if gpu.up else gpu for gpu in gpus)


def _gpu(gpu: GpuReading, reading: DcgmReading) -> GpuReading:
    whole = reading.profiles.get((gpu.identity.uuid, None))
    tenants = Counter(mig.gi for mig in gpu.mig or ())
    mig = tuple(
        _mig(each, reading.profiles.get((gpu.identity.uuid, each.gi)))
        # Where not all were told, those that were not stand there bare: nobody knows that they still exist.
        if (gpu.mig_complete or each.memory is not None) and tenants[each.gi] == 1
        else each
        for each in gpu.mig or ()
    )
    return replace(gpu, profiling=_filled(gpu.profiling, whole), mig=None if gpu.mig is None else mig)


def _mig(mig: MigReading, found: Profile | None) -> MigReading:
    """Return a MIG device with the profile of its GPU instance, which it must fill."""
    # DCGM's shares on a GPU instance are shares of that instance, not of the whole GPU: a 1g instance that
    # is busy reads 1. So they need no conversion, but are those of a MIG device only where its compute
    # instance owns all of the GPU instance's slices.
    return replace(mig, profiling=_filled(mig.profiling, found)) if mig.fills_instance else mig


def _filled(known: Profile | None, found: Profile | None) -> Profile | None:
    if known is None or found is None:
        return known or found
    return replace(
        known,
        active={**found.active, **known.active},
        engines={**found.engines, **known.engines},
        rates={**found.rates, **known.rates},
        cycles={**found.cycles, **known.cycles},
        bytes_total={**found.bytes_total, **known.bytes_total},
    )
