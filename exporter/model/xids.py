"""Meanings of the XID codes of the NVIDIA driver.

Source: https://docs.nvidia.com/deploy/xid-errors/, reworded: the catalogue for Ampere and newer GPUs and, for
codes that only older ones report, the archived table. Codes that it calls unused are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

XidClass = Literal["application", "driver", "hardware", "reset", "reboot", "notice", "unknown"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID code."""

    code: int
    kind: XidClass  # what to check first
    meaning: str  # one sentence
    action: str  # what to do first, as one sentence
    alert: bool = False  # the GPU is unreliable until the action is taken
    unit: int | None = None  # number in the meaning by which codes of units of one kind differ


# Meaning of each class, as one phrase.
CLASSES: Mapping[XidClass, str] = {
    "application": "a fault of a process, or one that ended it; the GPU itself works",
    "driver": "the driver, its firmware or other software of the node",
    "hardware": "the GPU still works; its hardware, or hardware connected to it, needs attention",
    "reset": "the GPU is unreliable until it is reset",
    "reboot": "the node (or the virtual machine) must be restarted",
    "notice": "this code alone indicates no fault",
    "unknown": "not in the catalogue",
}

_RESTART = "Restart the application."
_LINK = "Restart the application; check the PCIe link if it recurs."
_DEBUG = "Debug the application, for example with compute-sanitizer."
_UPDATE = "Update the driver; report the error to NVIDIA if it recurs."
_RESET = "Drain the GPU and reset it."
_SUPPORT = "Contact the hardware vendor if it recurs."
_RECOVERY = "Follow the recovery action that the driver reports with code 154."
_NOTHING = "Nothing."
_LOG = "Read the kernel log (NVRM: Xid), which has more details."
_RESET_LINK = "Drain the GPUs of the link and reset them; check nvidia-smi nvlink -e."
_POWER_CYCLE = "Drain the node and power-cycle it; check its log for PCIe errors."
_ISOLATED = "Restart that application; reset the GPU when convenient."
_RESTART_ALL = "Restart the applications on the GPU; reset it if that does not help."
_UNDO_CHANGES = "Undo recent hardware changes and power-cycle the node."
_RETRAIN = "Nothing now; reset the GPU at the next occasion to retrain the link."
_RESTART_VM = "Restart the virtual machine."
_READ_ACTION = "Read the recovery action; codes reported with it give the reason."
_AT_RISK = "Contact the hardware vendor; work can continue and may hit the fault again."
_RESOLVE_HEAT = "Resolve thermal events; after a timeout reload the driver or reset the GPU."
_PLAN = "Plan a replacement if the site cannot handle power swings."
_REPLACE = "Replace the GPU if the site cannot handle power swings."

_FAULTS = (
    Xid(7, "driver", "The driver gave the GPU a wrong address for its commands (older GPUs).", _UPDATE),
    Xid(8, "application", "A GPU channel stopped making progress.", _RESTART),
    Xid(9, "driver", "The driver programmed the GPU wrongly (older GPUs).", _UPDATE),
    Xid(11, "application", "A process sent the GPU an invalid stream of commands.", _DEBUG),
    Xid(12, "driver", "The driver failed to handle a GPU exception (older GPUs).", _UPDATE),
    Xid(13, "application", "A kernel made an illegal access or ran an illegal instruction.", _DEBUG),
    Xid(14, "notice", "A test error, injected from user space.", _NOTHING),
    Xid(18, "driver", "PCI bus mastering is disabled (older GPUs).", _UPDATE),
    Xid(24, "driver", "Waiting for a GPU semaphore timed out (older GPUs).", _UPDATE),
    Xid(25, "application", "A process sent the GPU an illegal command.", _DEBUG),
    Xid(26, "driver", "The frame buffer timed out (older GPUs).", _UPDATE),
    Xid(30, "driver", "A GPU semaphore could not be accessed (older GPUs).", _UPDATE),
    Xid(31, "application", "A process accessed GPU memory that is not mapped for it.", _DEBUG),
    Xid(32, "application", "Commands arrived corrupted, mostly due to a bad PCIe link.", _LINK),
    Xid(33, "driver", "A microcontroller of the GPU reported an error (older GPUs).", _UPDATE),
    Xid(37, "driver", "The firmware received an unknown request.", _UPDATE),
    Xid(38, "driver", "The firmware watchdog expired.", _SUPPORT),
    Xid(43, "application", "The work of a process was stopped after a fault of that process.", _DEBUG),
    Xid(44, "driver", "The graphics engine faulted during a context switch.", _SUPPORT),
    Xid(
        45,
        "application",
        "The work of a process was removed: it was killed, or ended by another error.",
        "Check the code reported with it; alone it is mostly a killed process.",
    ),
    Xid(46, "reset", "The GPU stopped processing.", _RESET, alert=True),
    Xid(48, "reset", "Uncorrectable memory error (double bit).", _RESET, alert=True),
    Xid(54, "hardware", "The auxiliary power of the board is not connected.", "Check the power cables."),
    Xid(57, "hardware", "The interface to the memory could not be programmed (older GPUs).", _SUPPORT),
    Xid(58, "hardware", "The interface to the memory is unstable (older GPUs).", _SUPPORT),
    Xid(59, "driver", "A microcontroller of the GPU reported an error (older drivers).", _UPDATE),
    Xid(60, "application", "The engine for protected video or security had an exception.", _RESTART),
    Xid(61, "driver", "A microcontroller of the GPU reported a warning (older GPUs).", _UPDATE),
    Xid(62, "reset", "A microcontroller of the GPU halted.", _RESET, alert=True),
    Xid(63, "hardware", "Bad memory will be remapped or retired at the next reset.", "Nothing now."),
    Xid(64, "reset", "Bad memory could not be remapped or retired.", _RESET, alert=True),
    Xid(66, "driver", "The driver, or a process through it, accessed a register illegally.", _UPDATE),
    Xid(67, "driver", "The driver, or a process through it, accessed the GPU illegally.", _SUPPORT),
    Xid(69, "application", "A process used an unknown class of the graphics engine.", _DEBUG),
    Xid(74, "reset", "An NVLink failed, or the device at its other end did.", _RESET_LINK, alert=True),
    Xid(78, "driver", "A vGPU could not be started.", "Update the vGPU software of host and guest."),
    Xid(79, "reboot", "The GPU no longer answers on the PCIe bus.", _POWER_CYCLE, alert=True),
    Xid(80, "application", "Commands arrived at the GPU with a wrong checksum.", _LINK),
    Xid(81, "hardware", "The VGA part of the GPU had an error (older GPUs).", _SUPPORT),
    Xid(92, "hardware", "High rate of corrected memory errors.", _SUPPORT),
    Xid(93, "hardware", "The wear limit of the InfoROM is reached.", "Clear it (nvflash) if set on purpose."),
    Xid(94, "hardware", "An uncorrectable memory error was contained to one process.", _ISOLATED, alert=True),
    Xid(95, "reset", "An uncontained memory error affected several processes.", _RESET, alert=True),
    Xid(106, "notice", "A test message of the SMBPBI management bus.", _NOTHING),
    Xid(107, "notice", "A silent test message of the SMBPBI management bus.", _NOTHING),
    Xid(108, "application", "An access over NVLink could not be translated by the other GPU.", _DEBUG),
    Xid(109, "application", "A context switch of the GPU timed out.", _RESTART_ALL),
    Xid(110, "reset", "A security fault, mostly due to faulty hardware.", _UNDO_CHANGES, alert=True),
    Xid(119, "reset", "The GPU system processor (GSP) timed out.", _RESET, alert=True),
    Xid(120, "reset", "The firmware of the GPU system processor (GSP) failed.", _RESET, alert=True),
    Xid(121, "hardware", "Errors on the link to the Grace processor were corrected.", _RETRAIN),
    Xid(122, "hardware", "The flash memory of the board could not be read (older GPUs).", _SUPPORT),
    Xid(123, "hardware", "The flash memory of the board could not be written (older GPUs).", _SUPPORT),
    Xid(124, "hardware", "The flash memory of the board could not be erased (older GPUs).", _SUPPORT),
    Xid(125, "hardware", "The file system of the InfoROM has an error (older GPUs).", _SUPPORT),
    Xid(136, "reset", "The training of an NVLink failed.", _RESET, alert=True),
    Xid(137, "application", "A process made an illegal access to another GPU over NVLink.", _DEBUG),
    Xid(140, "reset", "Uncorrected memory errors; the memory could not be retired.", _RESET, alert=True),
    Xid(141, "driver", "The fast path of CUDA had an error.", _SUPPORT),
    Xid(142, "driver", "The video encoder 3 had an error.", _SUPPORT),
    Xid(143, "reset", "The GPU could not be initialized.", _RESET, alert=True),
    Xid(144, "hardware", "An NVLink unit (SAW) had an error, fatal or not.", _RECOVERY),
    Xid(145, "hardware", "An NVLink unit (RLW) had an error, fatal or not.", _RECOVERY),
    Xid(146, "hardware", "An NVLink unit (TLW) had an error, fatal or not.", _RECOVERY),
    Xid(147, "hardware", "An NVLink unit (TREX) had an error that is not fatal.", _RECOVERY),
    Xid(148, "hardware", "An NVLink unit (NVLPW_CTRL) had an error that is not fatal.", _RECOVERY),
    Xid(149, "reset", "The NVLink network had an error, such as a link down.", _RECOVERY, alert=True),
    Xid(150, "reset", "The NVLink management (MSE) failed.", _RECOVERY, alert=True),
    Xid(151, "reboot", "Keys of confidential computing could not be exchanged.", _RESTART_VM, alert=True),
    Xid(152, "driver", "The deep-learning accelerator (DLA) made an illegal access.", _SUPPORT),
    Xid(153, "driver", "The deep-learning accelerator (DLA) timed out.", _SUPPORT),
    Xid(154, "notice", "The recovery action that the driver recommends for the GPU changed.", _READ_ACTION),
    Xid(
        155,
        "hardware",
        "Software took an NVLink down, possibly on purpose (such as to save power).",
        "Reset the GPU if the link should be up.",
    ),
    Xid(156, "reset", "A faulty part of the GPU will be retired at the next reset.", _RESET, alert=True),
    Xid(157, "hardware", "A faulty part of the GPU could not be retired: no spare is left.", _AT_RISK),
    Xid(158, "reset", "A fatal timeout of the GPU.", _RESET, alert=True),
    Xid(159, "hardware", "The chip-to-chip link had an error without data.", _SUPPORT),
    Xid(160, "hardware", "A memory channel was retired.", _SUPPORT),
    Xid(161, "hardware", "A memory channel could not be retired.", _SUPPORT),
    Xid(162, "notice", "Power smoothing works again.", _NOTHING),
    Xid(163, "hardware", "Power smoothing is off.", _RESOLVE_HEAT),
    Xid(164, "hardware", "The power smoothing circuit is nearly worn out.", _PLAN),
    Xid(165, "hardware", "The power smoothing circuit is worn out.", _REPLACE),
    Xid(166, "driver", "An NVLink carried traffic before its encryption was set up.", _LOG),
    Xid(167, "hardware", "A fatal timeout of PCIe.", _LOG),
    Xid(168, "hardware", "Protected memory has errors; some of it cannot be used.", "Switch ECC on."),
    Xid(169, "hardware", "The security microcontroller (SEC2) halted.", _LOG),
    Xid(170, "driver", "An NVLink raised an interrupt in confidential computing mode.", _LOG),
    Xid(171, "hardware", "The uncorrectable error of code 48 was in DRAM.", "Follow code 48."),
    Xid(172, "hardware", "The uncorrectable error of code 48 was in SRAM.", "Follow code 48."),
    Xid(999, "unknown", "The driver could not identify the error.", _LOG),
)


def _numbered(codes: Iterable[int], kind: XidClass, meaning: str, action: str) -> Iterator[Xid]:
    """Return one row for each unit of a kind; ``{}`` in the meaning is the number of the unit."""
    for number, code in enumerate(codes):
        unit = number if "{}" in meaning else None
        yield Xid(code, kind, meaning.format(number), action, unit=unit)


_UNITS = (
    *_numbered((1, 2, 3, 4, 6), "driver", "A stream of commands was invalid (older GPUs).", _UPDATE),
    *_numbered((20, 21, 22), "driver", "Commands for a video engine were invalid (older GPUs).", _UPDATE),
    *_numbered(
        (27, 28, 29, 34, 35, 36, 42), "driver", "A video engine had an exception (older GPUs).", _UPDATE
    ),
    *_numbered((47, 65, 73), "driver", "The video encoder {} had an error (older GPUs).", _UPDATE),
    *_numbered(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        "application",
        "The copy engine {} had an exception.",
        _RESTART,
    ),
    *_numbered(
        (68, 83, 84, 88, 89, 96, 97, 98), "application", "The video decoder {} had an exception.", _RESTART
    ),
    *_numbered((82, *range(99, 106)), "application", "The JPEG decoder {} had an exception.", _RESTART),
    *_numbered((86, 139), "application", "The optical flow engine {} had an exception.", _RESTART),
    *_numbered((16, 19, 56), "driver", "The display engine had an error (older GPUs).", _UPDATE),
    *_numbered(range(111, 119), "driver", "The display pipeline had an error (older GPUs).", _UPDATE),
)

_COVERED_SINCE: Mapping[int, Iterable[int]] = {
    565: (48, 62, 63, 64, 74, 79, 94, 95, 110, 120, 136, *range(144, 151), 155, 156, 158, 159),
    570: (109,),
    575: (143, 160, 161),
}
# By code, the driver branch from which the recovery action of a GPU covers it.
# These are the codes that the catalogue links to code 154. For the others, the class decides.
RECOVERY_SINCE: Mapping[int, int] = {
    code: branch for branch, codes in _COVERED_SINCE.items() for code in codes
}
REVOKED_BY: Mapping[int, int] = {163: 162}  # codes after which another one reports that all is well again

# The codes with an explanation, in ascending order.
XIDS: Mapping[int, Xid] = {xid.code: xid for xid in sorted((*_FAULTS, *_UNITS), key=lambda xid: xid.code)}


def explain(code: int) -> Xid:
    """Return the row of a code; of class ``unknown`` if the catalogue does not describe it."""
    return XIDS.get(code) or Xid(code, "unknown", "NVIDIA's catalogue does not describe this code.", _LOG)


def branch_of(version: str | None) -> int | None:
    """Return the branch of an NVIDIA driver: 580 of 580.65.06; None if unknown."""
    major = (version or "").partition(".")[0]
    return int(major) if re.fullmatch("[0-9]{1,6}", major) else None
