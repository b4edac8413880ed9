"""What is wrong with a GPU: the table of conditions, with what raises and what clears each.

A condition has several signs. It is raised if one of them says so, not raised if all of them say that it is
not, and unknown otherwise.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.model import condition_signs
from exporter.model.condition_signs import Inputs, Sign
from exporter.model.snapshot import Condition

Severity = Literal["bad", "note"]


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One condition: its texts, and the signs that decide it."""

    title: str  # what the GPU does or needs, after its name: ``GPU 2 needs a reset``
    severity: Severity  # ``bad`` if work on the GPU is in danger, else ``note``
    remedy: str  # what to do, as one sentence
    raised: str  # what raises it, as Markdown
    cleared: str  # what clears it, as Markdown
    signs: Callable[[Inputs], Iterable[Sign]]


# Every condition with its texts and rule.
TABLE: Mapping[Condition, ConditionRow] = {
    "lost": ConditionRow(
        "does not answer",
        "bad",
        "Check the kernel log for its XIDs.",
        "the GPU, or its driver as a whole, does not answer; unknown while the driver is released",
        "the first successful read",
        condition_signs.lost,
    ),
    "needs_reset": ConditionRow(
        "needs a reset",
        "bad",
        "Drain it, open a release window and reset it.",
        "the driver's recovery action (reset, drain and reset, bus reset); a pending row remapping, page "
        "retirement, or repair of a memory channel or TPC, unless the recovery action is a reboot; an XID of "
        "class reset; a driver that answers *reset required*",
        "the recovery action is *none* and no repair is pending; an XID counts until the GPU is restarted, "
        "or until the driver reports a recovery action after it, if that covers the code",
        condition_signs.needs_reset,
    ),
    "needs_reboot": ConditionRow(
        "needs a reboot of its node",
        "bad",
        "Drain the node and reboot it.",
        "the driver's recovery action (reboot, system reboot); an XID of class reboot",
        "a reboot, after which the exporter starts again; another recovery action; an XID counts until the "
        "GPU is restarted, or until the driver reports a recovery action after it, if that covers the code",
        condition_signs.needs_reboot,
    ),
    "replace_board": ConditionRow(
        "cannot repair its memory",
        "bad",
        "Take it out of service and have the board replaced.",
        "a row remapping has failed",
        "another board: a reset does not clear it",
        condition_signs.replace_board,
    ),
    "uncorrected_memory_errors": ConditionRow(
        "has uncorrected memory errors",
        "bad",
        "Restart the affected work; drain the GPU and reset it at a convenient time.",
        "volatile uncorrected ECC errors; XID "
        + ", ".join(map(str, sorted(condition_signs.UNCORRECTED_XIDS)))
        + ", also in MIG mode, in which the driver has no such counter",
        "a restart of the GPU, with which the volatile counters start at 0",
        condition_signs.uncorrected,
    ),
    "throttled_by_heat_or_power": ConditionRow(
        "is slowed down by heat or power",
        "note",
        "Check the cooling of the node, and its power supplies.",
        "hardware thermal slowdown, power brake or software thermal slowdown for more than half of the last "
        "5 minutes; the power cap is normal on a busy GPU and does not count",
        "less than a quarter of the last 5 minutes",
        condition_signs.throttled,
    ),
    "link_degraded": ConditionRow(
        "has a degraded link",
        "note",
        "Check the seat of the board, its riser and the NVLink fabric; reset GPUs whose NVLinks are down.",
        "for 2 minutes, a PCIe width below what GPU and slot support, an inactive C2C link, or fewer active "
        "NVLinks than the GPU has had since the exporter started or than its siblings behind the same "
        "switches have; a PCIe generation below the maximum for 15 minutes, for most of which the GPU "
        "worked; an NVLink fabric that the driver reports with degraded bandwidth, an unhealthy route or an "
        "incorrect configuration",
        "the maximum is reached once; the driver no longer reports the problem of the fabric",
        condition_signs.link_degraded,
    ),
    "driver_released": ConditionRow(
        "is not read: its driver is released",
        "note",
        "None needed: the GPU is read again when the request ends.",
        "a [release window](deploy.md#release-windows) is open",
        "the window is closed",
        condition_signs.released,
    ),
}


class Verdict(NamedTuple):
    """The state of a condition; None is unknown. ``signs`` are those that raise it."""

    state: bool | None
    signs: tuple[Sign, ...] = ()


def judge_condition(condition: Condition, inputs: Inputs) -> Verdict:
    signs = tuple(TABLE[condition].signs(inputs))
    raising = tuple(sign for sign in signs if sign.raises)
    if raising:
        return Verdict(True, raising)
    known = bool(signs) and all(sign.raises is not None for sign in signs)
    return Verdict(False if known else None)
