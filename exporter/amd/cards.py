"""The AMD GPUs of a node: every card of the kernel's graphics driver that is one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.amd.gpu_metrics import is_of_processor
from exporter.amd.sysfs_file import CardSlowError, Files, properties
from exporter.model import GpuIdentity

# A connector is a card's name with more behind it (card0-DP-1).
CARD = re.compile(r"card([0-9]{1,9})")
RENDER = re.compile(r"renderD([0-9]{1,9})")
PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
UNIQUE_ID = re.compile(r"[0-9a-f]{1,16}")
VENDOR, DRIVER = "0x1002", "amdgpu"
NVIDIA, DISPLAY = "0x10de", "0x03"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card and its folder in sysfs. ``address`` is its PCI address in the kernel's spelling.

    ``render_minor`` is the N of /dev/dri/renderDN, by which KFD names the same device.
    """

    index: int
    path: Path
    address: str
    render_minor: int | None

    @property
    def pci_bus_id(self) -> str:
        """The PCI address as readings spell it: 0000:19:00.0 is 00000000:19:00.0."""
        domain, _, rest = self.address.partition(":")
        return f"{domain:0>8}:{rest}".upper()

    @property
    def location(self) -> tuple[int, int]:
        """The PCI domain and, in one number, bus and device, as KFD counts them."""
        domain, bus, device, _ = (int(part, 16) for part in re.split(r"[:.]", self.address))
        return domain, bus << 8 | device << 3


def find_cards(files: Files, sys_root: Path, before: Mapping[int, Card]) -> dict[int, Card]:
    """Find the cards that are AMD's and run under amdgpu, by the number in their name.

    ``before`` are those that were found last: one of which a read hangs is taken as it was.
    """
    folder = sys_root / "class/drm"
    numbers = sorted(int(match[1]) for match in map(CARD.fullmatch, files.names(folder)) if match)
    cards: dict[int, Card] = {}
    for number in numbers:
        name, index = f"card{number}", len(cards)
        try:
            with files.about(name):
                card = _card(files, folder / name / "device", index)
        except CardSlowError:
            known = before.get(number)
            card = None if known is None else replace(known, index=index)
        if card is not None:
            cards[number] = card
    return cards


def driver_at(files: Files, sys_root: Path, address: str) -> str:
    """Return the driver of the device at a PCI address, "" if it has none."""
    uevent = files.text(sys_root / "bus/pci/devices" / address / "uevent")
    return properties(uevent, "=").get("DRIVER", "")


def has_nvidia(files: Files, sys_root: Path) -> bool:
    """Whether a GPU of NVIDIA's sits in this node too, under whatever driver."""
    folder = sys_root / "bus/pci/devices"
    theirs = (folder / name for name in files.names(folder) if files.text(folder / name / "vendor") == NVIDIA)
    return any((files.text(path / "class") or "").startswith(DISPLAY) for path in theirs)


def identify(files: Files, card: Card, architecture: str | None) -> GpuIdentity:
    """Say who a card is. One without a unique id, as boards for desktops may be, is named by its address."""
    return GpuIdentity(
        uuid=_uuid(files, card),
        index=card.index,
        model=_model(files, card),
        pci_bus_id=card.pci_bus_id,
        vendor="amd",
        serial=files.text(card.path / "serial_number"),
        architecture=architecture,
        vbios=files.text(card.path / "vbios_version"),
        render_minor=card.render_minor,
    )


def _uuid(files: Files, card: Card) -> str:
    """Return the name that ROCm has for a card: the sixteen hexadecimal digits of its unique id."""
    text = (files.text(card.path / "unique_id") or "").lower().removeprefix("0x")
    number = int(text, 16) if UNIQUE_ID.fullmatch(text) else 0
    return f"GPU-{number:016x}" if number else f"GPU-{card.address}"


def _card(files: Files, path: Path, index: int) -> Card | None:
    if files.text(path / "vendor") != VENDOR:
        return None
    event = properties(files.text(path / "uevent"), "=")
    address = event.get("PCI_SLOT_NAME", "").lower()
    if event.get("DRIVER") != DRIVER or not PCI_ADDRESS.fullmatch(address):
        return None
    return Card(index=index, path=path, address=address, render_minor=render_minor(files, path))


def render_minor(files: Files, path: Path) -> int | None:
    """Return the number of a device's render node, None where it has none."""
    found = (RENDER.fullmatch(name) for name in files.names(path / "drm"))
    return next((int(match[1]) for match in found if match), None)


def _model(files: Files, card: Card) -> str:
    """Name the board, by its number where it does not tell; processors may have graphics of their own."""
    told = files.text(card.path / "product_name")
    part = files.text(card.path / "device") or "GPU"
    if told is None and is_of_processor(files.content(card.path / "gpu_metrics")):
        return f"AMD integrated graphics {part}"
    return told or f"AMD {part}"
