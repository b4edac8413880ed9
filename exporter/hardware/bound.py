"""The PCI devices that the driver's kernel module is bound to: a GPU plugged in or out shows here first.

The library counts the GPUs that were there when it was opened. One that comes later is not listed, and one
that goes answers with errors for ever, until the library is opened anew.
"""

import re
from pathlib import Path

DRIVER = "bus/pci/drivers/nvidia"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class BoundDevices:
    """Compares the devices that are bound now with those at the time the library was opened."""

    def __init__(self, sys_root: Path | None) -> None:
        self._folder = None if sys_root is None else sys_root / DRIVER
        self._noted: frozenset[str] | None = None

    def note(self, bound: frozenset[str] | None) -> frozenset[str]:
        """Remember what was bound when the library was opened; return the addresses that no longer are.

        They are spelled as ``plain`` does. None is not known, and changes nothing.
        """
        if bound is None:
            return frozenset()
        before, self._noted = self._noted or frozenset(), bound
        return frozenset(map(plain, before - bound))

    def changed(self) -> bool:
        """Whether other devices are bound than were noted; False where that cannot be told."""
        now = self.now()
        return now is not None and self._noted is not None and now != self._noted

    def now(self) -> frozenset[str] | None:
        """Return what is bound at this moment, None where that cannot be told."""
        if self._folder is None:
            return None
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:
            # Not this driver, no sysfs, or the module is just being exchanged.
            return None
        return frozenset(name for name in names if ADDRESS.fullmatch(name))


def plain(address: str) -> str:
    """Spell an address without the zeros that NVML puts before the domain."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
