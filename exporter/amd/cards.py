"""Enumerates the AMD GPUs of a node among the cards in ``/sys/class/drm``, and reads their identity."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.amd.gpu_metrics import is_of_processor
from exporter.amd.sysfs_file import CardSlowError, Files, properties
from exporter.model import GpuIdentity

# Connectors such as card0-DP-1 do not match.
CARD = re.compile(r"card([0-9]{1,9})")
RENDER = re.compile(r"renderD([0-9]{1,9})")
PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
UNIQUE_ID = re.compile(r"[0-9a-f]{1,16}")
VENDOR, DRIVER = "0x1002", "amdgpu"
NVIDIA, DISPLAY = "0x10de", "0x03"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """An AMD GPU in sysfs."""

    index: int  # position among the AMD cards
    path: Path  # its device folder
    address: str  # PCI address as in sysfs
    render_minor: int | None  # N of /dev/dri/renderDN, which KFD also has

    @property
    def pci_bus_id(self) -> str:
        """The PCI address in the format of NVML: 00000000:19:00.0 for 0000:19:00.0."""
        domain, _, rest = self.address.partition(":")
        return f"{domain:0>8}:{rest}".upper()

    @property
    def location(self) -> tuple[int, int]:
        """PCI domain, and bus and device in one number, as in KFD's ``location_id``."""
        domain, bus, device, _ = (int(part, 16) for part in re.split(r"[:.]", self.address))
        return domain, bus << 8 | device << 3


def find_cards(files: Files, sys_root: Path, last: Mapping[int, Card]) -> dict[int, Card]:
    """Return the cards of AMD with the driver amdgpu, by the number in their name.

    ``last`` are those of the last sweep, used for a card with a read that hangs.
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
            known = last.get(number)
            card = None if known is None else replace(known, index=index)
        if card is not None:
            cards[number] = card
    return cards


def driver_at(files: Files, sys_root: Path, address: str) -> str:
    """Return the driver of the device at a PCI address, "" if it has none."""
    uevent = files.text(sys_root / "bus/pci/devices" / address / "uevent")
    return properties(uevent, "=").get("DRIVER", "")


def has_nvidia(files: Files, sys_root: Path) -> bool:
    """Return whether the node has an NVIDIA GPU, with any driver."""
    folder = sys_root / "bus/pci/devices"
    devices = (folder / name for name in files.names(folder))
    nvidia = (path for path in devices if files.text(path / "vendor") == NVIDIA)
    return any((files.text(path / "class") or "").startswith(DISPLAY) for path in nvidia)


@dataclass(frozen=True, slots=True)
class Identified:
    """The facts of a card that do not change."""

    identity: GpuIdentity
    bridges: tuple[Path, ...] = ()  # bridges on the card, nearest to the GPU first


def identify(files: Files, card: Card, architecture: str | None) -> GpuIdentity:
    """Return the identity of a card. Raises CardSlowError."""
    # Boards for desktops may not have a unique id.
    text = (files.text(card.path / "unique_id") or "").lower().removeprefix("0x")
    unique_id = int(text, 16) if UNIQUE_ID.fullmatch(text) else 0
    return GpuIdentity(
        # As in ROCm: sixteen hexadecimal digits.
        uuid=f"GPU-{unique_id:016x}" if unique_id else f"GPU-{card.address}",
        index=card.index,
        model=_model(files, card),
        pci_bus_id=card.pci_bus_id,
        vendor="amd",
        serial=files.text(card.path / "serial_number"),
        architecture=architecture,
        vbios=files.text(card.path / "vbios_version"),
        render_minor=card.render_minor,
    )


def _card(files: Files, path: Path, index: int) -> Card | None:
    if files.text(path / "vendor") != VENDOR:
        return None
    event = properties(files.text(path / "uevent"), "=")
    address = event.get("PCI_SLOT_NAME", "").lower()
    if event.get("DRIVER") != DRIVER or not PCI_ADDRESS.fullmatch(address):
        return None
    return Card(index=index, path=path, address=address, render_minor=render_minor(files, path))


def render_minor(files: Files, path: Path) -> int | None:
    """Return the number of a device's render node, None if it has none."""
    matches = (RENDER.fullmatch(name) for name in files.names(path / "drm"))
    return next((int(match[1]) for match in matches if match), None)


def _model(files: Files, card: Card) -> str:
    """Return the name of the board, or its PCI device id."""
    product = files.text(card.path / "product_name")
    device = files.text(card.path / "device") or "GPU"
    if product is None and is_of_processor(files.content(card.path / "gpu_metrics")):
        return f"AMD integrated graphics {device}"
    return product or f"AMD {device}"
