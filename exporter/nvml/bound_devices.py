"""The PCI devices that are bound to the NVIDIA driver."""

import re
from pathlib import Path

DRIVER = "bus/pci/drivers/nvidia"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class BoundDevices:
    """PCI addresses of the devices bound to the NVIDIA driver, now and when the library was opened."""

    def __init__(self, sys_root: Path | None) -> None:
        self._folder = None if sys_root is None else sys_root / DRIVER
        self._noted: frozenset[str] | None = None

    def note(self, bound: frozenset[str] | None) -> frozenset[str]:
        """Set the devices bound at opening; return the normalized addresses that no longer are.

        None is unknown, and changes nothing.
        """
        if bound is None:
            return frozenset()
        earlier, self._noted = self._noted or frozenset(), bound
        return frozenset(map(normalize_pci, earlier - bound))

    def changed(self) -> bool:
        """Return whether other devices are bound now; False if unknown."""
        bound = self.now()
        return bound is not None and self._noted is not None and bound != self._noted

    def now(self) -> frozenset[str] | None:
        """Return the devices bound now, None if unknown."""
        if self._folder is None:
            return None
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:
            # The module is not loaded, or there is no sysfs.
            return None
        return frozenset(name for name in names if ADDRESS.fullmatch(name))


def normalize_pci(address: str) -> str:
    """Return a PCI address in lower case, without leading zeros of its domain, which NVML pads."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
