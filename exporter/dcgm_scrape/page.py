"""The page of a dcgm-exporter, read: one profile per GPU and per GPU instance of MIG."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from exporter.dcgm_scrape.errors import DcgmError
from exporter.dcgm_scrape.fields import (
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
from exporter.model import Profile

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
