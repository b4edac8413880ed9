"""The inputs of conditions, and the rule of each: what the inputs say about it.

The rules are pure: the state that some inputs need is kept elsewhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model.hardware import GpuReading
from exporter.model.readings import FabricProblem, RecoveryAction, Repairs
from exporter.model.xids import RECOVERY_SINCE, XidClass, explain

# Recovery actions of the driver that are a reset of the GPU, and a reboot of the node.
# The other actions are a first step, after which the driver reports the next one.
RESETS: frozenset[RecoveryAction] = frozenset({"reset", "drain_and_reset", "bus_reset"})
REBOOTS: frozenset[RecoveryAction] = frozenset({"reboot", "system_reboot"})
DECISIVE: frozenset[RecoveryAction] = RESETS | REBOOTS | {"none"}
# Problems of a fabric that raise a condition; the others pass by themselves, or may be intended.
FABRIC_CAUSES: Mapping[FabricProblem, str] = {
    "degraded_bandwidth": "its NVLink fabric has less bandwidth",
    "route_unhealthy": "a route of its NVLink fabric is unhealthy",
    "incorrect_configuration": "its NVLink fabric is configured incorrectly",
}
# Codes of uncorrected memory errors: in MIG mode the driver has no counter of them.
UNCORRECTED_XIDS = frozenset({48, 94, 95, 140, 171, 172})


class PendingXid(NamedTuple):
    """An XID since the last restart of its GPU; ``at`` is the Unix time of the last one."""

    code: int
    at: float


class Sign(NamedTuple):
    """One input of a condition: whether it raises it (None: unknown), and why."""

    raises: bool | None
    cause: str = ""
    at: float | None = None  # Unix time at which it began; None: when it was first observed


UNKNOWN = Sign(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of the rules for one GPU at one poll."""

    vendor: str
    reading: GpuReading | None  # None if only the identity is known
    released: str = ""  # why the NVIDIA driver is released; "" while it is in use
    watched: bool = False  # whether the exporter is subscribed to XIDs
    xids: tuple[PendingXid, ...] = ()  # XIDs since the GPU was last restarted
    driver_branch: int | None = None  # branch of the NVIDIA driver, such as 580; None if unknown
    reset_required: bool = False  # whether the driver refuses calls until the GPU is reset
    throttled: Sign = UNKNOWN  # whether heat or a power brake limited the clocks for most of the last minutes
    # Whether each link of the GPU has been degraded for long; links that it does not have are left out.
    links: tuple[Sign, ...] = ()

    @property
    def answering(self) -> GpuReading | None:
        """The reading of a GPU that answers."""
        return self.reading if self.reading is not None and self.reading.up else None

    @property
    def nvidia(self) -> bool:
        return self.vendor == "nvidia"


def lost(inputs: Inputs) -> Iterator[Sign]:
    """Yield whether the GPU does not answer; unknown while its driver is released."""
    if inputs.nvidia and inputs.released:
        yield UNKNOWN
    else:
        yield Sign(inputs.answering is None, "it does not answer")


def released(inputs: Inputs) -> Iterator[Sign]:
    """Yield whether the driver of an NVIDIA GPU is released."""
    if inputs.nvidia:
        yield Sign(bool(inputs.released), inputs.released)


def needs_reset(inputs: Inputs) -> Iterator[Sign]:
    """Yield what the driver, pending repairs and XIDs say about a reset."""
    if not inputs.nvidia:
        return
    if inputs.reset_required:
        yield Sign(True, "the driver refuses calls until it is reset")
    yield from _actions(inputs, RESETS)
    if inputs.answering is not None:
        yield from _repair(inputs.answering)
    yield from _of_xids(inputs, "reset", RESETS)


def needs_reboot(inputs: Inputs) -> Iterator[Sign]:
    """Yield what the driver and XIDs say about a reboot of the node."""
    if not inputs.nvidia:
        return
    yield from _actions(inputs, REBOOTS)
    yield from _of_xids(inputs, "reboot", REBOOTS)


def _actions(inputs: Inputs, actions: frozenset[RecoveryAction]) -> Iterator[Sign]:
    """Yield what the driver says; drivers before R550 do not report an action, and nothing is yielded."""
    reading = inputs.answering
    if reading is None:
        yield UNKNOWN
    elif reading.recovery_action in actions:
        yield Sign(True, f"recovery action {reading.recovery_action.replace('_', ' ')}")
    elif reading.recovery_action is None:
        if not _lacks(reading, "repairs"):
            yield UNKNOWN
    elif reading.recovery_action in DECISIVE:
        yield Sign(False)
    else:
        # After drain_p2p and the like the driver reports another action, so the need is not known yet.
        yield UNKNOWN


def _repair(reading: GpuReading) -> Iterator[Sign]:
    """Yield whether a repair waits for a reset; a reboot that the driver asks for includes it."""
    repairs, action = reading.repairs or Repairs(), reading.recovery_action
    rows, pages = repairs.row_remap_pending, repairs.retired_pages_pending
    for pending, cause in (
        (rows, "a row remapping is pending"),
        (pages, "a page retirement is pending"),
        (repairs.channel_repair_pending, "a repair of a memory channel is pending"),
        (repairs.tpc_repair_pending, "a repair of a texture processing cluster (TPC) is pending"),
    ):
        if pending is not None:
            yield Sign(pending and action not in REBOOTS, cause)
    # The action covers repairs. In MIG mode the driver hides those of a GPU that may have one.
    unsupported = _lacks(reading, "repairs") and not reading.mig_enabled
    if rows is None and pages is None and action is None and not unsupported:
        yield UNKNOWN


def _lacks(reading: GpuReading, group: str) -> bool:
    """Return whether readings of a group are missing only because GPU or driver do not have them."""
    return "not supported" in reading.withheld.get(group, "")


def _of_xids(inputs: Inputs, kind: XidClass, actions: frozenset[RecoveryAction]) -> Iterator[Sign]:
    """Yield the XIDs of a class, which the driver may answer with ``actions`` or with another one."""
    for xid in inputs.xids:
        if explain(xid.code).kind == kind and not _is_answered(inputs, xid, DECISIVE - actions):
            yield _xid(xid)
    yield Sign(False) if inputs.watched else UNKNOWN


def _is_answered(inputs: Inputs, xid: PendingXid, actions: frozenset[RecoveryAction]) -> bool:
    """Return whether the driver, after an XID that its recovery action covers, reports one of ``actions``."""
    reading, since = inputs.answering, RECOVERY_SINCE.get(xid.code)
    if reading is None or since is None or reading.recovery_action not in actions:
        return False
    if inputs.driver_branch is not None and inputs.driver_branch < since:
        return False
    read_at = reading.read_at if reading.slow_read_at is None else reading.slow_read_at
    return xid.at < read_at


def _xid(xid: PendingXid) -> Sign:
    return Sign(True, f"XID {xid.code}: {explain(xid.code).meaning.rstrip('.')}", xid.at)


def replace_board(inputs: Inputs) -> Iterator[Sign]:
    """Yield whether a faulty memory row has no spare."""
    repairs = inputs.answering.repairs if inputs.answering is not None else None
    failed = repairs.row_remap_failure if repairs is not None else None
    yield Sign(failed, "no spare memory row is left for a faulty one")


def uncorrected(inputs: Inputs) -> Iterator[Sign]:
    """Yield what the driver's counter and XIDs say about uncorrected memory errors."""
    ecc = inputs.answering.ecc if inputs.answering is not None else None
    count = ecc.errors.get(("uncorrected", "volatile")) if ecc is not None else None
    if count is None:
        yield UNKNOWN
    else:
        errors = "1 uncorrected memory error" if count == 1 else f"{count} uncorrected memory errors"
        yield Sign(count > 0, f"{errors} since the driver was loaded")
    for xid in inputs.xids:
        if xid.code in UNCORRECTED_XIDS:
            yield _xid(xid)


def throttled(inputs: Inputs) -> Iterator[Sign]:
    """Yield whether heat or a power brake limits the clocks for long."""
    yield inputs.throttled


def link_degraded(inputs: Inputs) -> Iterator[Sign]:
    """Yield whether each link of the GPU is below its best, and what the driver says of its fabric."""
    yield from inputs.links
    if inputs.answering is not None:
        yield from _fabric(inputs.answering)


def _fabric(reading: GpuReading) -> Iterator[Sign]:
    """Yield the problems that the driver reports; unknown if it failed to, on a GPU with NVLinks."""
    fabric, links = reading.fabric, reading.nvlink.links if reading.nvlink is not None else None
    if fabric is None:
        if links and "nvlink" in reading.withheld and not _lacks(reading, "nvlink"):
            yield UNKNOWN
        return
    details = f": {fabric.misconfiguration.replace('_', ' ')}" if fabric.misconfiguration else ""
    for problem, cause in FABRIC_CAUSES.items():
        if problem in fabric.problems:
            text = f"{cause}{details}" if problem == "incorrect_configuration" else cause
            yield Sign(fabric.problems[problem], text)
