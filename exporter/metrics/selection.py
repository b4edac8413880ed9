"""Which families a page has: the set of series, DCGM's names, and lists of names to add or to leave out.

Readings that only series need (``Rows.reading``) are skipped unless a chosen series needs them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import get_args

from exporter.config import Settings
from exporter.metrics import COLLECTOR, FAMILIES, NODE, AnyFamily, Family
from exporter.metrics.dcgm import DCGM, DEFAULT, LEGACY, DcgmNames, DcgmVersion
from exporter.metrics.family import Labelled, MetricSet

# From the smallest to the largest.
SETS: tuple[MetricSet, ...] = get_args(MetricSet)
ALL: tuple[AnyFamily, ...] = (*FAMILIES, *DCGM["both"], *LEGACY)
# Readings that only series need.
SKIPPABLE: frozenset[str] = frozenset(reading for family in ALL for reading in family.reads)

_NEAREST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The choice of families. A pattern matches a whole name; ``deny`` wins over ``allow``."""

    metric_set: MetricSet = "core"
    dcgm_names: DcgmNames = "default"
    dcgm_version: DcgmVersion = "4.8"
    allow: tuple[re.Pattern[str], ...] = ()
    deny: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> "Selection":
        return cls(
            metric_set=settings.metric_set,
            dcgm_names=settings.dcgm_names,
            dcgm_version=settings.dcgm_version,
            allow=settings.metric_allowlist,
            deny=settings.metric_denylist,
        )

    def families(self) -> tuple[AnyFamily, ...]:
        """Return the families in the order of the page, each with the samples that its set has."""
        native = (*NODE, *COLLECTOR) if self.dcgm_names == "only" else FAMILIES
        of_sets = (of_set(family, self.metric_set) for family in native if has(self.metric_set, family))
        chosen = {family.name: family for family in (*of_sets, *self._under_dcgm_names())}
        # A family of the set that is allowed by name has all of its samples.
        chosen |= {family.name: family for family in self._possible() if _any(self.allow, family.name)}
        names = (family.name for family in self._possible() if not _any(self.deny, family.name))
        return tuple(chosen[name] for name in names if name in chosen)

    def unneeded(self) -> frozenset[str]:
        """Return the readings that no family needs, of SKIPPABLE.

        Of a family of which core has some samples only, core needs none.
        """
        every = {family.name: family for family in ALL}
        chosen = [family for family in self.families() if family is every[family.name]]
        # It counts the unsupported calls of all readings.
        if any(family.name == "gpuslice_nvml_unsupported" for family in chosen):
            return frozenset()
        return SKIPPABLE.difference(*(family.reads for family in chosen))

    def unmatched(self) -> Iterator[str]:
        """Yield a text for each pattern that matches no family, with the names most like it."""
        names = [family.name for family in self._possible()]
        for pattern in (*self.allow, *self.deny):
            if any(pattern.fullmatch(name) for name in names):
                continue
            text = f"no series matches {pattern.pattern!r}"
            if any(pattern.fullmatch(family.name) for family in ALL):
                yield f"{text} with --dcgm-version {self.dcgm_version}; another version has such names"
                continue
            nearest = ", ".join(get_close_matches(pattern.pattern, names, _NEAREST))
            yield text + (nearest and f"; similar names: {nearest}")

    def _possible(self) -> tuple[AnyFamily, ...]:
        """Return the families that a pattern can choose: of DCGM those of its version."""
        return (*FAMILIES, *DCGM[self.dcgm_version], *LEGACY)

    def _under_dcgm_names(self) -> tuple[AnyFamily, ...]:
        default = DEFAULT[self.dcgm_version]
        chosen: Mapping[DcgmNames, tuple[AnyFamily, ...]] = {
            "default": default,
            "all": DCGM[self.dcgm_version],
            "only": default,
            "off": (),
            "legacy": (*default, *LEGACY),
        }
        return chosen[self.dcgm_names]


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
