"""Findings and checks of GPUs, their MIG devices or partitions, and their readings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from exporter.concurrency import HANGS
from exporter.doctor import Check, absent, degraded, missing
from exporter.doctor.driver import AMD_REMEDY
from exporter.metrics import GPU, GROUPS, MIG, AnyFamily, Family, Group
from exporter.model import CollectorHealth, GpuReading, GpuRow, MigRow, Snapshot
from exporter.model.conditions import TABLE
from exporter.model.poll_result import CONFIDENTIAL_LISTS, DEADLINE, PollResult
from exporter.wording import mode_label, plural

GPU_NOT_READ: Final = absent("gpu-not-read")
GPU_BEHIND_DRIVER: Final = missing(
    "gpu-behind-driver", "its readings", "fix the driver finding first; no action for this GPU"
)
GPU_HANGS: Final = missing(
    "gpu-hangs",
    "its readings",
    "check the kernel log for its XIDs; drain the GPU, and reset it (nvidia-smi --gpu-reset) or reboot the "
    "node",
)
GPU_LOST: Final = missing(
    "gpu-lost",
    "its readings",
    "check the kernel log for its XIDs; drain the node and power-cycle it: docs/xids.md",
)
GPU_NEEDS_RESET: Final = missing(
    "gpu-needs-reset",
    "its readings",
    "drain the GPU, open a release window (docs/deploy.md) and reset it: nvidia-smi --gpu-reset",
)
GPU_UNHEALTHY: Final = degraded("gpu-unhealthy", "its reliability", "{remedy}")
GPU_UNREAD: Final = degraded(
    "gpu-unread",
    remedy="NoPermission: run as uid 0, in MIG mode with deploy/components/mig-monitor; ResetRequired: "
    "drain the GPU and reset it; any other error: check the kernel log and the GPU's XIDs",
)
AMD_LOST: Final = missing(
    "amd-lost", "its readings", "check the kernel log for amdgpu messages; reset the GPU or reboot the node"
)
AMD_SUSPENDED: Final = degraded(
    "amd-suspended", remedy="none needed: the GPU is read again when a process uses it"
)
AMD_UNREAD: Final = degraded("amd-unread", remedy=AMD_REMEDY)
MIG_UNREAD: Final = degraded(
    "mig-unread",
    "all MIG devices of this GPU",
    "allow the pod to monitor MIG: deploy/components/mig-monitor (NVIDIA_MIG_MONITOR_DEVICES=all with the "
    "capability SYS_ADMIN)",
)
READINGS_DENIED: Final = degraded(
    "readings-denied",
    remedy="run as uid 0, in MIG mode with deploy/components/mig-monitor; gpuslice_nvml_errors_total counts "
    "the failed calls",
)
READINGS_FAIL: Final = degraded(
    "readings-fail",
    remedy="check the kernel log and the GPU's XIDs; gpuslice_nvml_errors_total counts the failed calls",
)
READINGS_NOT_HERE: Final = absent("readings-not-here")


NOT_SUPPORTED: Final = "not supported"
LOST: Final = frozenset({"GpuIsLost", "ResetRequired"})
# Groups with their own checks.
OTHERS = frozenset({"core", "sharing"})
# Always has a value, even if the group is not available.
ALWAYS_AVAILABLE = frozenset({"gpuslice_gpu_events_watched"})
DENIED = "NoPermission"


def gpu_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: PollResult
) -> Iterator[Check]:
    """Return the checks of every GPU, then of those with MIG devices or partitions."""
    for row in snapshot.gpus:
        yield _gpu(row, health.get("nvml"), _errors(row, snapshot, evidence))
        if row.reading is not None and row.reading.up:
            yield from _unhealthy(row)
    for row in snapshot.gpus:
        if row.reading and row.reading.mig_enabled:
            amd = row.identity.vendor == "amd"
            errors = _errors(row, snapshot, evidence)
            yield _partitions(row, row.reading) if amd else _mig(row, row.reading, errors)


def _gpu(row: GpuRow, nvml: CollectorHealth | None, errors: set[str]) -> Check:
    if row.unread:
        return _unread(row)
    if row.reading is None or not row.reading.up:
        return _silent(row, nvml, errors)
    return _answering(row, row.reading)


def _errors(row: GpuRow, snapshot: Snapshot, evidence: PollResult) -> set[str]:
    """Return the errors of a GPU. Errors without a UUID belong to the only GPU that does not answer."""
    errors = evidence.hardware.errors
    silent = [gpu.identity.uuid for gpu in snapshot.gpus if gpu.reading is None or not gpu.reading.up]
    own = {error for uuid, _, error in errors if uuid == row.identity.uuid}
    if silent != [row.identity.uuid]:
        return own
    return own | ({error for uuid, _, error in errors if not uuid} & LOST)


def _unread(row: GpuRow) -> Check:
    number = row.identity.index if row.identity.index >= 0 else row.identity.uuid
    kind = f"{row.identity.model}, {mode_label(row.sharing)}"
    text = f"{kind}: its holders are known; this exporter does not read it"
    return GPU_NOT_READ.check(f"{row.identity.vendor} {number}", text)


def _silent(row: GpuRow, nvml: CollectorHealth | None, errors: set[str]) -> Check:
    name = f"GPU {row.identity.index}"
    listed = f" ({', '.join(sorted(errors))})" if errors else ""
    if row.identity.vendor == "amd":
        return AMD_LOST.check(name, f"does not answer{listed}")
    if nvml is not None and not nvml.success:
        if nvml.reason == DEADLINE:
            return GPU_HANGS.check(name, f"a driver call has not returned{listed}")
        return GPU_BEHIND_DRIVER.check(name, "is not read: its driver is not read")
    if HANGS in errors:
        return GPU_HANGS.check(name, f"a call for this GPU has not returned{listed}")
    cause = GPU_NEEDS_RESET if "needs_reset" in row.raised else GPU_LOST
    return cause.check(name, f"does not answer{listed}")


def _answering(row: GpuRow, reading: GpuReading) -> Check:
    name = f"GPU {row.identity.index}"
    calls = plural(len(reading.unsupported), "call")
    unsupported = f", {calls} not supported" if reading.unsupported else ""
    text = f"{row.identity.model}, {mode_label(row.sharing)}{unsupported}"
    listed = reading.processes if not reading.mig_enabled else ()
    unread = [group for group, value in (("memory", reading.memory), ("processes", listed)) if value is None]
    reasons = {group: reading.withheld.get(group, "no answer") for group in unread}
    failing = [group for group, reason in reasons.items() if NOT_SUPPORTED not in reason]
    if not failing:
        lacking = f"; {' and '.join(unread)} {NOT_SUPPORTED}" if unread else ""
        return Check(name, "OK", f"{text}{lacking}")
    lost = f"{' and '.join(failing)} of this GPU"
    asleep = reading.withheld.get("core", "")
    if row.identity.vendor == "amd" and asleep:
        return AMD_SUSPENDED.check(name, f"{text}: {asleep}", lost=lost)
    why = ", ".join(sorted({reasons[group] for group in failing}))
    cause = AMD_UNREAD if row.identity.vendor == "amd" else GPU_UNREAD
    return cause.check(name, f"{text}: {why}", lost=lost)


def _unhealthy(row: GpuRow) -> Iterator[Check]:
    """Yield a check if an answering GPU has conditions that endanger work on it."""
    bad = {name: raised for name, raised in row.raised.items() if TABLE[name].severity == "bad"}
    if bad:
        found = "; ".join(f"{TABLE[name].title}: {', '.join(raised.causes)}" for name, raised in bad.items())
        remedy = " ".join(TABLE[name].remedy for name in bad)
        yield GPU_UNHEALTHY.check(f"GPU {row.identity.index} health", found, remedy=remedy)


def _mig(row: GpuRow, reading: GpuReading, errors: set[str]) -> Check:
    name = f"GPU {row.identity.index} MIG"
    instances = reading.mig or ()
    if HANGS in errors:
        text = f"{plural(len(instances), 'MIG device')} listed; a call for one has not returned"
        return GPU_HANGS.check(name, text, lost="the MIG device whose call hangs")
    if reading.mig is None or not reading.mig_complete:
        text = f"{plural(len(instances), 'MIG device')} listed, there may be more"
        return MIG_UNREAD.check(name, text)
    # Nothing that a permission would change.
    hidden = reading.withheld.get("processes") == CONFIDENTIAL_LISTS
    blind = [mig.uuid for mig in instances if mig.memory is None or (mig.processes is None and not hidden)]
    text = plural(len(instances), "MIG device")
    if not blind:
        return Check(name, "OK", f"{text}; processes {NOT_SUPPORTED}" if hidden and instances else text)
    return MIG_UNREAD.check(name, text, lost=f"memory or processes of {plural(len(blind), 'MIG device')}")


def _partitions(row: GpuRow, reading: GpuReading) -> Check:
    name = f"GPU {row.identity.index} partitions"
    parts = reading.mig or ()
    blind = [part for part in parts if part.processes is None]
    text = plural(len(parts), "partition")
    if reading.mig is None or not reading.mig_complete:
        return AMD_UNREAD.check(name, f"{text} listed, there may be more", lost="the holders of the others")
    if not blind:
        return Check(name, "OK", text)
    return AMD_UNREAD.check(name, text, lost=f"the processes of {len(blind)} of them")


def group_checks(snapshot: Snapshot) -> Iterator[Check]:
    """Return one check per group of readings, over all GPUs that answer."""
    rows = [row for row in snapshot.gpus if row.reading is not None and row.reading.up]
    for name, group in GROUPS.items():
        families = [
            family for family in (*GPU, *MIG) if family.group == name and family.name not in ALWAYS_AVAILABLE
        ]
        if rows and families and name not in OTHERS:
            silent = [row for row in rows if not _is_available(families, row, snapshot.migs)]
            yield _check(group, rows, silent, {row.identity.index: _reason(row, name) for row in rows})


def _is_available(families: Iterable[AnyFamily], gpu: GpuRow, migs: Iterable[MigRow]) -> bool:
    """Return whether any series of a group has a value on a GPU or one of its MIG devices."""
    own = [mig for mig in migs if mig.device.uuid == gpu.identity.uuid]
    return any(
        _has_value(family, row) for family in families for row in ((gpu,) if family.level == "gpu" else own)
    )


def _has_value(family: AnyFamily, row: GpuRow | MigRow) -> bool:
    if isinstance(family, Family):
        return family.value(row) is not None
    return any(value is not None for _, value in family.samples(row))


def _check(group: Group, rows: list[GpuRow], silent: list[GpuRow], reasons: Mapping[int, str]) -> Check:
    """Return the check of one group: degraded if a reading fails, not if the hardware lacks it."""
    failing = [row for row in rows if NOT_SUPPORTED not in (reasons[row.identity.index] or NOT_SUPPORTED)]
    reported = sorted({reasons[row.identity.index] or "not available here" for row in silent})
    available = [row for row in rows if row not in silent]
    found = _gpus(available, rows) if available else "; ".join(reported)
    if failing:
        errors = sorted({reasons[row.identity.index] for row in failing})
        lost = f"some or all of it on {_gpus(failing, rows)}: {'; '.join(errors)}"
        cause = READINGS_DENIED if DENIED in errors else READINGS_FAIL
        return cause.check(group.title, found, lost=lost)
    if not silent:
        return Check(group.title, "OK", found)
    text = f"{found} (available: {group.where})"
    return Check(group.title, "OK", text) if available else READINGS_NOT_HERE.check(group.title, text)


def _reason(row: GpuRow, group: str) -> str:
    return row.reading.withheld.get(group, "") if row.reading is not None else ""


def _gpus(rows: list[GpuRow], every: list[GpuRow]) -> str:
    if len(rows) == len(every):
        return "all GPUs"
    return f"GPU {', '.join(str(row.identity.index) for row in rows)}"
