"""Which families a page has: the set of series, DCGM's names, and lists of names to add or to leave out.

Readings are skipped unless a chosen series needs them. Listed are readings with driver calls of their own
that nothing else uses: neither the join of devices to pods, nor the conditions, nor the picture of the node.
The rows that can be remapped are not: whether the driver supports that call decides a condition.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, get_args

from exporter.config import Settings
from exporter.metrics import COLLECTOR, FAMILIES, NODE, AnyFamily, Family
from exporter.metrics.dcgm import DCGM, DEFAULT, LEGACY, DcgmNames
from exporter.metrics.family import Labelled, MetricSet

NEEDED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "bar1": ("gpuslice_*_bar1_*", "DCGM_FI_DEV_BAR1_*"),
    "engine_percent.encoder": ("gpuslice_gpu_encoder_utilization_ratio", "*_ENC_UTIL", "dcgm_enc_*"),
    "engine_percent.decoder": ("gpuslice_gpu_decoder_utilization_ratio", "*_DEC_UTIL", "dcgm_dec_*"),
    "engine_percent.jpeg": ("gpuslice_gpu_jpeg_utilization_ratio",),
    "engine_percent.ofa": ("gpuslice_gpu_ofa_utilization_ratio",),
    "encoder_sessions": (
        *("gpuslice_gpu_encoder_sessions", "gpuslice_gpu_encoder_frames_per_second"),
        "gpuslice_gpu_encoder_latency_seconds",
    ),
    "clocks_megahertz.graphics": ("gpuslice_gpu_clock_hertz",),
    "clocks_megahertz.video": ("gpuslice_gpu_clock_hertz", "DCGM_FI_DEV_VIDEO_CLOCK"),
    "clocks_application_megahertz": ("gpuslice_gpu_clock_application_hertz", "DCGM_FI_DEV_APP_*"),
    "temperature_margin_celsius": ("gpuslice_gpu_temperature_limit_margin_*", "DCGM_FI_DEV_GPU_TEMP_LIMIT"),
    "power_limits_milliwatts.configured": (
        *("gpuslice_gpu_power_limit_setting_watts", "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    ),
    "fan_percent": ("gpuslice_gpu_fan_ratio", "DCGM_FI_DEV_FAN_SPEED"),
    "ecc.by_location": ("gpuslice_gpu_ecc_location_errors_total", "DCGM_FI_DEV_ECC_?BE_*"),
    "performance_state": ("gpuslice_gpu_performance_state", "DCGM_FI_DEV_PSTATE"),
    "persistence": ("gpuslice_gpu_persistence_mode", "DCGM_FI_DEV_PERSISTENCE_MODE"),
    "accounting": ("gpuslice_gpu_accounting_mode",),
    "protected_memory": ("gpuslice_gpu_protected_memory_*",),
    "nvlink.packet_errors": ("gpuslice_gpu_nvlink_packet_errors_total",),
    "nvlink.recoveries": ("gpuslice_gpu_nvlink_recoveries_total",),
    "nvlink.bit_error_ratios": ("gpuslice_gpu_nvlink_bit_error_ratio",),
    "c2c.enabled": ("gpuslice_gpu_c2c_enabled",),
    "c2c.speeds": ("gpuslice_gpu_c2c_bandwidth_bytes_per_second",),
    "c2c.errors": ("gpuslice_gpu_c2c_errors_total",),
    "display_active": ("gpuslice_gpu_display_active",),
}
"""By reading (dotted path of GpuReading), patterns of the names of the families that need it.

Of a family of which core has some samples only, core needs none of these.
"""


def needs(name: str, readings: Collection[str]) -> bool:
    """Return whether the family of this name needs one of these readings."""
    return any(fnmatchcase(name, pattern) for reading in readings for pattern in NEEDED_BY[reading])


SETS: tuple[MetricSet, ...] = get_args(MetricSet)
"""From the smallest to the largest."""
ALL: tuple[AnyFamily, ...] = (*FAMILIES, *DCGM, *LEGACY)

_UNDER_DCGM_NAMES: Mapping[DcgmNames, tuple[AnyFamily, ...]] = {
    "default": DEFAULT,
    "all": DCGM,
    "only": DEFAULT,
    "off": (),
    "legacy": (*DEFAULT, *LEGACY),
}
_NEAREST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The choice of families. A pattern matches a whole name; ``deny`` wins over ``allow``."""

    metric_set: MetricSet = "core"
    dcgm_names: DcgmNames = "default"
    allow: tuple[re.Pattern[str], ...] = ()
    deny: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> "Selection":
        """Return the choice of the settings."""
        return cls(
            metric_set=settings.metric_set,
            dcgm_names=settings.dcgm_names,
            allow=settings.metric_allowlist,
            deny=settings.metric_denylist,
        )

    def families(self) -> tuple[AnyFamily, ...]:
        """Return the families in the order of the page, each with the samples that its set has."""
        chosen = {family.name: family for family in self._of_sets()}
        # A family of the set that is allowed by name has all of its samples.
        chosen |= {family.name: family for family in ALL if _any(self.allow, family.name)}
        names = (family.name for family in ALL if not _any(self.deny, family.name))
        return tuple(chosen[name] for name in names if name in chosen)

    def unneeded(self) -> frozenset[str]:
        """Return the readings that no family needs, as keys of NEEDED_BY."""
        every = {family.name: family for family in ALL}
        chosen = [family.name for family in self.families() if family is every[family.name]]
        # It counts the unsupported calls of all readings.
        if "gpuslice_nvml_unsupported" in chosen:
            return frozenset()
        return frozenset(
            reading for reading in NEEDED_BY if not any(needs(name, (reading,)) for name in chosen)
        )

    def unmatched(self) -> Iterator[str]:
        """Yield a text for each pattern that matches no family, with the names most like it."""
        names = [family.name for family in ALL]
        for pattern in (*self.allow, *self.deny):
            if not any(pattern.fullmatch(name) for name in names):
                nearest = ", ".join(get_close_matches(pattern.pattern, names, _NEAREST))
                yield f"no series matches {pattern.pattern!r}" + (nearest and f"; similar names: {nearest}")

    def _of_sets(self) -> Iterable[AnyFamily]:
        native = (*NODE, *COLLECTOR) if self.dcgm_names == "only" else FAMILIES
        yield from (of_set(family, self.metric_set) for family in native if has(self.metric_set, family))
        yield from _UNDER_DCGM_NAMES[self.dcgm_names]


def has(metric_set: MetricSet, family: AnyFamily) -> bool:
    """Return whether a set has the family, or a part of its samples."""
    return SETS.index(family.of_set) <= SETS.index(metric_set)


def of_set(family: AnyFamily, metric_set: MetricSet) -> AnyFamily:
    """Return the family with the samples that the set has of it."""
    if metric_set != "core" or isinstance(family, Family) or family.in_core is None:
        return family
    every, values = family.samples, family.in_core

    def samples(row: object) -> list[Labelled]:
        return [sample for sample in every(row) if sample[0] in values]

    return replace(family, samples=samples)


def _any(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
