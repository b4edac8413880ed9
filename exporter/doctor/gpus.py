"""The doctor's checks of single GPUs, of their MIG devices and of their partitions."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.assembly import Evidence
from exporter.collector import DEADLINE
from exporter.doctor.findings import gpus as found
from exporter.formats_words import plural
from exporter.model import CollectorHealth, GpuReading, GpuRow, Snapshot
from exporter.report import Check

NOT_SUPPORTED: Final = "not supported"
RESET: Final = "ResetRequired"
HANGS: Final = "Hangs"
LOST: Final = frozenset({"GpuIsLost", RESET})


def gpu_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence
) -> Iterator[Check]:
    """Judge every GPU, then those that are cut."""
    for row in snapshot.gpus:
        yield _gpu(row, health.get("nvml"), _errors(row, snapshot, evidence))
    yield from (_cut(row) for row in snapshot.gpus if row.reading and row.reading.mig_enabled)


def _gpu(row: GpuRow, nvml: CollectorHealth | None, errors: set[str]) -> Check:
    if row.foreign:
        return _foreign(row)
    if row.reading is None or not row.reading.up:
        return _silent(row, nvml, errors)
    return _answering(row, row.reading)


def _errors(row: GpuRow, snapshot: Snapshot, evidence: Evidence) -> set[str]:
    """Name the errors of a GPU. One that is lost may not say who it is: the only silent one is meant then."""
    errors = evidence.hardware.errors if evidence.hardware is not None else {}
    silent = [gpu.identity.uuid for gpu in snapshot.gpus if gpu.reading is None or not gpu.reading.up]
    said = {error for uuid, _, error in errors if uuid == row.identity.uuid}
    if silent != [row.identity.uuid]:
        return said
    return said | ({error for uuid, _, error in errors if not uuid} & LOST)


def _foreign(row: GpuRow) -> Check:
    number = row.identity.index if row.identity.index >= 0 else row.identity.uuid
    text = f"{row.identity.model}, {row.sharing}: who holds it is known, it is not read by this exporter"
    return found.GPU_NOT_READ.check(f"{row.identity.vendor} {number}", text)


def _silent(row: GpuRow, nvml: CollectorHealth | None, errors: set[str]) -> Check:
    name = f"GPU {row.identity.index}"
    said = f" ({', '.join(sorted(errors))})" if errors else ""
    if row.identity.vendor == "amd":
        return found.AMD_LOST.check(name, f"does not answer{said}")
    if nvml is not None and not nvml.success:
        if nvml.reason == DEADLINE:
            return found.GPU_HANGS.check(name, f"a call into the driver does not return{said}")
        return found.GPU_BEHIND_DRIVER.check(name, "is not read, because its driver is not")
    if HANGS in errors:
        return found.GPU_HANGS.check(name, f"a call about it does not return{said}")
    cause = found.GPU_NEEDS_RESET if RESET in errors else found.GPU_LOST
    return cause.check(name, f"does not answer{said}")


def _answering(row: GpuRow, reading: GpuReading) -> Check:
    name = f"GPU {row.identity.index}"
    calls = plural(len(reading.unsupported), "call")
    unsupported = f", {calls} not supported" if reading.unsupported else ""
    text = f"{row.identity.model}, {row.sharing}{unsupported}"
    listed = reading.processes if not reading.mig_enabled else ()
    missing = [group for group, value in (("memory", reading.memory), ("processes", listed)) if value is None]
    reasons = {group: reading.withheld.get(group, "no answer") for group in missing}
    failing = [group for group, reason in reasons.items() if NOT_SUPPORTED not in reason]
    if not failing:
        lacking = f"; {' and '.join(missing)} {NOT_SUPPORTED}" if missing else ""
        return Check(name, "OK", f"{text}{lacking}")
    lost = f"{' and '.join(failing)} of this GPU"
    asleep = reading.withheld.get("core", "")
    if row.identity.vendor == "amd" and asleep:
        return found.AMD_SUSPENDED.check(name, f"{text}: {asleep}", lost=lost)
    why = ", ".join(sorted({reasons[group] for group in failing}))
    cause = found.AMD_UNREAD if row.identity.vendor == "amd" else found.GPU_UNREAD
    return cause.check(name, f"{text}: {why}", lost=lost)


def _cut(row: GpuRow) -> Check:
    return _partitions(row) if row.identity.vendor == "amd" else _mig(row)


def _mig(row: GpuRow) -> Check:
    name = f"GPU {row.identity.index} MIG"
    reading = row.reading
    instances = (reading.mig if reading is not None else None) or ()
    if reading is None or reading.mig is None or not reading.mig_complete:
        text = f"{plural(len(instances), 'MIG device')} told, there may be more"
        return found.MIG_UNREAD.check(name, text)
    blind = [mig.uuid for mig in instances if mig.memory is None or mig.processes is None]
    text = plural(len(instances), "MIG device")
    if not blind:
        return Check(name, "OK", text)
    return found.MIG_UNREAD.check(
        name, text, lost=f"memory or processes of {plural(len(blind), 'MIG device')}"
    )


def _partitions(row: GpuRow) -> Check:
    name = f"GPU {row.identity.index} partitions"
    reading = row.reading
    parts = (reading.mig if reading is not None else None) or ()
    blind = [part for part in parts if part.processes is None]
    text = plural(len(parts), "partition")
    if reading is None or reading.mig is None or not reading.mig_complete:
        return found.AMD_UNREAD.check(name, f"{text} told, there may be more", lost="who holds the others")
    if not blind:
        return Check(name, "OK", text)
    return found.AMD_UNREAD.check(name, text, lost=f"the processes of {len(blind)} of them")
