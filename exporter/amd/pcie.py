"""The PCIe link of a card, also of one with a switch between GPU and slot."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.amd.cards import PCI_ADDRESS, VENDOR, Card
from exporter.amd.sysfs_file import Files
from exporter.model.bounds import PCIE_LANES
from exporter.model.readings import PcieLink

# PCIe generation by gigatransfers per second of a lane, as the kernel prints them.
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
# The kernel's width of an unknown link.
NO_WIDTH = 0xFF


def own_bridges(files: Files, card: Card) -> tuple[Path, ...]:
    """Return the folders of the bridges between a GPU and its slot, as they are on cards with a switch.

    Their vendor is that of AMD's graphics; the bridges of a processor or board have other vendors.
    """
    bridges: list[Path] = []
    for folder in card.path.resolve().parents:
        if not PCI_ADDRESS.fullmatch(folder.name) or files.text(folder / "vendor") != VENDOR:
            break
        bridges.append(folder)
    return tuple(bridges)


def read_link(files: Files, devices: Sequence[Path]) -> PcieLink | None:
    """Return the narrowest and slowest of the links of a card: between the GPU, its bridges and the slot.

    A GPU below a bridge on its card has its own link at full width whatever the slot is.
    """
    link = PcieLink(
        generation=_least(_generation(files, device / "current_link_speed") for device in devices),
        width=_least(_width(files, device / "current_link_width") for device in devices),
        max_generation=_least(_generation(files, device / "max_link_speed") for device in devices),
        max_width=_least(_width(files, device / "max_link_width") for device in devices),
    )
    return None if link == PcieLink() else link


def _least(values: Iterable[int | None]) -> int | None:
    """Return the least of some numbers; None if one of them is unknown."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    return min(numbers) if len(numbers) == len(known) else None


def _generation(files: Files, path: Path) -> int | None:
    return GENERATIONS.get((files.text(path) or "").partition(" ")[0])


def _width(files: Files, path: Path) -> int | None:
    lanes = files.number(path)
    return None if lanes in {0, NO_WIDTH} else files.believed(path, lanes, PCIE_LANES)
