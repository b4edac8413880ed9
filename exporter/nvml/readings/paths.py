"""Paths of values in a reading, written as attributes, so that mypy checks them: ``GPU.fan_percent``."""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from exporter.model import C2c, Ecc, Fabric, GpuReading, Nvlink, PcieLink, Repairs

# A field of a reading, and the fields or keys below it.
Path = tuple[Any, ...]


class FieldPath:
    """Stands for a record of the model: its attributes and entries are paths in place of values."""

    def __init__(self, *path: Any) -> None:
        self.path = path

    def __getattr__(self, name: str) -> "FieldPath":
        if name.startswith("__"):
            # Of Python's own protocols, such as __wrapped__: no field of a reading.
            raise AttributeError(name)
        return FieldPath(*self.path, name)

    def __getitem__(self, key: Any) -> "FieldPath":
        return FieldPath(*self.path, key)


def path_of(value: Any) -> Path:
    """Return the path of a value below GPU, such as ``PCIE_LINK.width`` or ``GPU.clocks_megahertz["sm"]``."""
    path: Path = value.path
    return path


def name_of(value: Any) -> str:
    """Return the name of a field: the last part of its path."""
    return str(path_of(value)[-1])


GPU = cast("GpuReading", FieldPath())
PCIE_LINK = cast("PcieLink", GPU.pcie_link)
NVLINK = cast("Nvlink", GPU.nvlink)
C2C = cast("C2c", GPU.c2c)
FABRIC = cast("Fabric", GPU.fabric)
ECC = cast("Ecc", GPU.ecc)
REPAIRS = cast("Repairs", GPU.repairs)
