"""What the page calls the states of holders, and what keeps them apart."""

from collections.abc import Sequence

from exporter.formats_words import UNKNOWN
from exporter.model import ContainerRow
from exporter.states import HolderState

URGENCY: Sequence[HolderState] = (
    "over-share",
    "unheld",
    "over-notional",
    "idle-memory",
    "idle",
    "quiet",
    "active",
    "unknown",
)
"""The states, those to look at first before the others."""

ISOLATION = {
    "hard": "the hardware or the kernel keeps its memory and compute apart from others",
    "soft": "software limits each holder; they share the hardware",
    "none": "nothing keeps the holders of this device apart; nobody enforces the entitlement",
    "": "not known: nobody tells what keeps the holders of this device apart",
}


def isolation_word(isolation: str) -> str:
    """Name what keeps holders apart."""
    return isolation or UNKNOWN


def is_of_one_kind(row: ContainerRow) -> bool:
    """Whether the slices of a container are of one resource, and not units of several added up."""
    return "," not in row.resource
