"""The doctor's checks of readings, group by group: what this node gives, and why not the rest."""

from collections.abc import Iterable, Iterator, Mapping

from exporter.doctor.findings import gpus as finding
from exporter.doctor.gpus import NOT_SUPPORTED
from exporter.metrics import GPU, GROUPS, MIG, AnyFamily, Family, Group
from exporter.model import GpuRow, MigRow, Snapshot
from exporter.report import Check

# What is told by checks of its own.
OTHERS = frozenset({"core", "sharing"})
# Says of itself that there is nothing.
ALWAYS_TOLD = frozenset({"gpuslice_gpu_events_watched"})
DENIED = "NoPermission"


def group_checks(snapshot: Snapshot) -> Iterator[Check]:
    """Judge each group over all GPUs that answer."""
    rows = [row for row in snapshot.gpus if row.reading is not None and row.reading.up]
    for name, group in GROUPS.items():
        families = [
            family for family in (*GPU, *MIG) if family.group == name and family.name not in ALWAYS_TOLD
        ]
        if rows and families and name not in OTHERS:
            silent = [row for row in rows if not _told(families, row, _migs(snapshot, row))]
            yield _check(group, rows, silent, {row.identity.index: _reason(row, name) for row in rows})


def _migs(snapshot: Snapshot, gpu: GpuRow) -> list[MigRow]:
    return [mig for mig in snapshot.migs if mig.device.uuid == gpu.identity.uuid]


def _told(families: Iterable[AnyFamily], gpu: GpuRow, migs: Iterable[MigRow]) -> bool:
    """Whether any series of a group has a value on a GPU or on one of its MIG devices."""
    return any(
        _has_value(family, row) for family in families for row in ((gpu,) if family.level == "gpu" else migs)
    )


def _has_value(family: AnyFamily, row: GpuRow | MigRow) -> bool:
    if isinstance(family, Family):
        return family.value(row) is not None
    return any(value is not None for _, value in family.samples(row))


def _check(group: Group, rows: list[GpuRow], silent: list[GpuRow], reasons: Mapping[int, str]) -> Check:
    """Judge one group: a reading that fails is an ailment, one that the hardware lacks is none."""
    failing = [row for row in rows if NOT_SUPPORTED not in (reasons[row.identity.index] or NOT_SUPPORTED)]
    absent = sorted({reasons[row.identity.index] or "nothing here gives it" for row in silent})
    told = [row for row in rows if row not in silent]
    found = f"on {_gpus(told, rows)}" if told else "; ".join(absent)
    if failing:
        errors = sorted({reasons[row.identity.index] for row in failing})
        lost = f"all or part of it on {_gpus(failing, rows)}: {'; '.join(errors)}"
        cause = finding.READINGS_DENIED if DENIED in errors else finding.READINGS_FAIL
        return cause.check(group.title, found, lost=lost)
    if not silent:
        return Check(group.title, "OK", found)
    text = f"{found} (to be had: {group.where})"
    return Check(group.title, "OK", text) if told else finding.READINGS_NOT_HERE.check(group.title, text)


def _reason(row: GpuRow, group: str) -> str:
    return row.reading.withheld.get(group, "") if row.reading is not None else ""


def _gpus(some: list[GpuRow], every: list[GpuRow]) -> str:
    if len(some) == len(every):
        return "every GPU"
    return f"GPU {', '.join(str(row.identity.index) for row in some)}"
