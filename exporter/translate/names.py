"""The names that are replaced, and what replaces them, for each target."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from exporter.metrics.dcgm.dialects import LABELS, RENAMED, Steps
from exporter.metrics.dcgm.own_names import NO_EQUAL, OWN

_ONE = Fraction(1)


class UntranslatableError(Exception):
    """An expression, or another text, cannot be translated; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Series:
    """A new name, and how its values differ from those of the old one."""

    name: str
    # The new value is the old one times this.
    factor: Fraction = _ONE
    steps: Steps = "same"
    # Further matchers that the new name needs.
    matchers: Mapping[str, str] = field(default_factory=dict)
    # Whether the new name is printed only if the collector file of dcgm-exporter lists it.
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What to replace, in all expressions on series of DCGM."""

    series: Mapping[str, Series]
    # Names without a replacement, with the reason.
    unequal: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str]
    # Labels that the new series do not have, with the reason.
    absent_labels: Mapping[str, str] = field(default_factory=dict)
    # Whether every series of DCGM has to be replaced, by one of another exporter.
    complete: bool = False
    # Recording rules of series of DCGM: their labels are replaced, and their names stay.
    records: frozenset[str] = frozenset()

    def is_dcgm(self, name: str) -> bool:
        """Return whether a series has the labels of DCGM's."""
        return name.startswith("DCGM_") or name in self.records

    def renamed(self, name: str) -> Series | None:
        """Return what replaces a name, None if it stays; raises UntranslatableError."""
        if found := self.series.get(name):
            return found
        if reason := self.unequal.get(name):
            raise UntranslatableError(f"{name}: {reason}")
        if self.complete and name.startswith("DCGM_"):
            raise UntranslatableError(f"{name}: no series here is known to mean the same")
        return None

    def label(self, label: str) -> str:
        """Return the new name of a label; raises UntranslatableError."""
        if reason := self.absent_labels.get(label):
            raise UntranslatableError(f"label {label}: {reason}")
        return self.labels.get(label, label)

    def keep(self, names: Collection[str]) -> "Names":
        """Return the same without these series."""
        return replace(self, series={old: new for old, new in self.series.items() if old not in names})

    def with_records(self, records: Collection[str]) -> "Names":
        """Return the same with these recording rules."""
        return replace(self, records=self.records | frozenset(records))


_INFO = "our series have it on gpuslice_gpu_info only, to be joined by node and gpu"
_HOLDERS = "a GPU can have several holders: use gpuslice_container_…"
_INSTANCES = "our series of MIG devices are gpuslice_mig_…"

_DCGM = Names(
    series={
        renamed.old: Series(renamed.new, renamed.factor, renamed.steps, optional=not renamed.since)
        for renamed in RENAMED
    },
    labels={label.old: label.new for label in LABELS},
)
_OWN = Names(
    series={old: Series(own.name, own.factor, own.steps, own.matchers) for old, own in OWN.items()}
    | {
        renamed.new: Series(own.name, own.factor / renamed.factor, "same", own.matchers)
        for renamed in RENAMED
        if (own := OWN.get(renamed.old))
    },
    unequal={**NO_EQUAL, **{each.new: NO_EQUAL[each.old] for each in RENAMED if each.old in NO_EQUAL}},
    labels={"Hostname": "node", "hostname": "node", "UUID": "uuid"},
    absent_labels={
        **dict.fromkeys(("modelName", "device", "pci_bus_id"), _INFO),
        **dict.fromkeys(("GPU_I_ID", "GPU_I_PROFILE"), _INSTANCES),
        **dict.fromkeys(("pod", "namespace", "container", "pod_name", "container_name"), _HOLDERS),
        **dict.fromkeys(("exported_pod", "exported_namespace", "exported_container"), _HOLDERS),
        **dict.fromkeys(
            (name for label in LABELS[1:] for name in (label.old, label.new)),
            "our series have driver_version on gpuslice_node_info only",
        ),
    },
    complete=True,
)

TARGETS: Final[Mapping[str, Names]] = {"dcgm-4.9": _DCGM, "gpuslice": _OWN}
