"""The doctor's checks of files that other programs write: sharing systems, a batch system, the kernel."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from exporter.assembly import JOBS, SHARING, Evidence
from exporter.doctor.findings import Finding
from exporter.doctor.findings import objects as found
from exporter.formats_words import plural
from exporter.model import CollectorHealth, FileProblem, Snapshot
from exporter.report import Check
from exporter.settings import Settings


class _Place(NamedTuple):
    """Where a system keeps a file of each container: the setting that names it, and who has such files."""

    setting: str
    component: str
    sharing: frozenset[str]


_PLACES: Final[Mapping[str, _Place]] = {
    "hami": _Place("hami_root", "hami", frozenset({"hami", "volcano-vgpu"})),
    "hami-ascend": _Place("hami_vnpu_root", "hami-vnpu", frozenset({"hami-ascend"})),
    "gpu-manager": _Place("vcuda_root", "gpu-manager", frozenset({"gpu-manager"})),
    "vgpu-manager": _Place("vgpu_manager_root", "vgpu-manager", frozenset({"vgpu-manager"})),
    "runai": _Place("run_root", "runai", frozenset({"runai"})),
}


def file_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    """Judge what is read of other programs' files; nothing is said of those that nobody writes here."""
    yield from _sharing(snapshot, health, evidence, settings)
    devices = health.get("host_devices")
    if devices is not None and not devices.success:
        yield found.HOST_DEVICES_FAIL.check("devices for virtual machines", devices.message)
    if JOBS in health:
        yield _jobs(health[JOBS], evidence)


def _sharing(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    if not health[SHARING].success:
        yield found.FILES_FAIL.check("files of sharing systems", health[SHARING].message)
        return
    for system, files in sorted(evidence.files.items()):
        name = f"files of {system}"
        if files.problems:
            yield _unreadable(found.FILES_UNREADABLE, name, files.problems)
        elif files.containers:
            yield Check(name, "OK", plural(len(files.containers), "container"))
        elif system in _PLACES and _is_used(snapshot, _PLACES[system]):
            yield _not_here(name, _PLACES[system], settings)


def _is_used(snapshot: Snapshot, place: _Place) -> bool:
    return any(row.sharing in place.sharing and not row.device.mig_uuid for row in snapshot.containers)


def _not_here(name: str, place: _Place, settings: Settings) -> Check:
    root = getattr(settings, place.setting)
    text = (
        f"{root} has none: it is not mounted (deploy/components/{place.component}), or no container has begun"
        " to use its GPU"
    )
    return found.FILES_NOT_HERE.check(name, text)


def _jobs(health: CollectorHealth, evidence: Evidence) -> Check:
    name = "jobs of a batch system"
    if not health.success or evidence.jobs is None:
        return found.JOBS_UNREADABLE.check(name, health.message)
    if evidence.jobs.problems:
        return _unreadable(found.JOBS_UNREADABLE, name, evidence.jobs.problems)
    return Check(name, "OK", f"on {plural(len(evidence.jobs.jobs), 'device')}")


def _unreadable(cause: Finding, name: str, problems: Sequence[FileProblem]) -> Check:
    first = problems[0]
    more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
    return cause.check(name, f"{first.about} is left out: {first.text}{more}")
