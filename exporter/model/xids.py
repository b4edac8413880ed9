"""What the XID codes of NVIDIA's driver mean, told from its public catalogue in our own words.

https://docs.nvidia.com/deploy/xid-errors/ is the source: the catalogue for Ampere and newer GPUs and, for
codes that only older ones report, the archived table. Codes that it calls unused are left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

XidClass = Literal["application", "driver", "hardware", "reset", "reboot", "notice", "unknown"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. ``kind`` says what has to be looked at first, ``action`` what to do, as one sentence.

    ``alert``: the GPU cannot be relied on before somebody has acted, so that a person should be told.
    """

    code: int
    kind: XidClass
    meaning: str
    action: str
    alert: bool = False


CLASSES: Mapping[XidClass, str] = {
    "application": "a fault of a process, or one that ended it; the GPU itself works",
    "driver": "the driver, its firmware or other software of the node",
    "hardware": "the GPU goes on working, and its hardware or what it is connected to wants attention",
    "reset": "the GPU must be reset before it can be relied on",
    "reboot": "the node (or the virtual machine) must be restarted",
    "notice": "nothing is wrong by this code alone",
    "unknown": "the catalogue does not say",
}
"""What each class means, as one phrase."""

_RESTART = "Restart the application."
_LINK = "Restart the application; check the PCIe link if it comes back."
_DEBUG = "Debug the application, for example with compute-sanitizer."
_UPDATE = "Look for a newer driver; report it to NVIDIA if it comes back."
_RESET = "Drain the GPU and reset it."
_SUPPORT = "Watch it; contact the hardware's vendor if it comes back."
_RECOVERY = "Follow the recovery action that the driver gives with code 154."
_NOTHING = "Nothing."
_LOG = "Read the kernel's log (NVRM: Xid), which tells more than the code."

_FAULTS = (
    Xid(7, "driver", "The driver gave the GPU a wrong address for its commands (older GPUs).", _UPDATE),
    Xid(8, "application", "A channel of the GPU made no progress any more.", _RESTART),
    Xid(9, "driver", "The driver programmed the GPU wrongly (older GPUs).", _UPDATE),
    Xid(11, "application", "A process sent the GPU an invalid stream of commands.", _DEBUG),
    Xid(12, "driver", "The driver failed to handle an exception of the GPU (older GPUs).", _UPDATE),
    Xid(13, "application", "A kernel made an illegal access or ran an illegal instruction.", _DEBUG),
    Xid(14, "notice", "An error that was injected from user space, as a test.", _NOTHING),
    Xid(18, "driver", "Bus mastering is switched off in the PCI configuration (older GPUs).", _UPDATE),
    Xid(24, "driver", "A semaphore of the GPU was waited for too long (older GPUs).", _UPDATE),
    Xid(25, "application", "A process sent the GPU an illegal command.", _DEBUG),
    Xid(26, "driver", "The frame buffer did not answer in time (older GPUs).", _UPDATE),
    Xid(30, "driver", "A semaphore of the GPU could not be accessed (older GPUs).", _UPDATE),
    Xid(31, "application", "A process touched GPU memory that is not mapped for it.", _DEBUG),
    Xid(32, "application", "Commands arrived corrupted, mostly by a bad PCIe link.", _LINK),
    Xid(33, "driver", "A micro-controller of the GPU reported an error (older GPUs).", _UPDATE),
    Xid(37, "driver", "The firmware was asked for something it does not know.", _UPDATE),
    Xid(38, "driver", "The watchdog of the firmware expired.", _SUPPORT),
    Xid(43, "application", "The work of a process was stopped after a fault of its own.", _DEBUG),
    Xid(44, "driver", "The graphics engine faulted while it switched between contexts.", _SUPPORT),
    Xid(
        45,
        "application",
        "The work of a process was removed: it was killed, or ended by another error.",
        "Look at the code that came with it; alone it is mostly a process that was killed.",
    ),
    Xid(46, "reset", "The GPU stopped processing.", _RESET, alert=True),
    Xid(48, "reset", "Memory had an error that cannot be corrected (double bit).", _RESET, alert=True),
    Xid(54, "hardware", "The board's auxiliary power is not connected.", "Check the power cables."),
    Xid(57, "hardware", "The interface to the memory could not be programmed (older GPUs).", _SUPPORT),
    Xid(58, "hardware", "The interface to the memory is unstable (older GPUs).", _SUPPORT),
    Xid(59, "driver", "A micro-controller of the GPU reported an error (older drivers).", _UPDATE),
    Xid(60, "application", "The engine for protected video or security had an exception.", _RESTART),
    Xid(61, "driver", "A micro-controller of the GPU gave a warning (older GPUs).", _UPDATE),
    Xid(62, "reset", "A micro-controller of the GPU halted.", _RESET, alert=True),
    Xid(63, "hardware", "Bad memory is taken out of use at the next reset.", "Nothing now."),
    Xid(64, "reset", "Bad memory could not be taken out of use.", _RESET, alert=True),
    Xid(66, "driver", "The driver, or a process by it, accessed a register illegally.", _UPDATE),
    Xid(67, "driver", "The driver, or a process by it, accessed the GPU illegally.", _SUPPORT),
    Xid(69, "application", "A process used the graphics engine in a way that does not exist.", _DEBUG),
    Xid(
        74,
        "reset",
        "An NVLink failed, or the device at its other end did.",
        "Drain the GPUs of the link and reset them; look at nvidia-smi nvlink -e.",
        alert=True,
    ),
    Xid(78, "driver", "A vGPU could not be started.", "Update the vGPU software of host and guest."),
    Xid(
        79,
        "reboot",
        "The GPU does not answer on the PCIe bus any more.",
        "Drain the node and power-cycle it; look for PCIe errors in its log.",
        alert=True,
    ),
    Xid(80, "application", "Commands arrived at the GPU with a wrong checksum.", _LINK),
    Xid(81, "hardware", "The VGA part of the GPU had an error (older GPUs).", _SUPPORT),
    Xid(92, "hardware", "Corrected memory errors come at a high rate.", _SUPPORT),
    Xid(93, "hardware", "The InfoROM's wear limit is reached.", "Clear it (nvflash) if set on purpose."),
    Xid(
        94,
        "hardware",
        "A memory error that cannot be corrected was contained to one process.",
        "Restart that application; reset the GPU when it suits.",
        alert=True,
    ),
    Xid(95, "reset", "A memory error hit the work of several processes.", _RESET, alert=True),
    Xid(106, "notice", "A test message of the board's management bus.", _NOTHING),
    Xid(107, "notice", "A silent test message of the board's management bus.", _NOTHING),
    Xid(108, "application", "An access over NVLink could not be translated by the other GPU.", _DEBUG),
    Xid(
        109,
        "application",
        "The GPU could not switch between the contexts of processes in time.",
        "Restart what ran on the GPU; reset it if that does not help or driver and catalogue ask for it.",
    ),
    Xid(
        110,
        "reset",
        "A security fault, mostly by faulty hardware.",
        "Undo recent changes of hardware and power-cycle the node.",
        alert=True,
    ),
    Xid(119, "reset", "The GPU's system processor (GSP) did not answer in time.", _RESET, alert=True),
    Xid(120, "reset", "The firmware of the GPU's system processor (GSP) failed.", _RESET, alert=True),
    Xid(
        121,
        "hardware",
        "Errors on the link to the Grace processor were corrected.",
        "Nothing now; a reset at the next occasion trains the link anew.",
    ),
    Xid(122, "hardware", "The board's flash memory could not be read (older GPUs).", _SUPPORT),
    Xid(123, "hardware", "The board's flash memory could not be written (older GPUs).", _SUPPORT),
    Xid(124, "hardware", "The board's flash memory could not be erased (older GPUs).", _SUPPORT),
    Xid(125, "hardware", "The file system of the InfoROM has an error (older GPUs).", _SUPPORT),
    Xid(136, "reset", "The training of an NVLink failed.", _RESET, alert=True),
    Xid(137, "application", "A process made an illegal access to another GPU over NVLink.", _DEBUG),
    Xid(140, "reset", "Memory errors could not be corrected, nor the memory retired.", _RESET, alert=True),
    Xid(141, "driver", "The fast path of CUDA had an error.", _SUPPORT),
    Xid(142, "driver", "The video encoder 3 had an error.", _SUPPORT),
    Xid(143, "reset", "The GPU could not be initialised.", _RESET, alert=True),
    Xid(144, "hardware", "An NVLink unit (SAW) had an error, fatal or not.", _RECOVERY),
    Xid(145, "hardware", "An NVLink unit (RLW) had an error, fatal or not.", _RECOVERY),
    Xid(146, "hardware", "An NVLink unit (TLW) had an error, fatal or not.", _RECOVERY),
    Xid(147, "hardware", "An NVLink unit (TREX) had an error that is not fatal.", _RECOVERY),
    Xid(148, "hardware", "An NVLink unit (NVLPW_CTRL) had an error that is not fatal.", _RECOVERY),
    Xid(149, "reset", "The network of NVLinks had an error, such as a link down.", _RECOVERY, alert=True),
    Xid(150, "reset", "The management of the NVLinks (MSE) failed.", _RECOVERY, alert=True),
    Xid(
        151,
        "reboot",
        "Keys of confidential computing could not be exchanged.",
        "Restart the virtual machine.",
        alert=True,
    ),
    Xid(152, "driver", "The deep-learning accelerator (DLA) made an illegal access.", _SUPPORT),
    Xid(153, "driver", "The deep-learning accelerator (DLA) did not answer in time.", _SUPPORT),
    Xid(
        154,
        "notice",
        "The driver changed the recovery action that it recommends for the GPU.",
        "Read the recovery action; the codes that came with it say why.",
    ),
    Xid(
        155,
        "hardware",
        "Software took an NVLink down, possibly on purpose (such as to let it sleep).",
        "Reset the GPU if the link was meant to stay up.",
    ),
    Xid(156, "reset", "A faulty part of the GPU is retired at the next reset.", _RESET, alert=True),
    Xid(
        157,
        "hardware",
        "A faulty part of the GPU could not be retired: no spare is left.",
        "Contact the hardware's vendor; work can go on and may meet the fault again.",
    ),
    Xid(158, "reset", "The GPU did not answer in time, and does not recover.", _RESET, alert=True),
    Xid(159, "hardware", "The link between chips carried an error without data.", _SUPPORT),
    Xid(160, "hardware", "A channel of the memory was retired.", _SUPPORT),
    Xid(161, "hardware", "A channel of the memory could not be retired.", _SUPPORT),
    Xid(162, "notice", "The circuit that smooths the power works again.", _NOTHING),
    Xid(
        163,
        "hardware",
        "The circuit that smooths the power is off.",
        "Resolve thermal events; after a timeout reload the driver or reset the GPU.",
    ),
    Xid(
        164,
        "hardware",
        "The circuit that smooths the power is nearly worn out.",
        "Plan a replacement if the site cannot take swings of power.",
    ),
    Xid(
        165,
        "hardware",
        "The circuit that smooths the power is worn out.",
        "Replace the GPU if the site cannot take swings of power.",
    ),
    Xid(166, "driver", "An NVLink carried traffic before its encryption was set up.", _LOG),
    Xid(167, "hardware", "PCIe did not answer in time, and does not recover.", _LOG),
    Xid(168, "hardware", "Protected memory has errors; some of it cannot be used.", "Switch ECC on."),
    Xid(169, "hardware", "The micro-controller for security (SEC2) halted.", _LOG),
    Xid(170, "driver", "An NVLink interrupted in confidential computing mode.", _LOG),
    Xid(171, "hardware", "The uncorrectable error of code 48 was in DRAM.", "Follow code 48."),
    Xid(172, "hardware", "The uncorrectable error of code 48 was in SRAM.", "Follow code 48."),
    Xid(999, "unknown", "The driver could not tell which error it was.", _LOG),
)


def _numbered(codes: Iterable[int], kind: XidClass, meaning: str, action: str) -> Iterator[Xid]:
    """Return the rows of several units of one sort; ``{}`` in the meaning is the unit's number."""
    for number, code in enumerate(codes):
        yield Xid(code, kind, meaning.format(number), action)


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

XIDS: Mapping[int, Xid] = {xid.code: xid for xid in sorted((*_FAULTS, *_UNITS), key=lambda xid: xid.code)}
"""Every code that is explained, in ascending order."""

ALERTING: tuple[int, ...] = tuple(xid.code for xid in XIDS.values() if xid.alert)
"""The codes that a person should be told of, in ascending order."""


def explain(code: int) -> Xid:
    """Return what is known of a code; of one that the catalogue does not describe, that it is not known."""
    return XIDS.get(code) or Xid(code, "unknown", "NVIDIA's catalogue does not describe this code.", _LOG)


_INTRODUCTION = """\
# XID codes

*Made from the table in `exporter/model/xids.py` by `make docs`.*

An XID is the number of an error that NVIDIA's driver reports. Meanings and actions follow
[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/index.html), in other words; the kernel's log
(`NVRM: Xid`) says more than the number. For codes in **bold** a counter of 0 is exported before the first one
occurs, on every GPU whose events are watched.
"""


def xids_markdown() -> str:
    """Return the page of the codes as Markdown."""
    classes = (f"| {kind} | {text} |" for kind, text in CLASSES.items())
    rows = (
        f"| {_bold(xid)} | {xid.kind} | {xid.meaning.rstrip('.')} | {xid.action.rstrip('.')} |"
        for xid in XIDS.values()
    )
    lines = (
        _INTRODUCTION,
        "| class | what it says |\n| --- | --- |",
        *classes,
        "\n| XID | class | meaning | first action |\n| --- | --- | --- | --- |",
        *rows,
        "",
    )
    return "\n".join(lines)


def _bold(xid: Xid) -> str:
    return f"**{xid.code}**" if xid.alert else str(xid.code)
