"""What the page calls the ways of sharing, what keeps holders apart, and what is held of a device."""

from collections.abc import Sequence

from exporter.formats_words import UNKNOWN, total
from exporter.model import ContainerRow, SliceCount
from exporter.states import HolderState

URGENCY: Sequence[HolderState] = (
    "over-share",
    "unheld",
    "over-notional",
    "idle-memory",
    "idle",
    "active",
    "unknown",
)
"""The states, those to look at first before the others."""

# The ways of sharing that the vendors' own plug-ins bring; all others are the names of sharing systems.
_OWN_MODES = {
    "exclusive": "exclusive",
    "time-slicing": "time-sliced",
    "mps": "MPS",
    "mig": "MIG",
    "mig-time-slicing": "MIG, time-sliced",
    "vgpu": "vGPU",
    "amd-partition": "partitioned",
    "none": "not shared out",
    "unknown": "sharing not known",
    "": "sharing not known",
}
_SYSTEMS = {
    "amd-dra": "DRA",
    "baidu-cgpu": "Baidu cGPU",
    "cgpu": "cGPU",
    "dra": "DRA",
    "elastic-gpu": "Elastic GPU",
    "hami": "HAMi",
    "hami-dra": "HAMi by DRA",
    "intel": "Intel's plug-in",
    "kai": "KAI fractions",
    "koordinator": "Koordinator",
    "mgpu": "mGPU",
    "qgpu": "qGPU",
    "runai": "Run:ai fractions",
    "volcano-gpushare": "Volcano gpushare",
    "volcano-vgpu": "Volcano vGPU",
}
ISOLATION = {
    "hard": "the hardware or the kernel keeps its memory and compute apart from others",
    "soft": "software limits each holder; they share the hardware",
    "none": "nothing keeps the holders of this device apart; nobody enforces the entitlement",
    "": "not known: nobody tells what keeps the holders of this device apart",
}


def mode_word(sharing: str) -> str:
    """Name a way of sharing."""
    if sharing.startswith("hami-") and sharing not in _SYSTEMS:
        return _SYSTEMS["hami"]
    return _OWN_MODES.get(sharing) or _SYSTEMS.get(sharing, sharing)


def is_system(sharing: str) -> bool:
    """Whether GPUs are shared by a system of its own, which states what its holders may take."""
    return sharing not in _OWN_MODES


def isolation_word(isolation: str) -> str:
    """Name what keeps holders apart."""
    return isolation or UNKNOWN


def is_of_one_kind(row: ContainerRow) -> bool:
    """Whether the slices of a container are of one resource, and not units of several added up."""
    return "," not in row.resource


def held_of_all(counts: Sequence[SliceCount], noun: str = "") -> str:
    """Write what is held of all that is offered, alone where nobody says how much that is."""
    held = total((count.allocated for count in counts), str)
    offered = total((count.offered for count in counts), str)
    words = (held, *(() if offered == UNKNOWN else ("of", offered)), noun)
    return " ".join(filter(None, words))


def held_of_each(counts: Sequence[SliceCount]) -> str:
    """Write what is held of a whole device: of several resources each, whose units add up to nothing."""
    if len(counts) == 1:
        return held_of_all(counts)
    names = [count.resource.rpartition("/")[2] for count in counts]
    told = names if len(set(names)) == len(names) else [count.resource for count in counts]
    return ", ".join(held_of_all((count,), name) for count, name in zip(counts, told, strict=True))
